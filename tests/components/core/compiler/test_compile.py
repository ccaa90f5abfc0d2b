"""Tests compiles by a real clang and by faulty ones. Real logs are tested in tests/components/trace."""

from __future__ import annotations

import errno
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.formats.corpus import Corpus, Module
from components.platform.errors import UserError
from components.platform.processes.reaper import REAPER
from tests.components.conftest import module_called

DEFAULT = Advisor("default")
TREE = "extern int put(int);\nint tree(int x) { return put(x) + put(x + 1); }\n"


@pytest.fixture(autouse=True)
def scratch_is_empty_afterwards() -> object:
    yield
    assert list(REAPER.scratch().iterdir()) == []


def test_text_size_is_that_of_llvm_size(tiny_corpus: Corpus, clang: Path, tmp_path: Path) -> None:
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


def test_function_sizes_change_with_extra_flags(tiny_corpus: Corpus, clang: Path) -> None:
    request = Request(module_called(tiny_corpus, "tree"), DEFAULT, want_functions=True)
    compiler = Compiler(clang, "inlining")
    sizes = compiler(request).samples[0].function_sizes
    assert sizes is not None and {"root", "other"} <= set(sizes.names) and sizes.whole.min() > 0
    never = Request(request.module, DEFAULT, True, ("-mllvm", "-inline-threshold=-10000"))
    without_inlining = compiler(never).samples[0].function_sizes
    assert without_inlining is not None
    assert set(without_inlining.names) > set(sizes.names)  # functions that are not inlined remain


def test_compiler_request_result_and_error_pickle(clang: Path, tiny_corpus: Corpus) -> None:
    pair = (Compiler(clang, "inlining"), Request(tiny_corpus.modules[0], DEFAULT))
    compiler, request = pickle.loads(pickle.dumps(pair))
    assert pickle.loads(pickle.dumps(compiler(request))).samples[0].text_size_bytes > 0
    error = pickle.loads(pickle.dumps(CompileError("m", "timeout", "why")))
    assert (error.module, error.reason, error.detail) == ("m", "timeout", "why")


@pytest.mark.parametrize(("kind", "reason", "detail"), [("crash", "failed", "signal 11"), ("hang", "timeout", "2 s")])
def test_signal_and_timeout_are_compile_errors(
    kind: str, reason: str, detail: str, fragile_clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    (module,) = make_corpus(tmp_path / "c", {f"p/{kind}.c": TREE})
    with pytest.raises(CompileError) as caught:
        Compiler(fragile_clang, "inlining", timeout_s=2)(Request(module, DEFAULT))
    assert caught.value.reason == reason and detail in caught.value.detail and module.name in str(caught.value)


def test_error_of_truncated_bitcode_has_clangs_message(tiny_corpus: Corpus, clang: Path, tmp_path: Path) -> None:
    module = module_called(tiny_corpus, "tree")
    bitcode = module.bitcode.read_bytes()
    (tmp_path / "m.bc").write_bytes(bitcode[: len(bitcode) // 2])
    (tmp_path / "m.cmd").write_bytes(module.cmd.read_bytes())
    with pytest.raises(CompileError) as caught:
        Compiler(clang, "inlining")(Request(Module("m", tmp_path), DEFAULT))
    assert caught.value.reason == "failed" and "error:" in caught.value.detail


def test_clang_that_writes_no_log_is_a_compile_error(tiny_corpus: Corpus, tmp_path: Path, clang: Path) -> None:
    """The compiler accepts the flags but logs nothing, as if built without the advisor."""
    script = tmp_path / "clang-without-log"
    script.write_text(
        '#!/bin/sh\nfor a; do shift; case $a in *-training-log*|*-enable-ml*) ;; *) set -- "$@" "$a";; esac; done\n'
        f"exec {clang} $(printf '%s\\n' \"$@\" | sed 's/^-mllvm$//')\n"
    )
    script.chmod(0o755)
    with pytest.raises(CompileError, match="training log") as caught:
        Compiler(script, "inlining")(Request(tiny_corpus.modules[0], Advisor("log")))
    assert caught.value.reason == "log"


@pytest.mark.parametrize(
    ("written", "detail"),
    [("head -c 999 /dev/zero", "not an ELF file"), ("head -c 1", "not an ELF file"), (":", "is empty")],
)
def test_invalid_object_is_a_compile_error(written: str, detail: str, tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Only one module is affected, so the error must be a CompileError, which quarantine handles."""
    script = tmp_path / "clang-with-invalid-object"
    check = 'case "$*" in *-_-*) exit 1 ;; esac'  # of how it parses its options
    script.write_text(f'#!/bin/sh\n{check}\nfor last; do :; done\n{written} <"$0" >"$last"\n')
    script.chmod(0o755)
    for want_functions in (False, True):
        with pytest.raises(CompileError, match=detail) as caught:
            Compiler(script, "inlining")(Request(tiny_corpus.modules[0], DEFAULT, want_functions))
        assert caught.value.reason == "log"


def test_exhausted_disk_space_is_an_os_error(
    fragile_clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    (module,) = make_corpus(tmp_path / "c", {"p/full.c": TREE})
    with pytest.raises(OSError) as caught:
        Compiler(fragile_clang, "inlining")(Request(module, DEFAULT))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename


def test_missing_clang_is_a_user_error(tiny_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a program"):
        Compiler(tmp_path / "bin/clang", "inlining")(Request(tiny_corpus.modules[0], DEFAULT))
