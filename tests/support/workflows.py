"""GitHub's workflows as data: their steps, the environment of a step, and the references in their expressions.

All scalars are strings (so `on` is not a boolean, as YAML 1.1 would have it).
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

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.iterdir())

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A step of a job. content: as in the file. variables: its environment, including those of workflow and job."""

    job: str
    content: Mapping[str, Any]
    variables: Mapping[str, str]

    @property
    def script(self) -> str:
        """The script that it runs; empty if it uses an action."""
        return str(self.content.get("run", ""))


def load(path: Path) -> dict[str, Any]:
    """Read a workflow, or another YAML file, with strings for scalars."""
    return dict(yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader))


def steps(workflow: Mapping[str, Any]) -> Iterator[Step]:
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            variables = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
            yield Step(name, step, variables)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace each expression in `text` by its value; KeyError if `values` does not have it."""
    return EXPRESSION.sub(lambda match: values[match[1].strip()], text)


def holds(condition: str, values: Mapping[str, str]) -> bool:
    """Evaluate an `if` of the form REFERENCE == 'TEXT' (or !=) && ...; KeyError for a reference without a value."""
    if "&&" in condition:
        return all(holds(part.strip(), values) for part in condition.split("&&"))
    match = re.fullmatch(r"([\w.]+) (==|!=) '([^']*)'", condition)
    assert match, f"{condition}: not of the supported form"
    return (values[match[1]] == match[3]) == (match[2] == "==")


@dataclass(frozen=True)
class Runner:
    """A machine that runs steps like GitHub's runners.

    Attributes:
        directory: working directory; it has the environment that `make setup` creates.
        values: values of the expressions.
        given: further environment variables of the machine.
    """

    directory: Path
    values: Mapping[str, str]
    given: Mapping[str, str]

    def __post_init__(self) -> None:
        (self.directory / ".venv").symlink_to(sys.prefix)

    def run(self, step: Step, more: str = "") -> tuple[str, dict[str, str]]:
        """Run the script of a step, with `more` appended; return its output on the terminal and its step outputs."""
        output = self.directory / "github-output"
        output.write_text("")
        variables = {name: filled(text, self.values) for name, text in step.variables.items()}
        done = subprocess.run(
            ["bash", "-e", "-c", step.script + more],
            cwd=self.directory,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Test this checkout, wherever the environment's `mlgo` would look first.
            env={**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(output), **self.given, **variables},
        )
        assert done.returncode == 0, f"{step.script}{more}\n{done.stdout[-8000:]}"
        return done.stdout, dict(line.split("=", 1) for line in output.read_text().splitlines())
