"""`mlgo setup`: installs the Debian and Python packages that commands need beyond the package itself.

The lists are those of the images, docker/requirements: package data of the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail, run_logged
from components.platform.processes.output import capture
from components.platform.processes.python_module import ROOT

REQUIREMENTS = ROOT / "docker" / "requirements"


@dataclass(frozen=True)
class Part:
    """Packages that `mlgo setup` installs by one name.

    Attributes:
        description: kind and size of the packages.
        used_by: the commands that need them.
        missing: returns which are missing; "" if they are complete.
        install: installs them.
    """

    description: str
    used_by: str
    missing: Callable[[], str]
    install: Callable[[], None]


def pipelines_environments() -> tuple[Path, Path]:
    """Return the directories of the environment that has kfp: of `make setup-pipelines`, and of `mlgo setup pipelines`.

    The second is inside of this process' environment, so that pipx removes both together.
    """
    here = Path(sys.prefix)
    return here.with_name(f"{here.name}-pipelines"), here / "pipelines"


def _install_apt(*options: str) -> list[str]:
    return ["bash", str(REQUIREMENTS / "install-apt"), *options, str(REQUIREMENTS / "apt.txt")]


def _missing_debian() -> str:
    done = capture(_install_apt("--list"))
    if done.returncode != 0:
        return done.stderr.partition("\n")[0].removeprefix("error: ") or "install-apt failed"
    return f"missing: {done.stdout.strip()}" if done.stdout.strip() else ""


def _install_debian() -> None:
    # Not by run_logged: sudo asks for a password on this process' terminal.
    if subprocess.run(_install_apt()).returncode != 0:
        raise UserError("the Debian packages cannot be installed", "see the message above")


def _missing_module(name: str) -> Callable[[], str]:
    return lambda: "" if find_spec(name) else f"missing: the Python package {name}"


def _install_here(lock: str, module: str) -> Callable[[], None]:
    def install() -> None:
        if not find_spec(module):
            _require_writable(Path(sysconfig.get_path("purelib")))
        _install_lock(lock, sys.executable)

    return install


def _require_writable(directory: Path) -> None:
    """Refuse to install into a directory that pip would find read-only only after it has downloaded everything.

    Raises:
        UserError: the directory is another user's, or on a read-only disk.
    """
    if os.access(directory, os.W_OK):
        return
    try:
        owner = directory.owner()
    except (KeyError, OSError):  # an account of another machine, for example in a container
        owner = "its owner"
    raise UserError(
        f"you cannot write to {directory}, where the packages belong",
        f"run the command as {owner}, or install mlgo for yourself with pipx",
    )


def _missing_pipelines() -> str:
    found = any(next(path.glob("lib/python*/site-packages/kfp"), None) for path in pipelines_environments())
    return "" if found else "missing: an environment with kfp"


def _install_pipelines() -> None:
    if not _missing_pipelines():
        return
    directory = pipelines_environments()[1]
    _require_writable(directory.parent)
    # --clear: an earlier attempt may have been killed. pip is that of this environment; Debian's venv may have none.
    _run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(directory)], f"making {directory}")
    _install_lock("pipelines", directory / "bin" / "python")


def _install_lock(lock: str, python: str | Path) -> None:
    """Install the packages of docker/requirements/<lock>.txt into the environment of an interpreter.

    Raises:
        UserError: this environment has no pip, or pip fails.
    """
    if find_spec("pip") is None:
        raise UserError(f"the environment of {sys.executable} has no pip", f"{sys.executable} -m ensurepip")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", str(python), "install"]
    pip += ["--no-warn-script-location", "--require-hashes", "--progress-bar", "off"]
    # The build tools of source distributions first, so that pip does not fetch unlocked ones.
    _run([*pip, "-r", str(REQUIREMENTS / "build.txt")], "installing build tools")
    requirements = REQUIREMENTS / f"{lock}.txt"
    count = sum("==" in line for line in requirements.read_text().splitlines())
    _run([*pip, "--no-build-isolation", "-r", str(requirements)], f"installing Python packages of {lock}", count)


def _run(command: Sequence[str], task: str, packages: int | None = None) -> None:
    """Run a command of Python's package tools, with the packages that it has looked at as progress.

    Raises:
        UserError: it fails; the message has pip's errors, or the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-setup-") as scratch:
        log = Path(scratch, "log")
        with Progress(task, total=packages) as progress:

            def count(line: str) -> None:
                if line.startswith(("Collecting ", "Requirement already satisfied: ")):
                    progress.advance()

            status = run_logged([*command], Path(scratch), log, on_line=count)
        if status != 0:
            remedy = "see pip's message; without internet, set PIP_INDEX_URL or PIP_FIND_LINKS"
            errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR: ")]
            reason = "\n".join(errors) or log_tail(log)
            raise UserError(f"{task} failed:\n{reason}", remedy)


PARTS = {
    "debian": Part(
        "Debian packages (1.6 GB)",
        "mlgo shrink, toolchain, corpus, evaluation, tune, run",
        _missing_debian,
        _install_debian,
    ),
    "training": Part(
        "TensorFlow and others (1.5 GB)",
        "mlgo run, retrain, trace, vocab, warmstart, ppo, policy, cluster",
        _missing_module("tensorflow"),
        _install_here("training", "tensorflow"),
    ),
    "ray": Part(
        "Ray, includes training (1.8 GB)", "--workers ray", _missing_module("ray"), _install_here("ray", "ray")
    ),
    "pipelines": Part(
        "kfp in an environment of its own (0.3 GB)", "mlgo pipeline compile", _missing_pipelines, _install_pipelines
    ),
}


@click.command("setup")
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
def setup_command(parts: tuple[str, ...]) -> None:
    """Install what commands need beyond mlgo itself; without arguments, show what is missing.

    \b
    debian     Debian packages: LLVM's libraries, clang, lld, build tools. As root or by sudo.
    training   TensorFlow and what else trainings need, into the environment that mlgo runs in.
    ray        Ray, for --workers ray; includes training.
    pipelines  kfp, which conflicts with TensorFlow, into an environment of its own.

    Python packages have the versions and hashes that the container images have. An environment that pipx made is
    removed with all of them by pipx uninstall mlgo-pipeline.

    \b
    Examples:
      mlgo setup
      mlgo setup debian             # for mlgo shrink, toolchain, corpus, evaluation, tune
      mlgo setup debian training    # for mlgo run, too
    """
    if not parts:
        _show()
    for name in dict.fromkeys(parts):
        PARTS[name].install()
        if missing := PARTS[name].missing():
            raise UserError(f"{name} is not complete: {missing}", "see the messages above")
        say(f"{name}: complete")


def _show() -> None:
    width = max(map(len, PARTS))
    for name, part in PARTS.items():
        say(f"{name:{width}}  {part.missing() or 'complete'}")
        say(f"{'':{width}}  {part.description}; for {part.used_by}")
