"""Modules compiled by a real clang, and by one that misbehaves. Real logs are read in tests/components/trace."""

from __future__ import annotations

import errno
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from components.compiler.advisor import Advisor
from components.compiler.compile import CompileError, Compiler, Request
from components.compiler.guard import GUARD
from components.console import UserError
from components.formats.corpus import Corpus, Module

DEFAULT = Advisor("default")
TREE = "extern int put(int);\nint tree(int x) { return put(x) + put(x + 1); }\n"


@pytest.fixture(autouse=True)
def no_scratch_is_left() -> object:
    yield
    assert list(GUARD.scratch().iterdir()) == []


def module_called(corpus: Corpus, name: str) -> Module:
    return next(module for module in corpus if name in module.name)


def test_text_size_is_llvm_sizes(tiny_corpus: Corpus, clang: Path, tmp_path: Path) -> None:
    for module in tiny_corpus:
        result = Compiler(clang, "inlining")(Request(module, DEFAULT))
        command: list[str | Path] = [clang, "-Oz", "-x", "ir", module.bitcode, "-c", "-o", tmp_path / "m.o"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        printed = subprocess.run(["llvm-size-19", tmp_path / "m.o"], check=True, capture_output=True, text=True).stdout
        (sample,) = result.samples
        assert sample.text_size_bytes == int(printed.splitlines()[1].split()[0])
        assert sample.log is None and sample.callsites is None and sample.function_sizes is None
        assert result.module_name == module.name
        assert 0 < result.compile_s < 60


def test_function_sizes_and_extra_flags(tiny_corpus: Corpus, clang: Path) -> None:
    request = Request(module_called(tiny_corpus, "tree"), DEFAULT, want_functions=True)
    compiler = Compiler(clang, "inlining")
    sizes = compiler(request).samples[0].function_sizes
    assert sizes is not None and {"root", "other"} <= set(sizes.names) and sizes.whole.min() > 0
    never = Request(request.module, DEFAULT, True, ("-mllvm", "-inline-threshold=-10000"))
    kept = compiler(never).samples[0].function_sizes
    assert kept is not None and set(kept.names) > set(sizes.names)  # what is not inlined stays


def test_a_compiler_travels(clang: Path, tiny_corpus: Corpus) -> None:
    pair = (Compiler(clang, "inlining"), Request(tiny_corpus.modules[0], DEFAULT))
    compiler, request = pickle.loads(pickle.dumps(pair))
    assert pickle.loads(pickle.dumps(compiler(request))).samples[0].text_size_bytes > 0
    error = pickle.loads(pickle.dumps(CompileError("m", "timeout", "why")))
    assert (error.module, error.reason, error.detail) == ("m", "timeout", "why")


@pytest.mark.parametrize(("kind", "reason", "detail"), [("crash", "failed", "signal 11"), ("hang", "timeout", "2 s")])
def test_a_compiler_that_misbehaves(
    kind: str, reason: str, detail: str, fragile_clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    (module,) = make_corpus(tmp_path / "c", {f"p/{kind}.c": TREE})
    with pytest.raises(CompileError) as caught:
        Compiler(fragile_clang, "inlining", timeout_s=2)(Request(module, DEFAULT))
    assert caught.value.reason == reason and detail in caught.value.detail and module.name in str(caught.value)


def test_truncated_bitcode_keeps_clangs_words(tiny_corpus: Corpus, clang: Path, tmp_path: Path) -> None:
    module = module_called(tiny_corpus, "tree")
    bitcode = module.bitcode.read_bytes()
    (tmp_path / "m.bc").write_bytes(bitcode[: len(bitcode) // 2])
    (tmp_path / "m.cmd").write_bytes(module.cmd.read_bytes())
    with pytest.raises(CompileError) as caught:
        Compiler(clang, "inlining")(Request(Module("m", tmp_path), DEFAULT))
    assert caught.value.reason == "failed" and "error:" in caught.value.detail


def test_a_clang_without_a_log(tiny_corpus: Corpus, tmp_path: Path, clang: Path) -> None:
    """A compiler that takes the flags and logs nothing, as one would that was built without the advisor."""
    script = tmp_path / "deaf"
    script.write_text(
        '#!/bin/sh\nfor a; do shift; case $a in *-training-log*|*-enable-ml*) ;; *) set -- "$@" "$a";; esac; done\n'
        f"exec {clang} $(printf '%s\\n' \"$@\" | sed 's/^-mllvm$//')\n"
    )
    script.chmod(0o755)
    with pytest.raises(CompileError, match="no training log") as caught:
        Compiler(script, "inlining")(Request(tiny_corpus.modules[0], Advisor("log")))
    assert caught.value.reason == "log"


@pytest.mark.parametrize(
    ("written", "detail"),
    [("head -c 999 /dev/zero", "not an ELF file"), ("head -c 1", "not an ELF file"), (":", "is empty")],
)
def test_an_object_that_is_none(written: str, detail: str, tiny_corpus: Corpus, tmp_path: Path) -> None:
    """It concerns its module alone: it must end as a CompileError, which is what quarantine takes."""
    script = tmp_path / "scribbler"
    script.write_text(f'#!/bin/sh\nfor last; do :; done\n{written} <"$0" >"$last"\n')
    script.chmod(0o755)
    for want_functions in (False, True):
        with pytest.raises(CompileError, match=detail) as caught:
            Compiler(script, "inlining")(Request(tiny_corpus.modules[0], DEFAULT, want_functions))
        assert caught.value.reason == "log"


def test_a_full_disk_is_no_fault_of_the_module(
    fragile_clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    (module,) = make_corpus(tmp_path / "c", {"p/full.c": TREE})
    with pytest.raises(OSError) as caught:
        Compiler(fragile_clang, "inlining")(Request(module, DEFAULT))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename


def test_no_clang(tiny_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a program"):
        Compiler(tmp_path / "bin/clang", "inlining")(Request(tiny_corpus.modules[0], DEFAULT))
