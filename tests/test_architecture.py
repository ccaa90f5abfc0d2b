"""The rules of the house that no single module can keep: who imports whom, what is packaged, what is locked."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEPS = {"toolchain", "corpus", "trace", "vocab", "warmstart", "ppo", "evaluation", "tune"}
CONCEPTS = {"problems", "compiler", "policy", "workers", "storage", "console", "formats", "projects", "launcher",
            "counterfactual"}
KFP = {"component.py", "declare.py"}
"""Names of the files that declare to KFP what runs; they alone, and two of pipelines/, import it."""
WITHOUT_TENSORFLOW = (STEPS | CONCEPTS) - {"warmstart", "ppo", "policy"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(*places: str) -> list[str]:
    """The files that git knows, below `places` or everywhere, as far as they are still there."""
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if (ROOT / file).is_file()]


def imported(folder: Path) -> set[tuple[Path, str]]:
    """(file, absolute module) for every import below `folder`."""
    found: set[tuple[Path, str]] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(path, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((path, str(node.module)))
                found |= {(path, f"{node.module}.{alias.name}") for alias in node.names}
    return found


def test_every_folder_is_a_step_or_a_concept() -> None:
    folders = {path.name for path in (ROOT / "components").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == STEPS | CONCEPTS


@pytest.mark.parametrize("folder", sorted(STEPS | CONCEPTS))
def test_no_folder_imports_a_step_but_itself(folder: str) -> None:
    forbidden = {f"components.{step}" for step in STEPS - {folder}} | {"pipelines"}
    wrong = [
        (str(path.relative_to(ROOT)), module)
        for path, module in imported(ROOT / "components" / folder)
        if any(module == f or module.startswith(f + ".") for f in forbidden)
    ]
    assert wrong == []


def test_what_needs_no_tensorflow_does_not_import_it() -> None:
    """In one fresh process, every module of those folders: whatever they import on the way counts too."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in [ROOT / "pipelines", *(ROOT / "components" / name for name in WITHOUT_TENSORFLOW)]
        for path in sorted(folder.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py", "training.py" if folder.name == "pipelines" else "", *KFP)
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'tensorflow' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_kfp_is_imported_where_pipelines_are_declared_only() -> None:
    """What runs in a container, or runs the compiled pipeline, does without: kfp and TensorFlow cannot be installed
    together."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("components", "pipelines")
        for path, module in imported(ROOT / folder)
        if module.partition(".")[0] == "kfp"
    }
    declared = {path.relative_to(ROOT).as_posix() for path in (ROOT / "components").glob("*/component.py")}
    assert found == declared | {"components/launcher/declare.py", "pipelines/training.py", "pipelines/compile.py"} | {
        "pipelines/submit.py"
    }


def test_nothing_that_is_declared_to_kfp_imports_tensorflow_or_a_step() -> None:
    """component.py files are imported in kfp's environment, which has none of what the steps need."""
    for folder in ("components", "pipelines"):
        for path, module in imported(ROOT / folder):
            if path.name in KFP or path.name == "training.py":
                allowed = ("kfp", "components.launcher", "collections.abc", "typing", "__future__")
                assert module.startswith(allowed) or ".component" in module, f"{path}: {module}"


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    files = tracked("components", "pipelines")
    for file in [*files, "pyproject.toml", "README.md"]:
        (tmp_path / "source" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / "source" / file)
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ".",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path / "source", check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == set(files)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("steps", []), ("training", ["training"]), ("test", ["training", "test", "dev"]), ("pipelines", ["pipelines"])],
)
def test_the_locks_have_everything_with_hashes_and_name_no_host(lock: str, extras: list[str]) -> None:
    text = (ROOT / "docker" / "requirements" / f"{lock}.txt").read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    names = set()
    for entry in entries:
        match = re.fullmatch(r"([a-z0-9-]+)==\S+((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", entry)
        assert match, entry.splitlines()[0]
        names.add(match[1])
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *(r for extra in extras for r in project["optional-dependencies"][extra])]
    assert {re.split(r"[<>=~ ;\[]", requirement)[0].lower() for requirement in wanted} <= names


def test_the_locks_agree() -> None:
    def versions(lock: str) -> dict[str, str]:
        text = (ROOT / "docker" / "requirements" / f"{lock}.txt").read_text()
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))

    training, test, build = versions("training"), versions("test"), versions("build")
    assert build.items() <= training.items() <= test.items()
    assert versions("steps").items() <= training.items()


def test_the_top_level_holds_what_the_architecture_names() -> None:
    folders = {"pipelines", "components", "docker", "k8s", "tests", "docs"}
    top = {file.partition("/")[0] for file in tracked()}
    named = folders | {"pyproject.toml", "README.md", "Makefile", "LICENSE"}
    assert {name for name in top if not name.startswith(".")} <= named
