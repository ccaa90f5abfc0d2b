"""Tests of the wheel: what is in it, and its commands in an environment and a folder without anything of the clone.

tests/end_to_end/test_installed.py installs the repository by pipx.
"""

from __future__ import annotations

import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from components.core.projects.recipe import PACKAGED
from pipelines.cli.main import COMMANDS, IMPORTED
from pipelines.spec import COMPILED
from tests.support.schemas import PIPELINES_PYTHON
from tests.support.wheel import Installation, build_wheel, install_wheel, tracked

SETUP_FILES = {"install-apt", "apt.txt", "build.txt", "training.txt", "ray.txt", "pipelines.txt"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(wheel, tmp_path_factory.mktemp("installed"))


def test_wheel_has_every_file_in_one_package(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"mlgo_pipeline/{file}" for file in tracked("components", "pipelines")}
    expected |= {f"mlgo_pipeline/docker/requirements/{name}" for name in SETUP_FILES} | {"mlgo_pipeline/__init__.py"}
    assert packed == expected
    (top_level,) = (name for name in archive.namelist() if name.endswith("/top_level.txt"))
    assert archive.read(top_level).decode().split() == ["mlgo_pipeline"]


def test_unsupported_python_is_refused_without_compiling_a_dependency(wheel: Path) -> None:
    """pip looks at dependencies before requires-python. NumPy 1, without a wheel for 3.13, takes minutes to compile."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    fields = message_from_bytes(archive.read(metadata))
    needs = [Requirement(value) for value in fields.get_all("Requires-Dist", [])]
    base = [need for need in needs if not need.marker or "extra" not in str(need.marker)]

    def needed(version: str) -> set[str]:
        python = {"python_version": version, "python_full_version": f"{version}.0"}
        return {need.name for need in base if not need.marker or need.marker.evaluate(python)}

    assert "3.13" not in SpecifierSet(fields["Requires-Python"])
    assert needed("3.11") - needed("3.13") == {"numpy"} and needed("3.13") - needed("3.14") == set()


def test_commands_run_in_an_empty_folder(installed: Installation) -> None:
    done = installed.mlgo("--version")
    assert done.stdout.startswith("mlgo-pipeline 0.") and "LLVM 19" in done.stdout, done.stderr
    assert "pretrained-thumb" in done.stdout
    names = sorted({"run", *COMMANDS, *IMPORTED})
    assert {"shrink", "setup", "run"} <= {*names}
    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(names, pool.map(lambda name: installed.mlgo(name, "--help"), names), strict=True):
            assert done.returncode == 0 and f"Usage: mlgo {name} " in done.stdout, done.stderr


def test_recipes_are_package_data(installed: Installation) -> None:
    done = installed.mlgo("corpus", "build", "--recipe", "demoo", "--output", "corpus")
    names = re.findall(r"[\w-]+", done.stderr.partition("one of ours: ")[2])
    assert {*names} == {path.stem for path in PACKAGED.glob("*.yaml")}, done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (("pipeline", "compile", "--output", "p.yaml"), "kfp is not installed", "mlgo setup pipelines"),
        (("images", "build"), "images are built from a clone", "run mlgo images build in a clone"),
    ],
)
def test_what_is_missing_is_named(
    arguments: tuple[str, ...], problem: str, remedy: str, installed: Installation
) -> None:
    done = installed.mlgo(*arguments)
    assert done.returncode == 1 and f"error: {problem}" in done.stderr and f"remedy: {remedy}" in done.stderr
    assert not (installed.work / "p.yaml").exists()


def test_pipeline_is_compiled_by_the_code_of_the_wheel(installed: Installation) -> None:
    """kfp's environment has an editable install of the repository, too."""
    written = installed.directory.parent / "p.yaml"
    chosen = str(PIPELINES_PYTHON)
    done = installed.mlgo("pipeline", "compile", "--output", written, MLGO_PIPELINES_PYTHON=chosen)
    assert done.returncode == 0, done.stderr
    assert written.read_bytes() == COMPILED.read_bytes()


BUILD = """\
prog: main.c
	{python} -P -c 'import components' 2>&1 | grep -q "of somebody else"
	{python} -c 'import os; assert "PYTHONPATH" not in os.environ'
	$(CC) -O2 main.c -o prog
"""


def test_shrink_works_and_does_not_change_what_python_programs_of_the_build_import(
    installed: Installation, pretrained_release: Path, tmp_path: Path
) -> None:
    (tmp_path / "main.c").write_text("int main(int count, char **words) { return count + words[0][0]; }\n")
    (tmp_path / "Makefile").write_text(BUILD.format(python=installed.python))
    done = installed.mlgo("shrink", "--release-toolchain", pretrained_release, "--", "make", cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "mlgo-shrink" / "shrink.json").is_file()
