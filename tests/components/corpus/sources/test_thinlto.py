"""ThinLTO modules that are recompiled outside of the build give the same objects as the build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.objects.elf import Elf
from components.core.compiler.objects.function_sizes import read_function_sizes
from components.core.compiler.replay.command_line import replay_arguments
from components.core.counterfactual.inlining import attribute_savings, pin_flips, plan_flips
from components.core.formats.corpus import Corpus, Module, load_corpus
from components.core.formats.trace import load_trace
from components.platform.errors import UserError
from components.trace.collect import collect
from components.trace.config import TraceConfig
from tests.support.commands import run_command

ROOT = Path(__file__).parents[4]


def extract_and_move(directory: Path, *flags: object) -> Corpus:
    """Extract a corpus and move it to another directory."""
    done = run_command("components.corpus", "extract", "--output", directory / "made", *flags, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    os.rename(directory / "made", directory / "moved")
    return load_corpus(directory / "moved")


def replay(module: Module, clang: Path, output: Path, *extra: str) -> bytes:
    arguments = replay_arguments(module.arguments(), module.bitcode, output, extra, module.thinlto_index)
    empty = output.parent / "cwd"
    empty.mkdir(exist_ok=True)
    subprocess.run([clang, *arguments], check=True, cwd=empty)
    assert not list(empty.iterdir())
    return output.read_bytes()


@pytest.fixture
def extracted(distributed: Path, tmp_path: Path) -> Corpus:
    flags = ["--input", distributed / "link.params", "--input-type", "params", "--obj-base-dir", distributed]
    return extract_and_move(tmp_path, *flags, "--thinlto-build", "distributed")


def test_replay_equals_the_back_end_compile(extracted: Corpus, distributed: Path, clang: Path, tmp_path: Path) -> None:
    """The replay equals `clang -x ir m.o -fthinlto-index=m.o.thinlto.bc` in the build with its imports, bit for bit."""
    assert len(extracted) == 4
    for module in extracted:
        built = distributed / module.name.replace("obj/", "plain/", 1)
        assert replay(module, clang, tmp_path / "m.o") == built.read_bytes()
        result = Compiler(clang, "inlining")(Request(module, Advisor("default")))
        assert result.samples[0].text_size_bytes == Elf(built.read_bytes()).text_size()


def test_bitcode_contains_the_imports(extracted: Corpus, distributed: Path, clang: Path, tmp_path: Path) -> None:
    """helper.c calls leaf of leaf.c twice; both are inlined although the index names a path that does not exist."""
    module = next(module for module in extracted if module.name.endswith("helper.c.o"))
    assert module.thinlto_index is not None
    dump = subprocess.check_output(["llvm-bcanalyzer-19", "--dump", module.thinlto_index], text=True)
    assert "'thin/lib/leaf.c.o'" in dump and not (tmp_path / "cwd/thin").exists()
    assert b"leaf\0" not in replay(module, clang, tmp_path / "m.o")
    source = distributed / "src/lib/helper.c"
    subprocess.run([clang, "-O3", "-c", source, "-o", tmp_path / "alone.o"], check=True)
    assert b"leaf\0" in (tmp_path / "alone.o").read_bytes()


def test_index_selects_the_post_link_pipeline(extracted: Corpus, clang: Path, tmp_path: Path) -> None:
    """LLVM gets -fthinlto-index=: without it, other passes run."""
    module = extracted.modules[0]
    passes = ["-fdebug-pass-manager"]
    pipelines = []
    for index in (module.thinlto_index, None):
        arguments = replay_arguments(module.arguments(), module.bitcode, tmp_path / "m.o", passes, index)
        run = subprocess.run([clang, *arguments], check=True, capture_output=True, text=True)
        pipelines.append("LowerTypeTestsPass" in run.stderr)
    assert pipelines == [True, False]


def test_local_thinlto_with_arguments_equals_lld(local: Path, clang: Path, tmp_path: Path) -> None:
    flags = ["--thinlto-build", "local", "--obj-base-dir", local]
    corpus = extract_and_move(tmp_path, *flags, "--default-args", "-O2 -fPIC -ffunction-sections -fdata-sections")
    lto = [Elf(path.read_bytes()) for path in (local / "lto").glob("program.o*")]
    by_functions = {tuple(sorted(read_function_sizes(elf).names)): elf for elf in lto}
    for module in corpus:
        ours = Elf(replay(module, clang, tmp_path / "m.o"))
        functions = read_function_sizes(ours)
        lld = by_functions[tuple(sorted(functions.names))]
        assert functions.by_name() == read_function_sizes(lld).by_name() and ours.text_size() == lld.text_size()
        for name in ours.section_sizes(allocated_only=True):
            assert ours.section(name) == lld.section(name), name


def test_local_thinlto_without_arguments_has_a_remedy(local: Path, clang: Path, tmp_path: Path) -> None:
    corpus = extract_and_move(tmp_path, "--thinlto-build", "local", "--obj-base-dir", local)
    with pytest.raises(UserError, match="<UNSPECIFIED>") as caught:
        Compiler(clang, "inlining")(Request(corpus.modules[0], Advisor("default")))
    assert "--default-args" in caught.value.remedy and "corpus import" in caught.value.remedy
    # The other remedy: fill in the description manually, and import the corpus.
    shutil.copytree(corpus.directory, tmp_path / "edited")
    description = tmp_path / "edited/corpus_description.json"
    description.write_text(description.read_text().replace('"<UNSPECIFIED>"', '"-cc1", "-Oz"'))
    command: list[str | Path] = [sys.executable, "-m", "components.corpus", "import", "--input", tmp_path / "edited"]
    subprocess.run([*command, "--output", tmp_path / "c"], check=True, capture_output=True, cwd=ROOT)
    for module in load_corpus(tmp_path / "c"):
        assert Compiler(clang, "inlining")(Request(module, Advisor("default"))).samples[0].text_size_bytes > 0


def test_empty_index_means_no_index(extracted: Corpus, clang: Path, tmp_path: Path) -> None:
    """Bazel compiles modules that are not linked with -fthinlto-index=/dev/null."""
    module = extracted.modules[0]
    assert module.thinlto_index is not None
    module.thinlto_index.write_bytes(b"")
    assert Elf(replay(module, clang, tmp_path / "m.o")).text_size() > 0


@pytest.mark.toolchain
def test_trace_has_decisions_about_imported_functions(
    extracted: Corpus, training_toolchain: Path, tmp_path: Path
) -> None:
    collect(TraceConfig(extracted.directory, training_toolchain, tmp_path / "trace", part="all"))
    (shard,) = load_trace(tmp_path / "trace").shards
    rows = pq.read_table(shard).to_pylist()
    (module,) = (module.name for module in extracted if module.name.endswith("helper.c.o"))
    imported = [row for row in rows if row["module"] == module and row["is_callee_avail_external"]]
    assert [(row["caller"], row["callee"]) for row in imported] == [("helper", "leaf")] * 2


@pytest.mark.toolchain
def test_flips_of_imported_functions_are_measured(extracted: Corpus, training_toolchain: Path) -> None:
    """An imported function is not in the object, so a flip of its calls changes the callers only."""
    (module,) = (module for module in extracted if module.name.endswith("helper.c.o"))
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    base = compiler(Request(module, Advisor("log"), want_functions=True)).samples[0]
    assert base.log is not None and base.callsites is not None and base.function_sizes is not None
    assert "leaf" in base.callsites.names and "leaf" not in base.function_sizes.by_name()
    action = base.log.contexts[0].columns["inlining_decision"].reshape(-1)
    plan = plan_flips(base, action, np.zeros(len(action)), 8, np.random.default_rng(0))
    flipped = compiler(Request(module, Advisor("log", samples=len(plan.forced)), True, forced=plan.forced)).samples
    measured = attribute_savings(base, plan, flipped)
    flips, first = np.unique(measured.flip, return_index=True)
    alone = pin_flips(base, action, [[plan.flips[i]] for i in flips.tolist()])
    single = compiler(Request(module, Advisor("log", samples=len(alone)), True, forced=alone)).samples
    real = [base.text_size_bytes - sample.text_size_bytes for sample in single]
    assert len(flips) >= 3 and any(real) and set(flips) == set(np.concatenate(plan.flip_sets))
    np.testing.assert_array_equal((measured.saved * measured.together)[first], real)
