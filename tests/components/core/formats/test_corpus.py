"""Corpora on disk: loading, refusal of damaged ones, and splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.corpus import UNSPECIFIED_OVERRIDE, load_corpus, write_description
from components.core.formats.splits import Splits, read_splits, write_splits
from components.platform.errors import UserError
from tests.support.bitcode import bitcode

BITCODE = bitcode(b"rest")


def write_corpus(directory: Path, names: list[str], **description: Any) -> Path:
    for name in names:
        path = directory / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(BITCODE)
        (directory / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0")
    document = {"has_thinlto": False, "modules": names, **description}
    (directory / "corpus_description.json").write_text(json.dumps(document))
    return directory


def test_modules_load_in_the_order_of_the_description(tmp_path: Path) -> None:
    corpus = load_corpus(write_corpus(tmp_path, ["b/z.o", "a/y.o", "x.o"]))
    assert [module.name for module in corpus] == ["b/z.o", "a/y.o", "x.o"]
    first = corpus.modules[0]
    assert (first.project, first.thinlto_index) == ("b", None)
    assert first.bitcode.read_bytes() == BITCODE
    assert first.arguments() == ("-cc1", "-Oz")
    assert corpus.split("all") == corpus.modules


@pytest.mark.parametrize(
    ("recorded", "override", "arguments"),
    [
        (b"-cc1\0-D\0\0-O2\0", [], ("-cc1", "-D", "", "-O2")),
        (b"-Oz\0", [], ("-cc1", "-Oz")),  # old clangs did not record -cc1
        (b"-cc1\0-Oz\0", ["-fPIC", "-O2"], ("-fPIC", "-O2")),  # those of the driver
        (None, ["-cc1", "-O3"], ("-cc1", "-O3")),
    ],
)
def test_arguments_are_recorded_or_overridden(
    tmp_path: Path, recorded: bytes | None, override: list[str], arguments: tuple[str, ...]
) -> None:
    write_corpus(tmp_path, ["a.o"], **({"global_command_override": override} if override else {}))
    if recorded is None:
        (tmp_path / "a.o.cmd").unlink()
    else:
        (tmp_path / "a.o.cmd").write_bytes(recorded)
    assert load_corpus(tmp_path).modules[0].arguments() == arguments


@pytest.mark.parametrize("override", [["-cc1", "a\0b"], ["-cc1", "\ud800"], [UNSPECIFIED_OVERRIDE]])
def test_invalid_or_unspecified_override_is_refused(tmp_path: Path, override: list[str]) -> None:
    write_corpus(tmp_path, ["a.o"], global_command_override=override)
    with pytest.raises(UserError, match="global_command_override"):
        load_corpus(tmp_path).modules[0].arguments()


def test_thinlto_corpus_requires_its_indexes(tmp_path: Path) -> None:
    write_corpus(tmp_path, ["a.o"], has_thinlto=True)
    with pytest.raises(UserError, match=r"a\.o\.thinlto\.bc is missing"):
        load_corpus(tmp_path)
    whole = (tmp_path / "a.o.bc").read_bytes()
    (tmp_path / "a.o.thinlto.bc").write_bytes(whole[:-8])
    with pytest.raises(UserError, match=r"a\.o\.thinlto\.bc is truncated"):
        load_corpus(tmp_path)
    for index in (whole, b""):  # the linker writes an empty index if there is nothing to import
        (tmp_path / "a.o.thinlto.bc").write_bytes(index)
        assert load_corpus(tmp_path).modules[0].thinlto_index == tmp_path / "a.o.thinlto.bc"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "p/a.o.bc").unlink(), r"p/a\.o\.bc is missing"),
        (lambda d: (d / "p/a.o.cmd").unlink(), r"p/a\.o\.cmd is missing"),
        (lambda d: (d / "p/a.o.cmd").write_bytes(b""), r"p/a\.o\.cmd is missing or empty"),
        (lambda d: (d / "p/a.o.bc").write_bytes(b"\x7fELF"), r"p/a\.o\.bc is not bitcode"),
        (lambda d: (d / "p/a.o.bc").write_bytes(b""), r"p/a\.o\.bc is not bitcode"),
        (lambda d: (d / "corpus_description.json").unlink(), "is not a corpus"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": ["a"'), "not valid JSON"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": []}'), "is empty"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": [3]}'), "no list of module names"),
        (lambda d: (d / "corpus_description.json").write_text('["a"]'), "no list of module names"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": ["p/a.o", "p/a.o"]}'), "twice"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": ["../a.o"]}'), "not a path inside"),
        (lambda d: (d / "corpus_description.json").write_text('{"modules": ["/a.o"]}'), "not a path inside"),
        (lambda d: (d / "corpus_description.json").write_text(r'{"modules": ["gr\udcfc.o"]}'), "is not UTF-8"),
    ],
)
def test_damaged_corpus_error_has_a_remedy(tmp_path: Path, damage: Any, words: str) -> None:
    write_corpus(tmp_path, ["p/a.o", "p/b.o"])
    damage(tmp_path)
    with pytest.raises(UserError, match=words) as caught:
        load_corpus(tmp_path)
    assert caught.value.remedy and str(tmp_path) in caught.value.problem


def test_many_missing_files_are_summarized(tmp_path: Path) -> None:
    names = [f"m{i}.o" for i in range(40)]
    write_corpus(tmp_path, names)
    for name in names:
        (tmp_path / f"{name}.bc").unlink()
    with pytest.raises(UserError, match="and 35 more"):
        load_corpus(tmp_path)


@given(st.text(max_size=200))
def test_any_text_as_description_is_a_user_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    directory = tmp_path_factory.mktemp("any")
    (directory / "corpus_description.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError):
        load_corpus(directory)


@pytest.mark.parametrize("thinlto", [None, "distributed", "local"])
def test_written_description_is_read_back(tmp_path: Path, thinlto: str | None) -> None:
    write_description(tmp_path, ["a.o"], thinlto)
    description = json.loads((tmp_path / "corpus_description.json").read_text())
    assert description["has_thinlto"] == (thinlto is not None)
    assert ("global_command_override" in description) == (thinlto == "local")
    write_corpus(tmp_path, ["a.o"])
    (tmp_path / "a.o.thinlto.bc").write_bytes(BITCODE)
    write_description(tmp_path, ["a.o"], thinlto, ["-O2"])
    assert load_corpus(tmp_path).modules[0].arguments() == ("-O2",)


def test_splits_are_read_back_and_cover_the_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path, ["p/a.o", "p/b.o", "q/c.o", "p/d.o"])
    write_splits(tmp_path, Splits(7, ("p/a.o", "p/d.o"), ("p/b.o",), ("q/c.o",), ("q",)))
    corpus = load_corpus(tmp_path)
    assert corpus.splits().seed == 7 and corpus.splits().heldout_projects == ("q",)
    assert [m.name for m in corpus.split("train")] == ["p/a.o", "p/d.o"]
    assert [m.name for m in corpus.split("validation")] == ["p/b.o"]
    assert [m.name for m in corpus.split("heldout")] == ["q/c.o"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": ["a"], "validation": [], "heldout": []}, "does not match the corpus"),
        ({"train": ["a", "b", "c"], "validation": [], "heldout": []}, "does not match the corpus"),
        ({"train": ["a", "b"], "validation": ["a"], "heldout": []}, "a in two parts"),
        ({"train": 3}, "is not what the corpus step writes"),
        ({"version": 2}, "version 2"),
        ({"seed": "x"}, "is not what the corpus step writes"),
    ],
)
def test_splits_that_do_not_match_the_corpus_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    write_splits(tmp_path, Splits(0, ("a", "b"), (), ()))
    path = tmp_path / "splits.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=words):
        read_splits(tmp_path, ["a", "b"])


def test_missing_splits_error_names_the_split_command(tmp_path: Path) -> None:
    corpus = load_corpus(write_corpus(tmp_path, ["a.o"]))
    with pytest.raises(UserError, match=r"splits\.json") as caught:
        corpus.split("train")
    assert "mlgo corpus split" in caught.value.remedy


def test_extracted_build_is_one_project(tmp_path: Path) -> None:
    names = ["src/a.o", "src/b.o", "CMakeFiles/c.o"]
    corpus = load_corpus(write_corpus(tmp_path, names))
    folders = {"src/a.o": "src", "src/b.o": "src", "CMakeFiles/c.o": "CMakeFiles"}
    assert corpus.project_titles() == folders, "without a report"
    (tmp_path / "report.json").write_text(json.dumps({"projects": {"yaml-cpp": {"extracted": 3}}}))
    assert corpus.project_titles() == dict.fromkeys(names, "yaml-cpp")
    write_splits(tmp_path, Splits(0, ("src/a.o", "src/b.o"), (), ("CMakeFiles/c.o",), ("CMakeFiles",)))
    assert corpus.project_titles() == folders, "folders are held out as projects"
    (tmp_path / "report.json").write_text(json.dumps({"projects": {"src": {}, "CMakeFiles": {}}}))
    assert corpus.project_titles() == folders
