"""make and combine write the same bytes as mlgo-utils' make_corpus and combine_training_corpus, modules sorted."""

from __future__ import annotations

import glob
import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from components.corpus.sources.bitcode_files import combine_corpora, make_corpus
from components.corpus.sources.folder import find_objects
from components.platform.errors import UserError
from tests.components.corpus.mlgo_utils import files, run_mlgo_utils, sort_modules
from tests.support.bitcode import bitcode

BITCODE = bitcode()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_corpus(directory: Path, names: list[str], **more: object) -> None:
    for name in names:
        write(directory / f"{name}.bc", BITCODE + name.encode())
        write(directory / f"{name}.cmd", b"-cc1\0")
    write(directory / "corpus_description.json", json.dumps({"has_thinlto": False, **more, "modules": names}).encode())


@pytest.mark.parametrize("arguments", ["", "-cc1 -Oz  -triple x86_64"])
def test_make_equals_mlgo_utils_make_corpus(tmp_path: Path, arguments: str) -> None:
    source = tmp_path / "bitcode"
    for name in ("z.bc", "a/b.o.bc", "a/c/d.bc", "a/a.bc", "b/x.bc", "b/notes.txt"):
        write(source / name, bitcode(name.encode()))
    (tmp_path / "ours").mkdir()
    names, _ = make_corpus(source, tmp_path / "ours", arguments.split())
    (tmp_path / "theirs").mkdir()
    run_mlgo_utils(
        "make_corpus", f"--input_dir={source}", f"--output_dir={tmp_path / 'theirs'}", f"--default_args={arguments}"
    )
    sort_modules(tmp_path / "theirs")
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert names == ["a/a", "a/b.o", "a/c/d", "b/x", "z"]


def test_combine_equals_mlgo_utils_combine_training_corpus(tmp_path: Path) -> None:
    root = tmp_path / "ours"
    write_corpus(root / "zstd", ["b.o", "lib/a.o"])
    write_corpus(root / "lz4", ["c.o"])
    write_corpus(root / "abseil", ["d.o"])
    write(root / "notes" / "readme.txt", b"no corpus")
    names = combine_corpora(root)
    ours = (root / "corpus_description.json").read_bytes()
    (root / "corpus_description.json").unlink()
    run_mlgo_utils("combine_training_corpus", f"--root_dir={root}")
    sort_modules(root)
    assert ours == (root / "corpus_description.json").read_bytes()
    assert names == ["abseil/d.o", "lz4/c.o", "zstd/b.o", "zstd/lib/a.o"]


def test_modules_are_in_the_same_order_on_every_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{name}/{letter}" for name in "dacb" for letter in "zyx"]
    for name in names:
        write(tmp_path / "build" / f"{name}.o", b"")
        write(tmp_path / "bitcode" / f"{name}.bc", BITCODE)
    for name in "dacb":
        write_corpus(tmp_path / "corpora" / name, ["2.o", "1.o"])
    shuffled = random.Random(1)

    def in_another_order(paths: Iterable[Any]) -> list[Any]:
        entries = list(paths)
        shuffled.shuffle(entries)
        return entries

    by_path, by_text = Path.glob, glob.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: in_another_order(by_path(path, pattern)))
    monkeypatch.setattr(glob, "glob", lambda pattern: in_another_order(by_text(pattern)))
    assert [item.name for item in find_objects(tmp_path / "build")] == [f"{name}.o" for name in sorted(names)]
    assert make_corpus(tmp_path / "bitcode", tmp_path / "made", [])[0] == sorted(names)
    assert combine_corpora(tmp_path / "corpora") == [f"{name}/{module}.o" for name in "abcd" for module in "21"]


def test_corpora_that_differ_in_more_than_modules_are_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", ["x.o"])
    write_corpus(tmp_path / "b", ["y.o"], global_command_override=["-cc1"])
    with pytest.raises(UserError, match="global_command_override"):
        combine_corpora(tmp_path)
    assert not (tmp_path / "corpus_description.json").exists()


def test_damaged_corpus_is_not_combined(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", ["x.o"])
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(UserError, match="a corpus"):
        combine_corpora(tmp_path)
    write_corpus(tmp_path / "b", ["y.o"])
    (tmp_path / "b/y.o.bc").unlink()
    with pytest.raises(UserError, match=r"y\.o\.bc"):
        combine_corpora(tmp_path)


@pytest.mark.parametrize("exists", [True, False])
def test_make_without_bitcode_is_refused(tmp_path: Path, exists: bool) -> None:
    source = tmp_path / "source"
    if exists:
        source.mkdir()
    with pytest.raises(UserError, match=r"holds no \.bc file" if exists else "there is no directory"):
        make_corpus(source, tmp_path / "out", [])
