"""One step of a run, as the runner sees it: a task of the compiled pipeline with its parameters filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from components.console import UserError

FILES = frozenset({"system.Metrics", "system.HTML", "system.Markdown"})
"""Artifacts that are one file for KFP's user interface; every other is a directory, or a place in object storage."""

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(inputs|outputs)\.(artifacts|parameters)\['([^']+)'\]\.?(\w*))?\}\}")


@dataclass(frozen=True)
class Condition:
    """The step runs if the output parameter `parameter` of the step `step` is (`equal`) or is not `value`."""

    step: str
    parameter: str
    value: str
    equal: bool = True

    def holds(self, found: str) -> bool:
        return (found == self.value) is self.equal


@dataclass(frozen=True)
class Places:
    """Where a run keeps things. artifacts: directory or gs:// URI. files: directory, with small things of each step."""

    artifacts: str
    files: str

    def artifact(self, name: str) -> str:
        return str(_join(self.artifacts, name))

    def file(self, step: str, name: str) -> str:
        return str(_join(self.files, step, name))


@dataclass(frozen=True)
class Step:
    """A command that reads artifacts and writes one.

    Invariants: `name` and `output` are unique in a pipeline; every value of `inputs` is the output of another step.

    Attributes:
        name: what the user sees; also the name of the log and of the step's state.
        image: name of the image that it runs in (a value of components.launcher.images.IMAGES).
        module: "components.vocab": the package whose code the step is.
        command: the program, without placeholders.
        arguments: its arguments. KFP's placeholders for parameters are filled in; those for artifacts are not, so that
            what is made does not depend on where it is made.
        output: name of the artifact that it makes, which is its place in the run.
        inputs: placeholder's name -> name of the artifact that is read.
        outputs: placeholder's name -> KFP's schema title, of every output artifact, `output` and `work` among them.
        parameters: output parameters, each a file with its value.
        conditions: all must hold, or the step and what depends on it is left out.
        after: steps that must have ended before, beside those whose artifacts it reads.
        always: runs in the end whether or not others failed; its arguments hold STATUS.
        facts: anything else that the result depends on and the arguments do not show (content of a file that is
            named on the command line, version of a program that the step calls): text, compared for equality.
        work: name of a working directory that survives a kill: the step continues there what an interrupted run of
            the same step began. Empty for a step that starts anew each time.
        extends: flags whose change lets a resuming step go on in its old working directory (a longer budget).
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
    facts: tuple[str, ...] = ()
    work: str = ""
    extends: tuple[str, ...] = ()

    def argv(self, places: Places) -> list[str]:
        """Command and arguments with every placeholder filled in."""
        return [*self.command, *(_PLACEHOLDER.sub(lambda m: self._fill(m, places), a) for a in self.arguments)]

    def start_arguments(self) -> tuple[str, ...]:
        """The arguments without the flags in `extends` and their values: what a working directory stands for."""
        kept: list[str] = []
        skip = False
        for argument in self.arguments:
            if skip:
                skip = False
            elif argument in self.extends:
                skip = True
            else:
                kept.append(argument)
        return tuple(kept)

    def executor_input(self, places: Places) -> str:
        """What KFP would pass as {{$}}: the ExecutorInput, JSON."""
        artifacts = {name: [{"name": name, "uri": places.artifact(of)}] for name, of in self.inputs.items()}
        made = {
            name: [{"name": name, "type": {"schemaTitle": title}, "uri": self._output_place(name, places)}]
            for name, title in self.outputs.items()
        }
        document = {
            "inputs": {"artifacts": {name: {"artifacts": listed} for name, listed in artifacts.items()}},
            "outputs": {
                "artifacts": {name: {"artifacts": listed} for name, listed in made.items()},
                "parameters": {name: {"outputFile": places.file(self.name, name)} for name in self.parameters},
                "outputFile": places.file(self.name, "executor_output.json"),
            },
        }
        return json.dumps(document)

    def _fill(self, match: re.Match[str], places: Places) -> str:
        direction, kind, name, _attribute = match.groups()
        if direction is None:
            return self.executor_input(places)
        if (direction, kind) == ("inputs", "artifacts") and name in self.inputs:
            return places.artifact(self.inputs[name])
        if (direction, kind) == ("outputs", "artifacts") and name in self.outputs:
            return self._output_place(name, places)
        if (direction, kind) == ("outputs", "parameters") and name in self.parameters:
            return places.file(self.name, name)
        raise UserError(f"the step {self.name} has a placeholder for nothing: {match[0]}", "compile the pipeline again")

    def _output_place(self, name: str, places: Places) -> str:
        return places.file(self.name, name) if self.outputs[name] in FILES else places.artifact(name)


def _join(root: str, *names: str) -> str:
    # PurePosixPath would make one slash of the two in gs://.
    return "/".join([root.rstrip("/"), *(str(PurePosixPath(name)) for name in names)])
