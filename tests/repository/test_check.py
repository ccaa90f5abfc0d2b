"""Tests of the hooks of .pre-commit-config.yaml, which `make lint` runs, and of `make check`, in a small repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = "def double(number: int) -> int:\n    return 2 * number\n"
TEST = "import pytest\n\n\n@pytest.mark.unit\ndef test_{name}() -> None:\n    assert {value}\n"


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with our settings, a module of two, its tests, and nothing that the tools object to."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for name in (
        ".pre-commit-config.yaml",
        ".hadolint.yaml",
        ".clang-format",
        ".gitignore",
        ".ci/check",
        "pyproject.toml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("components", "components/step"):
        write(tmp_path / folder / "__init__.py", "")  # before packages of these names elsewhere on the path
    write(tmp_path / "components" / "step" / "number.py", MODULE)
    write(tmp_path / "components" / "step" / "other.py", MODULE)
    write(tmp_path / "pipelines" / "empty.py", "")
    write(tmp_path / "tests" / "repository" / "test_architecture.py", TEST.format(name="structure", value="1 == 1"))
    write(tmp_path / "tests" / "components" / "step" / "test_number.py", TEST.format(name="number", value="1 == 1"))
    write(tmp_path / "tests" / "components" / "step" / "test_other.py", TEST.format(name="other", value="1 == 1"))
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a")
    return tmp_path


def run(repository: Path, *command: str, skip: str = "") -> tuple[int, str]:
    """Return the exit status and the output of a command in the repository. skip: hooks to leave out."""
    variables = {**os.environ, "SKIP": skip}
    done = subprocess.run(command, cwd=repository, env=variables, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


BAD = {
    "ruff": ("components/bad.py", "import os\n", "F401"),
    "ruff-format": ("components/bad.py", "numbers = [1,2]\n", "would be reformatted"),
    "clang-format": ("components/bad.cpp", "int  main() {}\n", "code should be clang-formatted"),
    "shellcheck": ("components/bad", "#!/bin/bash\necho $1\n", "SC2086"),
    "hadolint": ("docker/Dockerfile", "FROM debian\n", "DL3006"),
    "mypy": ("components/bad.py", 'number: int = "a"\n', "Incompatible types"),
}


@pytest.mark.parametrize("hook", BAD)
def test_hook_rejects(hook: str, repository: Path) -> None:
    name, text, message = BAD[hook]
    write(repository / name, text)
    (repository / name).chmod(0o755)
    status, output = run(repository, ".venv/bin/pre-commit", "run", hook, "--files", name)
    assert status == 1 and message in output, output


def test_every_hook_has_an_example(repository: Path) -> None:
    """The contracts of import-linter name this project's folders: test_architecture.py checks them."""
    status, output = run(repository, ".venv/bin/pre-commit", "run", "--all-files", "--verbose", skip="import-linter")
    assert status == 0, output
    assert {line.removeprefix("- hook id: ") for line in output.splitlines() if "hook id" in line} == {
        *BAD,
        "import-linter",
    }


def test_check_without_changes(repository: Path) -> None:
    assert run(repository, ".ci/check", skip="mypy,import-linter") == (0, "nothing differs from main\n")


@pytest.mark.parametrize("committed", [True, False])
def test_check_runs_the_tests_of_changed_files(committed: bool, repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "work")
    write(repository / "components" / "step" / "number.py", MODULE + "\n\nTWO = double(1)\n")
    if committed:
        git(repository, "commit", "-q", "-a", "-m", "b")
    status, output = run(repository, ".ci/check", skip="mypy,import-linter")
    assert status == 0 and "2 passed" in output, output
    # Another size than before, or Python takes the bytecode of a file written in the same second.
    write(
        repository / "tests" / "components" / "step" / "test_number.py", TEST.format(name="number", value="1 > 1 + 1")
    )
    status, output = run(repository, ".ci/check", skip="mypy,import-linter")
    assert status == 1 and "test_number" in output and "1 failed, 1 passed" in output, output


def test_check_of_a_file_without_tests_runs_those_that_import_it(repository: Path) -> None:
    write(repository / "components" / "step" / "new.py", MODULE)
    importer = "from components.step.new import double\n" + TEST.format(name="double", value="double(1) == 2")
    write(repository / "tests" / "components" / "step" / "test_other.py", importer)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "b")
    git(repository, "checkout", "-q", "-b", "work")
    write(repository / "components" / "step" / "new.py", MODULE.replace("2 * number", "number * 2"))
    status, output = run(repository, ".ci/check", skip="mypy,import-linter")
    assert status == 0 and "2 passed" in output, output


def test_check_stops_at_bad_style(repository: Path) -> None:
    write(repository / "components" / "step" / "new.py", "import os\n")
    status, output = run(repository, ".ci/check", skip="mypy,import-linter")
    assert status == 1 and "F401" in output and "passed" not in output, output
