"""Steps of a run: tasks of the compiled pipeline with their parameters filled in."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from components.platform.errors import UserError
from components.platform.launcher.step_cost import COSTS

ON_KFP = "submit it to KFP, which runs every pipeline"
"""Remedy for what the runners of this machine do not support."""
SINGLE_FILE_TYPES = frozenset({"system.Metrics", "system.ClassificationMetrics", "system.HTML", "system.Markdown"})
"""Artifact types that are one file for KFP's UI; all others are a directory or a folder in object storage."""
EXECUTOR_OUTPUT = "executor_output.json"
"""File in which the launcher reports the artifacts of a step, with metadata."""

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(inputs|outputs)\.(artifacts|parameters)\['([^']+)'\]\.?(\w*))?\}\}")


@dataclass(frozen=True)
class Condition:
    """Condition of a step: output parameter `parameter` of step `step` equals `value`, or differs if not `equal`."""

    step: str
    parameter: str
    value: str
    equal: bool = True

    def holds(self, value: str) -> bool:
        """Return whether the condition is true for the parameter's value."""
        return (value == self.value) is self.equal


@dataclass(frozen=True)
class RunLocations:
    """Locations of a run. artifacts: directory or URI. files: directory of each step's small output files."""

    artifacts: str
    files: str

    def artifact(self, name: str) -> str:
        """Return the path or URI of an artifact."""
        return str(_join(self.artifacts, name))

    def file(self, step: str, name: str) -> str:
        """Return the path of a small output file of a step."""
        return str(_join(self.files, step, name))

    def costs(self, artifact: str) -> dict[str, str]:
        """Return the metadata with the costs of the steps that made an artifact; {} if they are unknown."""
        for path in Path(self.files).glob(f"*/{EXECUTOR_OUTPUT}"):
            with suppress(OSError, ValueError, LookupError, TypeError):
                listed = json.loads(path.read_text(encoding="utf-8"))["artifacts"][artifact]["artifacts"]
                return {COSTS: str(listed[0]["metadata"][COSTS])}
        return {}


@dataclass(frozen=True)
class Step:
    """A command that reads artifacts and writes one.

    Invariants: `name` and `output` are unique in a pipeline; every value of `inputs` is the output of another step.

    Attributes:
        name: name for the user; also the name of the log and of the step's state.
        image: name of the image that it runs in (a value of components.platform.launcher.images.IMAGES).
        arguments: its arguments. KFP's placeholders for parameters are filled in; those for artifacts are not, so that
            the step's identity does not depend on the location of the run.
        output: name of the artifact that it writes, which is also its location in the run.
        inputs: placeholder's name -> name of the artifact to read.
        outputs: placeholder's name -> KFP's schema title, for every output artifact, including `output` and `work`.
        parameters: names of output parameters, each a file with its value.
        after: steps that must end before this one, in addition to those whose artifacts it reads.
        always: exit handler: runs last, whether or not others failed; its arguments may contain STATUS.
        cache_inputs: anything else that the result depends on and the arguments do not show (content of a file that is
            named on the command line, version of a program that the step calls): text, compared for equality.
        work: name of a working directory that survives a kill: the step resumes there what an interrupted run of it
            began. Empty for a step that always starts from scratch.
        extends: flags that may change without invalidating the working directory of a resuming step (a longer budget).
    """

    name: str
    image: str
    module: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    output: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    after: tuple[str, ...] = ()
    always: bool = False
    cache_inputs: tuple[str, ...] = ()
    work: str = ""
    extends: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def argv(self, locations: RunLocations) -> list[str]:
        """Return command and arguments with every placeholder filled in."""
        return [*self.command, *(_PLACEHOLDER.sub(lambda m: self._fill(m, locations), a) for a in self.arguments)]

    def start_arguments(self) -> tuple[str, ...]:
        """Return the arguments without the flags in `extends` and their values: those that a working directory fits."""
        pairs = itertools.pairwise(("", *self.arguments))
        return tuple(argument for before, argument in pairs if not {before, argument} & {*self.extends})

    def executor_input(self, locations: RunLocations) -> str:
        """Return the ExecutorInput as JSON, which KFP passes for {{$}}."""
        artifacts = {
            name: [{"name": name, "uri": locations.artifact(of), "metadata": locations.costs(of)}]
            for name, of in self.inputs.items()
        }
        made = {
            name: [{"name": name, "type": {"schemaTitle": title}, "uri": self._output_place(name, locations)}]
            for name, title in self.outputs.items()
        }
        document = {
            "inputs": {"artifacts": {name: {"artifacts": listed} for name, listed in artifacts.items()}},
            "outputs": {
                "artifacts": {name: {"artifacts": listed} for name, listed in made.items()},
                "parameters": {name: {"outputFile": locations.file(self.name, name)} for name in self.parameters},
                "outputFile": locations.file(self.name, EXECUTOR_OUTPUT),
            },
        }
        return json.dumps(document)

    def _fill(self, match: re.Match[str], locations: RunLocations) -> str:
        direction, kind, name, _attribute = match.groups()
        if direction is None:
            return self.executor_input(locations)
        if (direction, kind) == ("inputs", "artifacts") and name in self.inputs:
            return locations.artifact(self.inputs[name])
        if (direction, kind) == ("outputs", "artifacts") and name in self.outputs:
            return self._output_place(name, locations)
        if (direction, kind) == ("outputs", "parameters") and name in self.parameters:
            return locations.file(self.name, name)
        raise UserError(f"the step {self.name} has an unknown placeholder: {match[0]}", "compile the pipeline again")

    def _output_place(self, name: str, locations: RunLocations) -> str:
        return locations.file(self.name, name) if self.outputs[name] in SINGLE_FILE_TYPES else locations.artifact(name)


def _join(root: str, *names: str) -> str:
    # Not PurePosixPath for the root: it would collapse the two slashes of a URI.
    return "/".join([root.rstrip("/"), *(str(PurePosixPath(name)) for name in names)])
