"""Values of modules of any corpus as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from components.core.formats.corpus import Corpus
from components.evaluation.__main__ import main
from components.platform.errors import UserError

pytestmark = pytest.mark.toolchain


def modules(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["modules", *map(str, arguments)], catch_exceptions=False)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_corpus_without_a_split_is_measured(
    tiny_corpus: Corpus, training_toolchain: Path, never: Path, tmp_path: Path
) -> None:
    output = tmp_path / "new" / "sizes.csv"
    inputs = ("--corpus", tiny_corpus.directory, "--toolchain", training_toolchain, "--policy", never)
    done = modules(*inputs, "--output", output)
    assert done.exit_code == 0 and "3 modules" in done.output
    measured = rows(output)
    assert {row["module_name"] for row in measured} == {module.name for module in tiny_corpus}
    assert {row["identifier"] for row in measured} == {"default"}
    sizes = {row["module_name"]: (int(row["heuristic_bytes"]), int(row["policy_bytes"])) for row in measured}
    assert sizes["app/leaf.c.o"][0] == sizes["app/leaf.c.o"][1] > 0
    assert sizes["lib/strings.cpp.o"][0] != sizes["lib/strings.cpp.o"][1]


def test_part_of_a_split_and_release_clang(
    corpus_directory: Path, training_toolchain: Path, release: Path, never: Path, tmp_path: Path
) -> None:
    inputs = ("--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", never)
    for part, count in (("heldout", 3), ("train", 1), ("all", 4)):
        done = modules(*inputs, "--part", part, "--output", tmp_path / f"{part}.csv")
        assert done.exit_code == 0 and len(rows(tmp_path / f"{part}.csv")) == count
    done = modules(*inputs, "--release-toolchain", release, "--output", tmp_path / "release.csv")
    assert rows(tmp_path / "release.csv") == rows(tmp_path / "all.csv")
    with pytest.raises(UserError, match="'validation'"):
        modules(*inputs, "--part", "validation", "--output", tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_part_needs_a_split(tiny_corpus: Corpus, training_toolchain: Path, never: Path, tmp_path: Path) -> None:
    inputs = ("--corpus", tiny_corpus.directory, "--toolchain", training_toolchain, "--policy", never)
    with pytest.raises(UserError, match=r"splits\.json"):
        modules(*inputs, "--part", "heldout", "--output", tmp_path / "a.csv")
    assert modules(*inputs, "--output", tmp_path).exit_code == 2
