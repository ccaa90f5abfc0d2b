"""Every command in an environment that lacks what programs take for granted: one clear message, and no half of a file.

The environments are those of cron jobs, containers with limits, shells in a directory that is gone, and broken disks.
They are made by a shell, as for users: no Python is replaced.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import click
import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.platform.launcher.registry import STEPS
from components.platform.storage import publish
from pipelines.cli.main import IMPORTED, cli

ROOT = Path(__file__).parents[2]
BAD = "gs://b/x"
"""A place that no bucket can have, so that a command ends before it imports TensorFlow."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "corpus": ("components.corpus", "import", "--input", "nowhere", "--output", "out"),
    "toolchain": ("components.toolchain", "--mode", "release", "--policy", "nowhere", "--output", "out"),
    "trace": ("components.trace", "--corpus", "nowhere", "--toolchain", "nowhere", "--output", "out"),
    "vocab": ("components.vocab", "--trace", "nowhere", "--output", "out"),
    "warmstart": ("components.warmstart", "--trace", BAD, "--vocab", "v", "--toolchain", "t", "--output", "out"),
    "ppo": (
        "components.ppo",
        "--corpus",
        BAD,
        "--toolchain",
        "t",
        "--trace",
        "t",
        "--warmstart",
        "w",
        "--output",
        "out",
    ),
    "evaluation": ("components.evaluation", "show", "--metrics", "nowhere"),
    "tune": ("components.tune", "--corpus", BAD, "--toolchain", "t", "--policy", "p", "--output", "out"),
    "policy": ("components.policy", "compare", "--policy", BAD, "--trace", "t"),
    "launcher": ("components.platform.launcher", "vocab", "--trace", "nowhere", "--output", "out"),
    "run": ("pipelines", "run", "--corpus", "nowhere", "--output", "out"),
    "pipeline": ("pipelines", "pipeline", "run", "--param", "corpus=nowhere", "--output", "out"),
    "retrain": ("pipelines", "retrain", "show", "--state", BAD),
}


@dataclass(frozen=True)
class Environment:
    """A way to start a command.

    Attributes:
        shell: what runs it: a shell script whose arguments are the command.
        named: what the message contains; "" for whatever the command says.
        variables: of the environment.
    """

    shell: str
    named: str = ""
    variables: dict[str, str] = field(default_factory=dict)


ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
GONE = 'mkdir gone && cd gone && rmdir "$PWD" && exec "$@"'
ENVIRONMENTS = {
    "stdout closed": Environment('exec "$@" >&-', "standard output is closed"),
    "stderr closed": Environment('exec "$@" 2>&-', "standard error is closed"),
    "stdin closed": Environment('exec "$@" <&-'),
    "all closed": Environment('exec "$@" <&- >&- 2>&-'),
    "directory gone": Environment(GONE, "the working directory does not exist"),
    "argument not UTF-8": Environment('exec "$@" --output "$(printf "o\\377")"', "is not valid UTF-8"),
    "directory not UTF-8": Environment('mkdir "$(printf "d\\377")"; cd d*; exec "$@"', "is not valid UTF-8"),
    "argument not ASCII": Environment('exec "$@" --output é', "encoding ascii", ASCII),
    "ASCII": Environment('exec "$@"', variables=ASCII),
}


