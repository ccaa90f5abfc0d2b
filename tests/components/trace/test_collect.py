"""The trace step writes what the real training clang logs for real modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import load_trace, read_columns, read_modules, read_object_counts
from components.platform.storage.manifest import digest, write_manifest
from components.trace.collect import collect, sample_modules
from components.trace.config import TraceConfig
from components.vocab.build import build
from components.vocab.config import VocabConfig
from tests.components.conftest import living
from tests.support.waiting import wait_until

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def trace(tiny_corpus: Corpus, training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trace") / "trace"
    collected = collect(TraceConfig(tiny_corpus.directory, training_toolchain, output, workers="local:2"))
    assert (collected.modules, collected.quarantined) == (3, 0)
    return output


def test_trace_equals_clang_logs(trace: Path, tiny_corpus: Corpus, training_toolchain: Path) -> None:
    toolchain = load_toolchain(training_toolchain)
    names = [spec.name for spec in load_trace(trace).features]
    columns = read_columns(trace, [*names, "module", "context", "step", "caller", "callee", "action", "reward"])
    decisions = 0
    for module in tiny_corpus:
        sample = Compiler(toolchain.clang, "inlining")(Request(module, Advisor("log"))).samples[0]
        assert sample.log is not None and sample.callsites is not None
        (context,) = sample.log.contexts
        rows = columns["module"] == module.name
        assert rows.sum() == len(context)
        decisions += len(context)
        for name in names:
            np.testing.assert_array_equal(columns[name][rows], context.columns[name].ravel(), err_msg=name)
        np.testing.assert_array_equal(columns["action"][rows], context.columns["inlining_decision"].ravel())
        # The heuristic decided, so both columns are equal, and the trace has only one of them.
        np.testing.assert_array_equal(context.columns["inlining_default"], context.columns["inlining_decision"])
        np.testing.assert_array_equal(columns["step"][rows], np.arange(len(context)))
        functions = np.array(sample.callsites.names, object)
        np.testing.assert_array_equal(columns["caller"][rows], functions[sample.callsites.caller])
        np.testing.assert_array_equal(columns["callee"][rows], functions[sample.callsites.callee])
    assert len(columns["module"]) == decisions > 50
    assert not columns["reward"].any() and set(columns["action"]) == {0, 1} and set(columns["context"]) == {""}


def test_sizes_equal_those_of_a_plain_compile(trace: Path, tiny_corpus: Corpus, training_toolchain: Path) -> None:
    modules = read_modules(trace)
    sizes = dict(zip(modules["module"], modules["text_size_bytes"], strict=True))
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    for module in tiny_corpus:
        result = compiler(Request(module, Advisor("default")))
        assert sizes[module.name] == result.samples[0].text_size_bytes
    counts = dict(zip(modules["module"], modules["decisions"], strict=True))
    assert counts["app/leaf.c.o"] == 0 and counts["lib/strings.cpp.o"] > counts["app/tree.c.o"] > 0


def test_functions_of_several_objects_are_counted(
    training_toolchain: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    weak = "inline __attribute__((noinline)) int weak(int a) { return a * 3 + 1; }"
    local = "static __attribute__((noinline)) int local(int a) { return a * 5 + 1; }"
    sources = {
        f"{project}/{name}.cpp": f"{weak}\n{local}\nint {name}(int a) {{ return weak(a) + local(a); }}\nint main() {{}}"
        for project, name in (("app", "one"), ("app", "two"), ("lib", "three"))
    }
    corpus = make_corpus(tmp_path / "corpus", sources)
    collect(TraceConfig(corpus.directory, training_toolchain, tmp_path / "trace", workers="local:2"))
    # Each object keeps its `local`, each program its `main`, and `lib` has only one `weak`.
    assert read_object_counts(tmp_path / "trace") == {"app": {"_Z4weaki": 2}}


def test_trace_records_digests_of_its_inputs(trace: Path, tiny_corpus: Corpus, training_toolchain: Path) -> None:
    described = load_trace(trace)
    assert described.corpus == digest(tiny_corpus.directory)
    assert described.toolchain == digest(training_toolchain)
    assert described.modules == 3 and described.problem == "inlining"
    report = json.loads((trace / "report.json").read_text())
    assert report["quarantine"]["modules"] == [] and report["decisions"] == described.decisions


def test_trace_is_deterministic(trace: Path, tiny_corpus: Corpus, training_toolchain: Path, tmp_path: Path) -> None:
    collect(TraceConfig(tiny_corpus.directory, training_toolchain, tmp_path / "again", workers="local:1"))
    names = [entry.name for entry in trace.iterdir() if entry.name.startswith("trace")]
    assert sorted(names) == ["trace-00000.parquet", "trace.json"]
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (trace / name).read_bytes()


def test_truncated_log_is_reported_with_its_byte_offset(
    training_toolchain: Path, make_corpus: Callable[..., Corpus], sources: dict[str, str], tmp_path: Path
) -> None:
    """A training clang that loses the end of one module's log, as when the disk is full for a moment."""
    corpus = make_corpus(tmp_path / "c", {**sources, "app/unlucky.c": sources["app/tree.c"]})
    broken = tmp_path / "toolchain"
    (broken / "bin").mkdir(parents=True)
    (broken / "toolchain.json").write_bytes((training_toolchain / "toolchain.json").read_bytes())
    script = broken / "bin" / "clang"
    script.write_text(
        f'#!/bin/sh\n{training_toolchain}/bin/clang "$@" || exit\n'
        'case "$*" in *unlucky*) truncate -s -40 m.log ;; esac\n'
    )
    script.chmod(0o755)
    collected = collect(TraceConfig(corpus.directory, broken, tmp_path / "trace", max_failed_fraction=0.5))
    assert (collected.modules, collected.quarantined) == (3, 1)
    (failed,) = json.loads((tmp_path / "trace" / "report.json").read_text())["quarantine"]["modules"]
    assert failed["module"] == "app/unlucky.c.o" and failed["reason"] == "log"
    assert "m.log: byte " in failed["detail"] and "ends inside" in failed["detail"]
    assert "app/unlucky.c.o" not in read_modules(tmp_path / "trace")["module"]


