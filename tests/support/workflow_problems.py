"""Find problems that the schema of a workflow does not: missing jobs, outputs and variables, bad times, cycles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from cronsim import CronSim, CronSimError

from tests.support.workflows import EXPRESSION, load, steps

_REFERENCE = re.compile(r"(?<![\w.])[A-Za-z_][\w-]*(?:\.[\w-]+)+")
_OF_GITHUB = {"github", "runner", "job", "strategy"}
_SET_BY_GITHUB = re.compile(r"(GITHUB|RUNNER)_\w+|CI|HOME|PATH")


def problems(path: Path) -> list[str]:
    """Return a sentence for each problem in the workflow at `path`."""
    workflow = load(path)
    # Comments name the variables that a user must set.
    documented = set(
        re.findall(r"\b[A-Z][A-Z0-9_]+\b", " ".join(re.findall(r"^ *#(.*)", path.read_text(), re.MULTILINE)))
    )
    messages = [f"cron: {error}" for error in _bad_times(workflow)]
    jobs = workflow["jobs"]
    try:
        TopologicalSorter({name: _needs(job) for name, job in jobs.items()}).prepare()
    except CycleError as error:
        messages.append(f"needs: {error}")
    for name, job in jobs.items():
        messages += [f"{name} needs {other}, which is not a job" for other in _needs(job) if other not in jobs]
        before: dict[str, Mapping[str, Any]] = {}
        outside = {**job, "steps": [], "outputs": {}}
        top = {key: value for key, value in workflow.items() if key != "jobs"}
        messages += [f"{name}: {text}" for text in _missing([top, outside], workflow, job, before, documented)]
        for step in job["steps"]:
            messages += [f"{name}: {text}" for text in _missing(step, workflow, job, before, documented)]
            before |= {step["id"]: step} if "id" in step else {}
        messages += [f"{name}: {text}" for text in _missing(job.get("outputs"), workflow, job, before, documented)]
    for step in steps(workflow):
        used = re.findall(r"\$\{?([A-Z_][A-Z0-9_]*)", step.script)
        unknown = [name for name in used if name not in step.variables and not _SET_BY_GITHUB.fullmatch(name)]
        messages += [f"{step.job}: ${name} is in no env" for name in unknown]
    return messages


def _bad_times(workflow: Mapping[str, Any]) -> Iterator[str]:
    triggers = workflow["on"]
    for entry in triggers.get("schedule", ()) if isinstance(triggers, dict) else ():
        try:
            CronSim(entry["cron"], datetime(2024, 1, 1))
        except CronSimError as error:
            yield f"{entry['cron']}: {error}"


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def _texts(node: Any, key: str = "") -> Iterator[str]:
    """Yield the expressions in `node`; the value of `if` is an expression without braces."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _texts(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield from [node] if key == "if" else EXPRESSION.findall(node)


def _missing(
    node: Any,
    workflow: Mapping[str, Any],
    job: Mapping[str, Any],
    before: Mapping[str, Mapping[str, Any]],
    documented: set[str],
) -> Iterator[str]:
    """Yield undeclared references in the expressions of `node`. before: the earlier steps of the job, by ID."""
    for text in _texts(node):
        for reference in _REFERENCE.findall(re.sub(r"'[^']*'", "", text)):
            context, name, *rest = reference.split(".")
            match context:
                case "vars" | "secrets":
                    good = name in documented or name == "GITHUB_TOKEN"
                case "needs":
                    outputs = workflow["jobs"].get(name, {}).get("outputs", {})
                    declared = rest == ["result"] or (rest[:1] == ["outputs"] and rest[1] in outputs)
                    good = name in _needs(job) and declared
                case "steps":
                    good = name in before and _has_output(before[name], rest)
                case "matrix":
                    good = name in job.get("strategy", {}).get("matrix", {})
                case "inputs":
                    triggers = [t for t in workflow["on"].values() if isinstance(t, Mapping) and "inputs" in t]
                    good = bool(triggers) and all(name in trigger["inputs"] for trigger in triggers)
                case "env":
                    good = name in {**workflow.get("env", {}), **job.get("env", {})}
                case _:
                    good = context in _OF_GITHUB
            if not good:
                yield f"{reference} is not declared"


def _has_output(step: Mapping[str, Any], rest: list[str]) -> bool:
    """Return whether a step has `outputs.NAME`; actions, and programs that write $GITHUB_OUTPUT themselves, may."""
    script = str(step.get("run", ""))
    return rest[:1] == ["outputs"] and ("$GITHUB_OUTPUT" not in script or f'"{rest[1]}=' in script)
