"""Builds this project's wheel, and installs it where other packages have the names of our folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("components", "pipelines", "docker/requirements", "pyproject.toml", "README.md")
THEIRS = "raise ImportError('this module is of somebody else')\n"


def tracked(*paths: str) -> list[str]:
    """Return the existing files that git tracks, in `paths` or everywhere."""
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if (ROOT / file).is_file()]


def build_wheel(directory: Path) -> Path:
    """Build the wheel of the tracked files in `directory`; return its path."""
    source = directory / "source"
    for file in tracked(*SOURCES):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, source / file)
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", str(directory)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=source, check=True, timeout=300)
    (wheel,) = directory.glob("*.whl")
    return wheel


def write_their_packages(directory: Path) -> None:
    """Write packages with the names of ours, which cannot be imported."""
    for name in ("components", "pipelines"):
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(THEIRS)


@dataclass(frozen=True)
class Installation:
    """The wheel in a virtual environment.

    Attributes:
        directory: of the environment.
        work: an empty directory, but for packages with the names of ours; the working directory of commands.
    """

    directory: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def mlgo(self, *arguments: str | Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `mlgo` with no more of this process' environment than a path."""
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(self.work), **more}
        command = [self.directory / "bin" / "mlgo", *arguments]
        return subprocess.run(command, cwd=cwd or self.work, env=variables, capture_output=True, text=True, timeout=600)


def install_wheel(wheel: Path, directory: Path) -> Installation:
    """Install the wheel in a new environment, which gets the packages that it depends on from that of this process."""
    environment, work = directory / "venv", directory / "work"
    work.mkdir(parents=True)
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    write_their_packages(packages)
    write_their_packages(work)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=300)
    return Installation(environment, work)