def test_vocab_is_built_from_the_trace(trace: Path, tmp_path: Path) -> None:
    assert build(VocabConfig(trace, tmp_path / "vocab")) == len(load_trace(trace).features) > 60
    values = np.loadtxt(tmp_path / "vocab" / "callee_basic_block_count.buckets")
    column = read_columns(trace, ["callee_basic_block_count"])["callee_basic_block_count"]
    assert (values[0], values[-1]) == (column.min(), column.max()) and len(values) == 1000


def test_exported_tfrecord_has_a_sequence_per_module(trace: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "components.trace", "export", "--trace", trace]
    command += ["--output", tmp_path / "out"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "2 sequences" in result.stdout and (tmp_path / "out" / "trace.tfrecord").stat().st_size > 0


@pytest.mark.parametrize("replaced", ["the corpus", "a module in place", "the toolchain"])
def test_input_that_is_replaced_during_the_step_ends_it(
    replaced: str,
    training_toolchain: Path,
    make_corpus: Callable[..., Corpus],
    tmp_path: Path,
    marker: str,
) -> None:
    """The compilers wait until half of the modules would be read from the one version, and half from the other."""
    for name in ("corpus", "other"):
        make_corpus(tmp_path / name, {f"p/{i}.c": f"int f{i}(int x) {{ return x; }} // {name}\n" for i in range(6)})
        write_manifest(tmp_path / name)
    go = tmp_path / "go"
    waiting = tmp_path / "t"
    (waiting / "bin").mkdir(parents=True)
    shutil.copy(training_toolchain / "toolchain.json", waiting)
    (waiting / "bin" / "clang").write_text(
        '#!/bin/sh\ncase "$*" in *-_-*) exit 1 ;; esac\n'  # how does it parse its options?
        f"sh -c 'while ! [ -e {go} ]; do sleep 0.1; done; : {marker}'\n"
        f'exec {training_toolchain}/bin/clang "$@"\n'
    )
    (waiting / "bin" / "clang").chmod(0o755)
    write_manifest(waiting)
    command: list[str | Path] = [sys.executable, "-m", "components.trace", "--corpus", tmp_path / "corpus"]
    command += ["--toolchain", waiting, "--output", tmp_path / "out", "--workers", "local:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as step:
        wait_until(lambda: living(marker), process=step, timeout_s=120)
        if replaced == "the corpus":
            os.rename(tmp_path / "corpus", tmp_path / "aside")
            os.rename(tmp_path / "other", tmp_path / "corpus")
        elif replaced == "a module in place":
            shutil.copyfile(tmp_path / "other" / "p" / "5.c.o.cmd", tmp_path / "corpus" / "p" / "5.c.o.cmd")
        else:
            shutil.copy(waiting / "toolchain.json", tmp_path / "copy")
            (tmp_path / "copy").write_text((tmp_path / "copy").read_text().replace("{", "{ ", 1))
            os.replace(tmp_path / "copy", waiting / "toolchain.json")
        go.touch()
        _out, messages = step.communicate(timeout=300)
    changed = waiting if replaced == "the toolchain" else tmp_path / "corpus"
    assert step.returncode == 1
    assert messages.startswith(f"error: {changed} was replaced or modified while it was read\n  remedy: ")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_sampled_modules_are_those_of_the_seed(tiny_corpus: Corpus) -> None:
    modules = tiny_corpus.modules
    assert sample_modules(modules, 1.0, 0) == modules
    (chosen,) = sample_modules(modules, 0.01, 0)
    assert sample_modules(modules[::-1], 0.01, 0) == (chosen,)
    assert len({sample_modules(modules, 0.01, seed) for seed in range(20)}) == len(modules)
    assert len(sample_modules(modules, 0.7, 3)) == 2
