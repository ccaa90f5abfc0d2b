"""Truncated bitcode and the LLVM that wrote it are detected without LLVM; truncated modules are refused."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from components.core.formats.bitcode import WRAPPER, BitcodeError, bitcode_problem, producer_major, read_layout
from components.core.formats.corpus import load_corpus
from components.corpus.__main__ import main as corpus
from components.platform.errors import UserError
from tests.support.bitcode import bitcode, identified


def problem(content: bytes) -> str | None:
    return bitcode_problem(lambda offset, length: content[offset : offset + length], len(content))


def producer_of(content: bytes) -> int:
    (module,) = read_layout(lambda offset, length: content[offset : offset + length], len(content))
    return producer_major(lambda offset, length: content[offset : offset + length], module)


def wrap(content: bytes) -> bytes:
    return WRAPPER + b"".join(n.to_bytes(4, "little") for n in (0, 20, len(content), 0)) + content


def test_complete_bitcode_has_no_problem() -> None:
    whole = bitcode(b"content")
    assert problem(whole) is None
    assert problem(whole + bytes(4)) is None, "padding, which LLVM's reader also accepts"
    assert problem(wrap(whole)) is None


@pytest.mark.parametrize(("clang", "major"), [("clang-19", 19), ("clang-22", 22)])
def test_producer_is_the_llvm_that_compiled_a_module(tmp_path: Path, clang: str, major: int) -> None:
    (tmp_path / "m.c").write_text("int f(int x) { return x; }\n")
    subprocess.run([clang, "-emit-llvm", "-c", "m.c"], cwd=tmp_path, check=True)
    content = (tmp_path / "m.bc").read_bytes()
    assert producer_of(content) == producer_of(wrap(content)) == major


@pytest.mark.parametrize(("name", "major"), [(b"LLVM21.0.0-x+y", 21), (b"APPLE_1", 0), (b"", 0)])
def test_producer_may_have_any_name(name: bytes, major: int) -> None:
    """Names with characters beyond letters, digits, dots and underscores are records without an abbreviation."""
    assert producer_of(identified(name)) == major
    assert producer_of(bitcode(b"content")) == 0, "no identification"


def test_producer_in_damaged_blocks_is_unknown() -> None:
    whole = identified(b"LLVM19.1.7")
    for at in range(4, 60):
        for value in (0, 0xFF):
            damaged = whole[:at] + bytes([value]) + whole[at + 1 :]
            with suppress(BitcodeError):
                assert producer_of(damaged) >= 0


def test_two_modules_are_not_one() -> None:
    """ld -r concatenates sections."""
    assert problem(bitcode(b"content") * 2).startswith("holds 2")


@pytest.mark.parametrize("whole", [bitcode(b"content" * 9), wrap(bitcode(b"content" * 9))])
def test_bitcode_truncated_anywhere_is_refused(whole: bytes) -> None:
    assert [size for size in range(len(whole)) if problem(whole[:size]) is None] == []


def test_import_refuses_damaged_modules_without_skip_damaged(tmp_path: Path) -> None:
    names = ["p/a", "p/b", "p/c", "p/d"]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / f"{name}.bc").write_bytes(bitcode(name.encode())[: -8 if name == "p/b" else None])
        (tmp_path / "in" / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0")
    (tmp_path / "in" / "corpus_description.json").write_text(json.dumps({"modules": names, "has_thinlto": False}))
    arguments = ["import", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    with pytest.raises(UserError, match="--skip-damaged"):
        corpus.main(arguments, standalone_mode=False)
    assert not (tmp_path / "out").exists()
    corpus.main([*arguments, "--skip-damaged"], standalone_mode=False)
    assert [module.name for module in load_corpus(tmp_path / "out")] == ["p/a", "p/c", "p/d"]
    (skipped,) = json.loads((tmp_path / "out" / "report.json").read_text())["left_out"]
    assert (skipped["object"], skipped["kind"]) == ("p/b", "damaged")
