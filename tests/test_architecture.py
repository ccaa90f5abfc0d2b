"""Tests of the project's structure: import rules, packaging, locked dependencies."""

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
CONCEPTS = {
    "problems",
    "compiler",
    "policy",
    "processes",
    "workers",
    "storage",
    "console",
    "formats",
    "projects",
    "launcher",
    "counterfactual",
    "objectives",
    "rayjob",
}
FOLDERS = STEPS | {f"core/{concept}" for concept in CONCEPTS}
KFP = {"component.py", "declare.py"}
"""Names of the files that declare KFP components; only they and three files of pipelines/ import kfp."""
WITHOUT_TENSORFLOW = FOLDERS - {"warmstart", "ppo", "core/policy"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(*places: str) -> list[str]:
    """Return the existing files that git tracks, in `places` or everywhere."""
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if (ROOT / file).is_file()]


def imported(folder: Path) -> set[tuple[Path, str]]:
    """Return (file, absolute module) of every import in `folder`."""
    found: set[tuple[Path, str]] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(path, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((path, str(node.module)))
                found |= {(path, f"{node.module}.{alias.name}") for alias in node.names}
    return found


def test_every_folder_is_step_or_concept() -> None:
    def folders(place: Path) -> set[str]:
        return {path.name for path in place.iterdir() if any(path.rglob("*.py"))}

    assert folders(ROOT / "components") == STEPS | {"core"}
    assert folders(ROOT / "components" / "core") == CONCEPTS


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_no_folder_imports_another_step(folder: str) -> None:
    forbidden = {f"components.{step}" for step in STEPS - {folder}} | {"pipelines"}
    wrong = [
        (str(path.relative_to(ROOT)), module)
        for path, module in imported(ROOT / "components" / folder)
        if any(module == f or module.startswith(f + ".") for f in forbidden)
    ]
    assert wrong == []


def test_folders_without_tensorflow_do_not_import_it() -> None:
    """Import every module of those folders in one fresh process, which also covers their indirect imports."""
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


def test_kfp_is_imported_only_by_declarations() -> None:
    """Code in containers, and code that runs the compiled pipeline, must not need kfp: it conflicts with TensorFlow."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("components", "pipelines")
        for path, module in imported(ROOT / folder)
        if module.partition(".")[0] == "kfp"
    }
    declared = {
        path.relative_to(ROOT).as_posix()
        for folder in ("components", "pipelines")
        for path in (ROOT / folder).rglob("component.py")
    }
    pipelines = {"pipelines/training.py", "pipelines/compile.py", "pipelines/submit/kfp_client.py"}
    assert found == declared | pipelines | {"components/core/launcher/declare.py"}


def test_kfp_declarations_import_neither_tensorflow_nor_a_step() -> None:
    """component.py files are imported in kfp's environment, which does not have the steps' dependencies."""
    for folder in ("components", "pipelines"):
        for path, module in imported(ROOT / folder):
            if path.name in KFP or path.name == "training.py":
                allowed = ("kfp", "components.core.launcher", "collections.abc", "typing", "__future__")
                assert module.startswith(allowed) or ".component" in module, f"{path}: {module}"


def test_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    files = tracked("components", "pipelines")
    for file in [*files, "pyproject.toml", "README.md"]:
        (tmp_path / "source" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / "source" / file)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        ".",
    ]
    subprocess.run(command, cwd=tmp_path / "source", check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == set(files)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("steps", []), ("training", ["training"]), ("test", ["training", "test", "dev"]), ("pipelines", ["pipelines"])],
)
def test_locks_are_complete_with_hashes_and_name_no_host(lock: str, extras: list[str]) -> None:
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


def test_locks_agree() -> None:
    def versions(lock: str) -> dict[str, str]:
        text = (ROOT / "docker" / "requirements" / f"{lock}.txt").read_text()
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))

    training, test, build = versions("training"), versions("test"), versions("build")
    assert build.items() <= training.items() <= test.items()
    assert versions("steps").items() <= training.items()


def test_top_level_has_only_known_names() -> None:
    folders = {"pipelines", "components", "docker", "k8s", "tests", "docs"}
    top = {file.partition("/")[0] for file in tracked()}
    named = folders | {"pyproject.toml", "README.md", "Makefile", "LICENSE"}
    assert {name for name in top if not name.startswith(".")} <= named