def start(environment: Environment, command: tuple[str, ...], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of this project in an environment, in a new directory."""
    directory.mkdir()
    return subprocess.run(
        ["/bin/sh", "-c", environment.shell, "sh", sys.executable, "-P", "-m", *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment.variables},
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=300,
    )


def left(directory: Path) -> list[str]:
    """Return what a command has left in its directory."""
    return [path.name for path in directory.rglob("*") if path.is_file()]


# One function makes the checks for all commands: a third of the pairs has all commands and all environments.
PAIRS = [pair for number, pair in enumerate(itertools.product(ENVIRONMENTS, COMMANDS)) if number % 3 == 0]


def test_pairs_have_every_command_and_environment() -> None:
    assert {environment for environment, _ in PAIRS} == set(ENVIRONMENTS)
    assert {command for _, command in PAIRS} == set(COMMANDS)


@pytest.mark.parametrize(("environment", "command"), PAIRS)
def test_command_ends_with_one_message(environment: str, command: str, tmp_path: Path) -> None:
    settings = ENVIRONMENTS[environment]
    done = start(settings, COMMANDS[command], tmp_path / "work")
    shown = done.stdout + done.stderr
    assert done.returncode in (1, 2), shown
    assert "Traceback" not in shown
    if environment != "all closed":
        assert shown.count("error: ") + shown.count("Error: ") == 1, shown
        assert settings.named in shown
    assert left(tmp_path / "work") == []


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the module and the words of each command below a group."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


def all_commands() -> list[tuple[str, ...]]:
    """Return the module and the words of every command of `mlgo`."""
    commands = list(leaves(cli, ("pipelines",)))
    commands += [path for name, command in IMPORTED.items() for path in leaves(command.load(), ("pipelines", name))]
    for module in (step.module for step in STEPS.values() if step.help):
        commands += leaves(import_module(f"{module}.__main__").main, (module,))
    return commands


@pytest.mark.parametrize(("number", "command"), list(enumerate(all_commands())))
def test_every_command_checks_its_environment(number: int, command: tuple[str, ...], tmp_path: Path) -> None:
    """Each in one of the environments. It would end at its options, but not before it looks at these."""
    named = {name: settings for name, settings in ENVIRONMENTS.items() if name != "all closed"}
    settings = list(named.values())[number % len(named)]
    done = start(settings, (*command, "--no-such-option"), tmp_path / "work")
    shown = done.stdout + done.stderr
    assert done.returncode in (1, 2) and "Traceback" not in shown, shown
    assert shown.count("error: ") + shown.count("Error: ") == 1 and settings.named in shown, shown
    assert left(tmp_path / "work") == []


@pytest.mark.parametrize("columns", ["", "x", "-1", "0", "1", "100000"])
def test_help_is_shown_on_any_terminal(columns: str, tmp_path: Path) -> None:
    for number, command in enumerate((("pipelines", "--help"), ("pipelines", "run", "--help"))):
        variables = {"COLUMNS": columns, "TERM": "", "LANG": "xx_YY.nonsense"}
        done = start(Environment('exec "$@"', variables=variables), command, tmp_path / str(number))
        assert done.returncode == 0 and "Usage: " in done.stdout and not done.stderr, done.stderr


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 40 features, whose vocab has 40 files of some kilobytes."""
    directory = tmp_path_factory.mktemp("inputs") / "trace"
    random = np.random.default_rng(0)
    features = [FeatureSpec(f"f{number}", "int64") for number in range(40)]
    with publish(directory, "trace") as partial:
        writer = TraceWriter(partial, "inlining", "inlining_decision", features)
        columns = {spec.name: random.integers(-(10**9), 10**9, 3000) for spec in features}
        zeros = np.zeros(3000, np.int32)
        writer.add(ModuleTrace("a/b", 1, 0.0, [""], zeros, zeros, ["f"], zeros, zeros, columns, zeros))
        writer.close("", "")
    return directory


LIMITED = {
    "disk full for messages": Environment('exec "$@" >/dev/full', "standard output"),
    "small files": Environment('ulimit -f 8; exec "$@"', "File too large"),
    "few files": Environment('ulimit -n 5; exec "$@"', "too many open files"),
    "little memory": Environment('ulimit -v 250000; exec "$@"', "out of memory"),
}


@pytest.mark.parametrize("environment", LIMITED)
def test_limits_are_reported(environment: str, trace: Path, tmp_path: Path) -> None:
    settings = LIMITED[environment]
    done = start(settings, ("components.vocab", "--trace", str(trace), "--output", "out"), tmp_path / "work")
    shown = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in shown, shown
    assert "error: " in shown and settings.named in shown and "remedy: " in shown
    if environment != "disk full for messages":  # the vocab is complete when this is said
        assert left(tmp_path / "work") == []


@pytest.mark.parametrize("limit_kb", [400_000, 450_000, 500_000, 600_000, 800_000])
def test_arrow_does_not_abort_in_a_small_address_space(limit_kb: int, trace: Path, tmp_path: Path) -> None:
    """Arrow ends the process if it cannot start one of its threads, which reserve 64 MB each."""
    settings = Environment(f'ulimit -v {limit_kb}; ulimit -c 0; exec "$@"')
    done = start(settings, ("components.vocab", "--trace", str(trace), "--output", "out"), tmp_path / "work")
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or ("error: " in done.stderr and "ulimit -v" in done.stderr)


def test_a_file_that_cannot_be_read_is_named(trace: Path, tmp_path: Path) -> None:
    """Reading /proc/self/mem at its beginning is an error of input and output, as on a broken disk."""
    broken = tmp_path / "trace"
    shutil.copytree(trace, broken)
    description = broken / "manifest.json"
    description.unlink()
    description.symlink_to("/proc/self/mem")
    command = ("components.vocab", "--trace", str(broken), "--output", "out")
    done = start(Environment('exec "$@"'), command, tmp_path / "work")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert str(description) in done.stderr and "Input/output error" in done.stderr


def test_a_finished_run_is_not_ended_by_the_encoding(trace: Path, tmp_path: Path) -> None:
    named = trace.with_name("entraînement")
    if not named.exists():
        named.symlink_to(trace)
    ascii_output = Environment('exec "$@" > shown', variables={"PYTHONIOENCODING": "ascii"})
    command = ("components.vocab", "--trace", str(named), "--output", str(tmp_path / "é"))
    done = start(ascii_output, command, tmp_path / "work")
    assert done.returncode == 0 and (tmp_path / "é" / "manifest.json").exists(), done.stderr
    assert "\\xe9: 1000 quantiles" in (tmp_path / "work" / "shown").read_text()
