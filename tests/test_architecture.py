"""Tests of the project's structure: import rules, packaging, locked dependencies."""

from __future__ import annotations

import ast
import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
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
"""Names of the files that declare KFP components; only they and four files of pipelines/ import kfp."""
KFP_PIPELINES = {"training.py", "sdk.py"}
"""Files of pipelines/ that define a pipeline of these components."""
LAZY_CYCLES = {
    "the package of errors runs steps, whose errors name URIs": {"components.core.console.command"},
    "the confinement is probed by a supervised child": {"components.core.processes.sandbox"},
    "store_of returns the store of a scheme": {"components.core.storage.object_store"},
}
"""Reason -> the files whose imports inside functions close a cycle. At the top of files there is no cycle."""
STEP_IMPORTS = {
    "pipelines.cli.pipeline": {"components.evaluation.report.terminal_report"},  # prints the table of a run
    "pipelines.retrain.check": {"components.evaluation.metrics_types"},
    # Checks that evaluations are of the run's problem and policy.
    "pipelines.retrain.artifacts": {
        "components.evaluation.measurements",
        "components.evaluation.metrics_types",
        "components.evaluation.report.terminal_report",
    },
    # Compares the measurements of two policies, and reads verdicts.
    "pipelines.retrain.promote": {
        "components.evaluation.measurements",
        "components.evaluation.metrics_types",
        "components.evaluation.report.terminal_report",
    },
    "pipelines.retrain.registry.entry": {"components.evaluation.report.model_card"},  # registers the card's text
    # The values of options, which a run checks before its first step.
    "pipelines.validation": {
        "components.evaluation.config",
        "components.ppo.config",
        "components.toolchain.config",
        "components.toolchain.option_types",
    },
}
"""File of pipelines/ -> what it imports of steps, other than declarations."""
WITHOUT_TENSORFLOW = FOLDERS - {"warmstart", "ppo", "core/policy"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(*places: str) -> list[str]:
    """Return the existing files that git tracks, in `places` or everywhere."""
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if (ROOT / file).is_file()]


def imported(folder: Path) -> set[tuple[Path, str]]:
    """Return (file, absolute module or imported name) of every import in `folder`."""
    found: set[tuple[Path, str]] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(path, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((path, str(node.module)))
                found |= {(path, f"{node.module}.{alias.name}") for alias in node.names}
    return found


def modules() -> dict[str, Path]:
    """Return module name -> file, of components/ and pipelines/."""
    files = [path for folder in ("components", "pipelines") for path in (ROOT / folder).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def module_imports(lazy: bool) -> dict[str, set[str]]:
    """Return module -> the project's modules that it imports, including those under TYPE_CHECKING.

    Args:
        lazy: include imports inside functions.
    """
    known = modules()

    def nodes(parent: ast.AST) -> Iterator[ast.AST]:
        for node in ast.iter_child_nodes(parent):
            yield node
            if lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from nodes(node)

    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        found = set()
        for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {module if module in known else str(node.module) for module in full}
        graph[name] = (found & known.keys()) - {name}
    return graph


def test_files_do_not_import_each_other_in_cycles() -> None:
    graphlib.TopologicalSorter(module_imports(lazy=False)).prepare()  # CycleError names the files


def test_imports_inside_functions_close_only_known_cycles() -> None:
    top, graph = module_imports(lazy=False), module_imports(lazy=True)
    known = set.union(*LAZY_CYCLES.values())
    graphlib.TopologicalSorter({name: top[name] if name in known else graph[name] for name in graph}).prepare()
    for name in known:
        with pytest.raises(graphlib.CycleError):
            graphlib.TopologicalSorter({**top, name: graph[name]}).prepare()


def test_pipelines_imports_only_declarations_core_and_what_is_listed() -> None:
    found = {
        name: {module for module in imports if re.match(r"components\.(?!core\b)", module)}
        for name, imports in module_imports(lazy=True).items()
        if name.startswith("pipelines.")
    }
    of_steps = {name: {m for m in imports if not m.endswith(".component")} for name, imports in found.items()}
    assert {name: imports for name, imports in of_steps.items() if imports} == STEP_IMPORTS


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
        if path.name
        not in ("__init__.py", "__main__.py", *(KFP_PIPELINES if path.parent == ROOT / "pipelines" else ()), *KFP)
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
    pipelines = {"pipelines/compile.py", "pipelines/submit/kfp_client.py"}
    pipelines |= {f"pipelines/{name}" for name in KFP_PIPELINES}
    assert found == declared | pipelines | {"components/core/launcher/declare.py"}


def test_kfp_declarations_import_neither_tensorflow_nor_a_step() -> None:
    """component.py files are imported in kfp's environment, which does not have the steps' dependencies."""
    for folder in ("components", "pipelines"):
        for path, module in imported(ROOT / folder):
            if path.name in KFP or (path.name in KFP_PIPELINES and path.parent == ROOT / "pipelines"):
                allowed = (
                    "kfp",
                    "components.core.launcher",
                    "pipelines.training",
                    "collections.abc",
                    "typing",
                    "__future__",
                )
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
