"""Tests of `mlgo setup`: real pip and real environments, with small packages and without a network; a fake apt."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.platform.errors import UserError
from pipelines.cli import setup
from pipelines.cli.setup import PARTS
from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]


def write_package(directory: Path, name: str) -> str:
    """Write a wheel of a module that has one line; return its line of a lock."""
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{name}-1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{name}-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for file, text in files.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(text)}\n"
        archive.writestr(f"{name}-1.dist-info/RECORD", f"{record}{name}-1.dist-info/RECORD,,\n")
    return f"{name}==1 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of locks: `kfp` in pipelines.txt, and `tool`, which builds nothing, in build.txt."""
    packages, directory = tmp_path / "packages", tmp_path / "locks"
    packages.mkdir()
    directory.mkdir()
    (directory / "build.txt").write_text(write_package(packages, "tool"))
    (directory / "pipelines.txt").write_text(write_package(packages, "kfp"))
    monkeypatch.setattr(setup, "REQUIREMENTS", directory)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    return directory


def imported(python: Path, name: str) -> str:
    command = [str(python), "-c", f"import {name}; print({name}.NAME)"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def test_kfp_gets_an_environment_of_its_own_inside_of_ours(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "ours"))
    assert "kfp" in PARTS["pipelines"].missing()
    half_made = tmp_path / "ours" / "pipelines" / "half"
    half_made.mkdir(parents=True)
    PARTS["pipelines"].install()
    python = tmp_path / "ours" / "pipelines" / "bin" / "python"
    assert (imported(python, "kfp"), imported(python, "tool")) == ("kfp", "tool") and not half_made.exists()


@contextmanager
def as_another_user() -> Iterator[None]:
    """As root, be nobody for access(2), which asks for the real user; the modes of tmp_path keep others out."""
    is_root = os.geteuid() == 0
    if is_root:
        os.setresuid(65534, -1, -1)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, -1, -1)


@pytest.mark.parametrize("name", ["training", "ray", "pipelines"])
def test_environment_of_another_user_is_refused_before_anything_is_downloaded(
    name: str, locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list has training or ray: an installation would fail with another message."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o555)
    monkeypatch.setattr(sys, "prefix", str(theirs))
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    monkeypatch.setattr(setup.sysconfig, "get_path", lambda _: str(theirs))
    with as_another_user(), pytest.raises(UserError, match=f"you cannot write to {theirs}") as error:
        PARTS[name].install()
    assert f"run the command as {theirs.owner()}" in error.value.remedy
    assert list(theirs.iterdir()) == []


def test_package_with_another_hash_is_refused(locks: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    lock = locks / "pipelines.txt"
    lock.write_text(lock.read_text()[:-5] + "0000\n")
    python = tmp_path / "other" / "bin" / "python"
    with pytest.raises(UserError, match=r"(?is)installing Python packages of pipelines failed.*hash"):
        setup._install_lock("pipelines", python)
    assert imported(python, "kfp") == ""


def test_failed_installation_is_reported_with_what_pip_says(locks: Path, tmp_path: Path) -> None:
    for package in (tmp_path / "packages").iterdir():
        package.unlink()
    with pytest.raises(UserError, match=r"installing build tools failed:\nERROR: .*tool==1") as error:
        setup._install_lock("pipelines", sys.executable)
    assert "PIP_FIND_LINKS" in error.value.remedy


def write_program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where `git` is installed, whose apt-get installs what it is asked for; the file with its packages."""
    installed, programs = tmp_path / "installed", tmp_path / "bin"
    installed.write_text("git installed\n")
    write_program(programs, "dpkg-query", f"cat {installed}")
    write_program(programs, "apt-get", f'for word; do echo "$word installed" >>{installed}; done; test -z "$FAILS"')
    write_program(programs, "id", "echo 0")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return installed


def test_debian_packages_of_the_list_are_installed(debian: Path) -> None:
    before = run_command("pipelines", "setup", env=os.environ, timeout=120).stdout
    assert "missing: " in before and "clang-19" in before.splitlines()[0] and " git" not in before.splitlines()[0]
    done = run_command("pipelines", "setup", "debian", env=os.environ, timeout=120)
    assert done.returncode == 0 and "debian: complete" in done.stdout, done.stderr
    assert "llvm-19-dev installed" in debian.read_text()
    again = run_command("pipelines", "setup", "debian", env=os.environ, timeout=120)
    assert "installing" not in again.stdout


def test_failure_of_apt_ends_the_command(debian: Path) -> None:
    done = run_command("pipelines", "setup", "debian", env=os.environ | {"FAILS": "1"}, timeout=120)
    assert done.returncode == 1 and "the Debian packages cannot be installed" in done.stderr
    assert "complete" not in done.stdout


def test_unknown_part_is_refused_before_anything_is_installed() -> None:
    done = run_command("pipelines", "setup", "debian", "tensorflow", env=os.environ, timeout=120)
    assert done.returncode == 2 and "'tensorflow' is not one of" in done.stderr
