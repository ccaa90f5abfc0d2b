"""Tests of the project's structure: import rules, packaging, locked dependencies."""

from __future__ import annotations

import graphlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import grimp
import pytest

from components.platform.launcher.registry import STEPS

ROOT = Path(__file__).parents[2]
STEP_FOLDERS = sorted(name for name, step in STEPS.items() if step.module == f"components.{name}")
WITH_TENSORFLOW = ("core/policy", "policy", "ppo", "warmstart")
MOST_FILES = 18
"""Python files of a folder: more want subfolders that say what belongs together."""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(*folders: str) -> list[str]:
    """Return the existing files that git tracks, in `places` or everywhere."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if (ROOT / file).is_file()]


def test_import_contracts_hold() -> None:
    """The contracts are in pyproject.toml."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_modules_do_not_import_each_other_in_cycles() -> None:
    """Imports inside functions and under TYPE_CHECKING count, too."""
    graph = grimp.build_graph("components", "pipelines", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the modules


APART = {
    "pipelines.vertex": {"pipelines.cli.server_options", "pipelines.retrain.registry"},
    "pipelines.retrain.registry": {
        *(f"pipelines.cli.{command}" for command in ("register", "retrain")),
        "pipelines.parameters.rules",
        "pipelines.vertex.models",
    },
    "components.policy.llvm_build": {"components.policy.__main__"},
    "components.policy.tf_aot": {"components.policy.__main__"},
    "components.toolchain.ir2vec": {"components.toolchain.make"},
}
"""Experimental package -> the only modules that may import it. README.md says when they last ran."""
CPP_APART = {"tflite": {"policy/PolicyModel.cpp"}, "ir2vec": {"inlining/features/FunctionProperties.h"}}
"""The same for folders of C++ and `#include`."""


@pytest.mark.parametrize("package", APART)
def test_experimental_package_is_imported_by_its_entries_only(package: str) -> None:
    graph = grimp.build_graph("components", "pipelines", cache_dir=None)
    own = {package, *graph.find_descendants(package)}
    importers = set().union(*(graph.find_modules_that_directly_import(module) for module in own)) - own
    assert importers == APART[package]


@pytest.mark.parametrize("folder", CPP_APART)
def test_experimental_sources_are_included_by_their_entries_only(folder: str) -> None:
    root = ROOT / "components" / "toolchain" / "cpp"
    sources = [path for path in root.rglob("*") if path.suffix in (".cpp", ".h") and path.parent.name != folder]
    users = {str(path.relative_to(root)) for path in sources if f'#include "{folder}/' in path.read_text()}
    assert users == CPP_APART[folder]


def test_step_folders_are_those_of_the_contracts() -> None:
    folders = {path.name for path in (ROOT / "components").iterdir() if any(path.rglob("*.py"))}
    assert folders == {*STEP_FOLDERS, "core", "platform"}
    contracts = {contract["name"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
    forbidden = next(c["forbidden_modules"] for c in contracts.values() if c.get("source_modules") == ["pipelines"])
    assert forbidden == [f"components.{step}" for step in STEP_FOLDERS]


def test_folders_without_tensorflow_do_not_import_it() -> None:
    """Import every module of those folders in one fresh process, which also covers indirect imports."""
    folders = [ROOT / "pipelines", *(ROOT / "components").iterdir(), *(ROOT / "components" / "core").iterdir()]
    excluded = {ROOT / "components" / name for name in (*WITH_TENSORFLOW, "core")}
    paths = {path for folder in folders if folder not in excluded for path in folder.rglob("*.py")}
    needs_kfp = {
        ROOT / "pipelines" / name for name in ("training.py", "tasks.py", "sdk.py", "shrink.py", "component_files.py")
    }
    needs_tensorflow = {ROOT / "components" / "trace" / "import_tfrecord.py"}
    names = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in paths - needs_kfp - needs_tensorflow
        if path.name not in ("__init__.py", "__main__.py", "component.py", "declare.py")
    )
    assert len(names) > 250
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'tensorflow' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_folder_has_too_many_files() -> None:
    files = Counter(
        Path(file).parent.as_posix() for file in tracked("components", "pipelines", "tests") if file.endswith(".py")
    )
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


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
    requirements = [*project["dependencies"], *(r for extra in extras for r in project["optional-dependencies"][extra])]
    assert {re.split(r"[<>=~ ;\[]", requirement)[0].lower() for requirement in requirements} <= names


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
