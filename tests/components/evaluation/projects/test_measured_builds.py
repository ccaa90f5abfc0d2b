"""Tests of compare-builds with a measured build in place of a tree, and with the output of `mlgo shrink`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.source_tree import SHRINK_FILE
from components.evaluation.projects.build_trees import compare_trees
from components.evaluation.projects.commands import EXIT_NOT_BETTER
from components.evaluation.projects.measured_builds import BUILD_FILE
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.uri import ObjectUri
from tests.components.evaluation.projects.test_build_trees import build, compare


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("trees")
    return build(directory / "old", "-O3"), build(directory / "new", "-Oz")


def succeed(*arguments: str | Path) -> str:
    done = compare(*arguments)
    assert done.exception is None and done.return_value == 0, done.exception
    return done.output


def rows(output: str) -> list[str]:
    """Return the rows of the tables of functions and binaries, and the sums."""
    return [line for line in output.splitlines() if line.startswith(("│", "linked,"))]


def test_measured_build_replaces_its_tree(trees: tuple[Path, Path], tmp_path: Path) -> None:
    old = shutil.copytree(trees[0], tmp_path / "build", symlinks=True)
    said = succeed(old, "--output", tmp_path / "before")
    assert str(old) in said
    assert {path.name for path in (tmp_path / "before").iterdir()} == {BUILD_FILE, "manifest.json"}
    of_trees = succeed(old, trees[1])
    shutil.rmtree(old)
    of_measurement = succeed(tmp_path / "before", trees[1])
    assert rows(of_measurement) == rows(of_trees) and len(rows(of_trees)) > 6
    assert compare(trees[1], tmp_path / "before", "--min-reduction-percent", "0").return_value == EXIT_NOT_BETTER
    assert "(1):" in succeed(tmp_path / "before", trees[1], "--binary", "bin/*")


def test_comparison_is_a_measurement_of_its_new_build(trees: tuple[Path, Path], tmp_path: Path) -> None:
    new = shutil.copytree(trees[1], tmp_path / "new", symlinks=True)
    shutil.copy(new / "bin/main", new / "bin/other")
    succeed(trees[0], new, "--output", tmp_path / "compared")
    measured = json.loads((tmp_path / "compared" / BUILD_FILE).read_text())
    assert measured["build"] == "new" and set(measured["files"]) == {name for name, _ in find_binaries(new)}
    compared = compare_trees(tmp_path / "compared", new)
    assert len(compared.binaries) == 4
    assert all(binary.stock == binary.policy for binary in compared.binaries)
    # A measurement can be the new build, too, and be replaced by the next one.
    succeed(trees[0], tmp_path / "compared", "--output", tmp_path / "compared")
    assert len(compare_trees(tmp_path / "compared", new).binaries) == 4


def test_measurement_in_a_bucket(trees: tuple[Path, Path], gs_uri: ObjectUri) -> None:
    succeed(trees[0], "--output", f"{gs_uri}/before")
    assert "smaller" in succeed(f"{gs_uri}/before", trees[1])


def shrink_output(tree: Path, into: Path, below: str) -> Path:
    """Publish the files of a build as `mlgo shrink` does; `below` is the build directory in the source tree."""
    with publish(into, "smaller build") as directory:
        shutil.copytree(tree, directory / "files" / below, symlinks=True)
        (directory / SHRINK_FILE).write_text("{}")
    return into


@pytest.mark.parametrize("below", [".", "mlgo-build", "out/Release"])
def test_output_of_shrink_is_compared_with_a_build_directory(
    trees: tuple[Path, Path], tmp_path: Path, below: str
) -> None:
    shrunk = shrink_output(trees[1], tmp_path / "mlgo-shrink", below)
    names = [binary.name for binary in compare_trees(*trees).binaries]
    assert [binary.name for binary in compare_trees(trees[0], shrunk).binaries] == names
    assert [binary.name for binary in compare_trees(shrunk, trees[0]).binaries] == names
    succeed(trees[0], "--output", tmp_path / "before")
    compared = compare_trees(tmp_path / "before", shrunk)
    assert [binary.name for binary in compared.binaries] == names and compared.only_new == ()


def test_output_of_shrink_in_the_source_tree_is_no_part_of_its_build(trees: tuple[Path, Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(trees[0], source / "build", symlinks=True)
    shrunk = shrink_output(trees[1], source / "mlgo-shrink", "build")
    compared = compare_trees(source, shrunk)
    assert len(compared.binaries) == 3 and compared.only_old == compared.only_new == ()


def refused(*arguments: str | Path) -> str:
    done = compare(*arguments)
    assert isinstance(done.exception, UserError), done.output
    return f"{done.exception.problem}; {done.exception.remedy}"


def test_misuse_is_refused(trees: tuple[Path, Path], tmp_path: Path) -> None:
    assert "only build" in refused(trees[0])
    assert "only build" in refused(trees[0], "--output", tmp_path / "a", "--min-reduction-percent", "1")
    (tmp_path / "empty").mkdir()
    assert "empty has" in refused(tmp_path / "empty", "--output", tmp_path / "a")
    assert "is a file" in refused(trees[0], trees[1] / "bin/main")
    assert not (tmp_path / "a").exists()


def test_damaged_and_foreign_measurements_are_refused(trees: tuple[Path, Path], tmp_path: Path) -> None:
    before = tmp_path / "before"
    succeed(trees[0], "--output", before)
    assert str(before) in refused(before / BUILD_FILE, trees[1])
    document = (before / BUILD_FILE).read_text()
    (before / BUILD_FILE).write_text(document[:-40])
    assert "wrong size" in refused(before, trees[1])
    for text, problem in (
        (document.replace('"version":1', '"version":2'), "is of version 2; this program reads 1"),
        ('{"version":1}', "is not the measurement of a build"),
        ("[]", "is not the measurement of a build"),
    ):
        with publish(before, "comparison of binaries") as directory:
            (directory / BUILD_FILE).write_text(text)
        assert problem in refused(before, trees[1])
    with publish(before, "comparison of binaries") as directory:
        (directory / "binaries.json").write_text("{}")
    assert "earlier version" in refused(before, trees[1])


def test_other_programs_manifests_do_not_matter(trees: tuple[Path, Path], tmp_path: Path) -> None:
    tree = shutil.copytree(trees[1], tmp_path / "web", symlinks=True)
    (tree / "manifest.json").write_text('{"manifest_version": 3}')
    assert len(compare_trees(trees[0], tree).binaries) == 3
