"""Probes a clang by compiling a few lines with it: what it is, what it logs, what it can pass to a model."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from components.core import problems
from components.core.compiler.advisor import NO_OUTLINER, OUTLINER_OPTION, Advisor
from components.core.compiler.logs.training_log import LogError, read_log
from components.core.formats.features import FeatureSpec
from components.platform.errors import UserError
from components.platform.processes import supervision

_NO_DECISIONS_SOURCE = "int next(int x) { return x + 1; }\n"
_TIMEOUT_S = 120.0
_NUM_REPLIES = 1000
"""Number of replies for a compiler that asks nevertheless: at the end of the file it would wait forever."""


class ProbeError(UserError):
    """A probe did not compile."""


def read_triple(clang: Path) -> str:
    """Return the default target triple of this clang."""
    with tempfile.TemporaryFile() as output:
        _run([str(clang), "-dumpmachine"], output.fileno())
        output.seek(0)
        return output.read().decode().strip()


def read_logged_features(clang: Path, problem: str) -> tuple[FeatureSpec, ...]:
    """Return the features that a training clang logs for each decision of `problem`, without the decisions."""
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        log = Path(scratch, "log")
        _compile(clang, problems.get(problem).llvm.probe, Advisor("log").flags(problem, log, None), Path(scratch))
        return _features(clang, problem, log, decisions_expected=True)


def read_supported_features(clang: Path, problem: str) -> tuple[FeatureSpec, ...]:
    """Return all features that a release clang can pass to a model of `problem`, used by its own model or not.

    A release clang logs nothing. But LLVM can ask another process for decisions, and starts by sending it the list of
    features. Plain files replace that process's pipes. The probe has nothing to decide: the valid answers depend on the
    question, and evicting a register that must not be evicted aborts the compile.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        channel = Path(scratch, "channel")
        channel.with_suffix(".in").write_bytes(struct.pack("<q", 0) * _NUM_REPLIES)
        flags = ["-mllvm", f"{problems.get(problem).llvm.channel_option}={channel}"]
        _compile(clang, _NO_DECISIONS_SOURCE, Advisor("release").flags(problem, None, None) + flags, Path(scratch))
        return _features(clang, problem, channel.with_suffix(".out"), decisions_expected=False)


def check_release(clang: Path, problem: str) -> None:
    """Compile a probe with the embedded model. UserError if the compile fails."""
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        _compile(clang, problems.get(problem).llvm.probe, Advisor("release").flags(problem, None, None), Path(scratch))


def has_option(clang: Path, option: str) -> bool:
    """Return whether a clang has an option of LLVM, -mllvm OPTION=0."""
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        try:
            _compile(clang, _NO_DECISIONS_SOURCE, ["-mllvm", f"{option}=0"], Path(scratch))
        except ProbeError:
            return False
    return True


def _compile(clang: Path, text: str, flags: Sequence[str], scratch: Path) -> None:
    source = scratch / "probe.cpp"
    source.write_text(text)
    _run([str(clang), "-Oz", *flags, "-c", str(source), "-o", str(scratch / "probe.o")])


def _run(command: Sequence[str], stdout: int = subprocess.DEVNULL) -> None:
    try:
        done = supervision.run(command, _TIMEOUT_S, stdout=stdout)
    except supervision.ProcessTimeout as error:
        raise ProbeError(f"{command[0]} did not compile a probe within {error.timeout_s:.0f} s", "rebuild it") from None
    if done.returncode != 0:
        raise ProbeError(
            f"the clang failed to compile a probe (status {done.returncode}):\n{done.stderr}\n"
            f"command: {' '.join(command)}",
            "check that all packages of the SDK have the same version, or that the policy is complete",
        )


def _features(clang: Path, problem: str, log: Path, decisions_expected: bool) -> tuple[FeatureSpec, ...]:
    definition = problems.get(problem)
    try:
        content = read_log(log)
    except LogError as error:
        raise UserError(f"{clang} does not list its features: {error.problem}", "rebuild the toolchain") from None
    if decisions_expected and content.decisions == 0:
        raise UserError(f"{clang} logged no decision for a probe that has some", "rebuild the toolchain")
    return tuple(spec for spec in content.features if spec.name not in definition.policy.decisions)


def without_outliner(clang: Path) -> tuple[str, ...]:
    """Return flags without which a release clang's code differs from the training clang's by more than decisions."""
    return NO_OUTLINER if has_option(clang, OUTLINER_OPTION) else ()
