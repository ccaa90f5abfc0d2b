"""Evaluates the deployed policy on the corpus of a run, in this process' machine and container."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from components.core.formats.policy import load_policy_info
from components.platform.errors import UserError
from components.platform.processes.python_module import module_command
from pipelines.retrain.artifacts import local


def evaluate_deployed(policy: str, corpus: str, toolchain: str, workers: str) -> str:
    """Return the directory of an evaluation of `policy`, temporary for the life of this process.

    Args:
        policy, corpus, toolchain: locations of artifacts; the toolchain is a training clang.
        workers: where modules are compiled, KIND[:N].

    Raises:
        UserError: the policy is missing, or does not fit the corpus or the toolchain.
    """
    directory = tempfile.TemporaryDirectory(prefix="mlgo-deployed-")
    _KEPT.append(directory)
    output = Path(directory.name) / "evaluation"
    problem = load_policy_info(local(policy)).problem
    command = [*module_command("components.evaluation"), "run"]
    command += evaluation_arguments(policy, corpus, toolchain, problem, workers, str(output))
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if done.returncode != 0:
        reason, remedy = reported_error(done.stderr)
        raise UserError(
            f"the deployed policy at {policy} cannot be evaluated: {reason or f'status {done.returncode}'}",
            remedy or "see the log above",
        )
    return str(output)


def evaluation_arguments(
    policy: str, corpus: str, toolchain: str, problem: str, workers: str, output: str
) -> tuple[str, ...]:
    """Return arguments of the evaluation of a deployed policy; no thresholds, because only its figures are compared."""
    named = {"policy": policy, "corpus": corpus, "toolchain": toolchain, "problem": problem, "workers": workers}
    pairs = (named | {"thresholds": ",", "output": output}).items()
    return (*(text for name, value in pairs for text in (f"--{name}", value)), "--quiet")


def reported_error(stderr: str) -> tuple[str, str]:
    """Return problem and remedy of the UserError that a step printed; without one, all of `stderr` and ""."""
    match = re.search(r"^error: (.*?)\n  remedy: (.*)\Z", stderr.strip(), re.MULTILINE | re.DOTALL)
    return (match[1], match[2]) if match else (stderr.strip(), "")


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
