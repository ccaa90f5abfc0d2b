"""Asks a clang that was just built what it does, by compiling a few lines with it."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from components import problems
from components.compiler import process
from components.compiler.advisor import Advisor
from components.compiler.training_log import LogError, read_log
from components.console import UserError
from components.formats.features import FeatureSpec

_NOTHING_TO_DECIDE = "int next(int x) { return x + 1; }\n"
_TIMEOUT_S = 120.0
_REPLIES = 1000
"""Should a compiler ask all the same: at the end of the file it would wait for more, for ever."""


def triple(clang: Path) -> str:
    """The triple of the code that this clang makes if it is not told another."""
    with tempfile.TemporaryFile() as output:
        _run([str(clang), "-dumpmachine"], output.fileno())
        output.seek(0)
        return output.read().decode().strip()


def logged_features(clang: Path, problem: str) -> tuple[FeatureSpec, ...]:
    """What a training clang logs of each decision of `problem`, without the decisions themselves."""
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        log = Path(scratch, "log")
        _compile(clang, problems.get(problem).probe, Advisor("log").flags(problem, log, None), Path(scratch))
        return _features(clang, problem, log, decisions_expected=True)


def known_features(clang: Path, problem: str) -> tuple[FeatureSpec, ...]:
    """What a release clang would tell a model of each decision of `problem`, whatever the one that it carries uses.

    It logs nothing; but LLVM can ask another process for its decisions, and says first what it will tell. Plain files
    do in place of that process's pipes, for code in which nothing is to be decided: what may be answered depends on the
    question, and a register that must not be evicted ends the compile.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        channel = Path(scratch, "channel")
        channel.with_suffix(".in").write_bytes(struct.pack("<q", 0) * _REPLIES)
        flags = ["-mllvm", f"{problems.get(problem).channel_option}={channel}"]
        _compile(clang, _NOTHING_TO_DECIDE, Advisor("release").flags(problem, None, None) + flags, Path(scratch))
        return _features(clang, problem, channel.with_suffix(".out"), decisions_expected=False)


def check_release(clang: Path, problem: str) -> None:
    """Raises UserError if this clang does not compile with the model that it carries."""
    with tempfile.TemporaryDirectory(prefix="mlgo-probe-") as scratch:
        _compile(clang, problems.get(problem).probe, Advisor("release").flags(problem, None, None), Path(scratch))


def _compile(clang: Path, text: str, flags: Sequence[str], scratch: Path) -> None:
    source = scratch / "probe.cpp"
    source.write_text(text)
    _run([str(clang), "-Oz", *flags, "-c", str(source), "-o", str(scratch / "probe.o")])


def _run(command: Sequence[str], stdout: int = subprocess.DEVNULL) -> None:
    try:
        done = process.run(command, _TIMEOUT_S, stdout=stdout)
    except process.ProcessTimeout as error:
        raise UserError(f"{command[0]} did not compile a probe in {error.timeout_s:.0f} s", "make it again") from None
    if done.returncode != 0:
        raise UserError(
            f"the clang that was built does not compile a probe (status {done.returncode}):\n{done.stderr}\n"
            f"command: {' '.join(command)}",
            "check that the SDK's packages are all of one version, or that the policy is whole",
        )


def _features(clang: Path, problem: str, log: Path, decisions_expected: bool) -> tuple[FeatureSpec, ...]:
    faces = problems.get(problem)
    try:
        content = read_log(log)
    except LogError as error:
        raise UserError(f"{clang} says nothing of its features: {error.problem}", "make it again") from None
    if decisions_expected and content.decisions == 0:
        raise UserError(f"{clang} logged no decision of a probe that has some", "make it again")
    return tuple(spec for spec in content.features if spec.name not in faces.decisions)
