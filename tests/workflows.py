"""GitHub's workflows as data: their steps, the variables that a step sees, and what their expressions refer to.

Scalars are text as they stand in the file (and `on` is no boolean, as it would be by YAML 1.1).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.iterdir())

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A step of a job. content: as in the file. variables: of its environment, those of workflow and job included."""

    job: str
    content: Mapping[str, Any]
    variables: Mapping[str, str]

    @property
    def script(self) -> str:
        """What it runs; empty for one that uses an action."""
        return str(self.content.get("run", ""))


def load(path: Path) -> dict[str, Any]:
    """A workflow, or another file of YAML, with text for scalars."""
    return dict(yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader))


def steps(workflow: Mapping[str, Any]) -> Iterator[Step]:
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            variables = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
            yield Step(name, step, variables)


def filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with the value of each expression; KeyError for one that `values` does not have."""
    return EXPRESSION.sub(lambda match: values[match[1].strip()], text)


def holds(condition: str, values: Mapping[str, str]) -> bool:
    """Whether an `if` of the form REFERENCE == 'TEXT' (or !=) does. KeyError for a reference without a value."""
    match = re.fullmatch(r"([\w.]+) (==|!=) '([^']*)'", condition)
    assert match, f"{condition}: more than this reader understands"
    return (values[match[1]] == match[3]) == (match[2] == "==")


@dataclass(frozen=True)
class Runner:
    """A machine that runs steps as GitHub's do, in `directory`, which has the environment that `make setup` makes.

    values: of the expressions. given: more variables of the machine.
    """

    directory: Path
    values: Mapping[str, str]
    given: Mapping[str, str]

    def __post_init__(self) -> None:
        (self.directory / ".venv").symlink_to(sys.prefix)

    def run(self, step: Step, more: str = "") -> tuple[str, dict[str, str]]:
        """Runs the script of a step, with `more` appended; returns what it printed, and its outputs."""
        output = self.directory / "github-output"
        output.write_text("")
        variables = {name: filled(text, self.values) for name, text in step.variables.items()}
        done = subprocess.run(
            ["bash", "-e", "-c", step.script + more], cwd=self.directory, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # This checkout is what is tested, wherever the environment's `mlgo` would look first.
            env={**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(output), **self.given, **variables},
        )  # fmt: skip
        assert done.returncode == 0, f"{step.script}{more}\n{done.stdout[-8000:]}"
        return done.stdout, dict(line.split("=", 1) for line in output.read_text().splitlines())
