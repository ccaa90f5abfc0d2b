"""Tests of real compiles of a small corpus with stock clang-19."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.development_mode.upstream import UpstreamCompiler
from components.core.compiler.objects.function_digests import FunctionDigests
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import Corpus, Module
from components.core.formats.toolchain import CAPABILITIES, Toolchain
from components.core.objectives import OBJECTIVES, SIZE, Objective
from components.evaluation.config import EvaluationConfig
from components.evaluation.measure import measure
from components.evaluation.measurements import Measurements, threshold_name
from components.evaluation.variants import Variant, plan_variants, threshold_flags
from components.platform.errors import UserError
from components.platform.workers.local_pool import LocalPool

CLANG = Path("/usr/lib/llvm-19/bin/clang")
DEFAULT = Advisor("default")
BASELINE = Variant("baseline", CLANG, DEFAULT)


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    with LocalPool(2) as pool:
        yield pool


def config(tmp_path: Path, **options: float) -> EvaluationConfig:
    return EvaluationConfig(tmp_path, tmp_path, tmp_path, tmp_path, **options)  # type: ignore[arg-type]


def sweep(*thresholds: int) -> list[Variant]:
    return [Variant(threshold_name(t), CLANG, DEFAULT, threshold_flags(t)) for t in thresholds]


def test_sizes_equal_llvm_size(tmp_path: Path, pool: LocalPool, corpus: Corpus) -> None:
    heldout = corpus.split("heldout")
    measured = measure(pool, config(tmp_path), SIZE, [BASELINE], heldout, ("unknown",))
    assert measured.modules == ("known/words.cpp.o", "known/sorted.cpp.o", "unknown/stack.cpp.o")
    assert measured.unseen_project.tolist() == [False, False, True]
    for module, size_bytes in zip(heldout, measured.values["baseline"].tolist(), strict=True):
        argv = [str(CLANG), *replay_arguments(module.arguments(), module.bitcode, tmp_path / "o")]
        subprocess.run(argv, check=True)
        output = subprocess.run(["llvm-size-19", tmp_path / "o"], check=True, capture_output=True, text=True).stdout
        assert size_bytes == int(output.splitlines()[1].split()[0])
    assert measured.values["baseline"].dtype == np.int64
    assert measured.languages == ("c++", "c++", "c++")
    assert np.sum(list(measured.sections["baseline"].values()), axis=0).tolist() == measured.values["baseline"].tolist()
    assert all(measured.sections["baseline"][name].all() for name in (".text", ".eh_frame", ".gcc_except_table"))


def test_measurements_of_an_earlier_evaluation_are_reused(tmp_path: Path, pool: LocalPool, corpus: Corpus) -> None:
    heldout = corpus.split("heldout")
    variants = [BASELINE, Variant("policy", CLANG, DEFAULT)]
    earlier = measure(pool, config(tmp_path), SIZE, variants, heldout, ())
    missing = Variant("baseline", tmp_path / "no-clang", DEFAULT)
    again = measure(pool, config(tmp_path), SIZE, [missing, variants[1]], heldout, (), earlier)
    assert again.to_json() | {"compile_s": None} == earlier.to_json() | {"compile_s": None}
    measured = measure(pool, config(tmp_path), SIZE, variants, heldout, (), replace(earlier, sections={}))
    assert list(measured.sections) == ["policy"]
    copies = measure(pool, config(tmp_path), SIZE, variants, heldout, (), replace(earlier, sources=np.array([7, 7, 5])))
    assert copies.sources.tolist() == [7, 7, 5], "not grouped again"
    unknown = measure(pool, config(tmp_path), SIZE, variants, heldout, (), replace(earlier, sources=np.arange(3)))
    assert unknown.sources.tolist() == earlier.sources.tolist()


def test_functions_that_training_compiled_are_counted(tmp_path: Path, pool: LocalPool, corpus: Corpus) -> None:
    """Training saw one of the held-out modules: all of its functions are known, and few of the others."""
    heldout = corpus.split("heldout")
    request = Request(heldout[0], DEFAULT, want_functions=True, want_bodies=True)
    (sample,) = Compiler(CLANG, "inlining")(request).samples
    assert sample.function_sizes is not None
    trained = FunctionDigests()
    trained.add(sample.function_sizes)
    variants = [BASELINE, Variant("policy", CLANG, DEFAULT, threshold_flags(225))]
    measured = measure(pool, config(tmp_path), SIZE, variants, heldout, (), trained=trained.merge())
    overlap = measured.overlap
    assert overlap is not None
    assert overlap.known[0] == overlap.functions[0] == sample.function_sizes.whole.sum()
    assert 0 < overlap.known[1] < overlap.functions[1] / 2, "both instantiate std::string"
    assert overlap.new_policy[0] < overlap.functions[0] / 10, "another policy keeps few functions that were not there"
    assert (overlap.new_policy[1:] != (overlap.functions - overlap.known)[1:]).any()
    assert overlap.repeated is not None and overlap.repeated[:2].all(), "both are of one project"
    assert overlap.repeated[2] == 0, "the only module of its project"
    restored = Measurements.from_json(measured.to_json())
    assert restored.to_json() == measured.to_json()
    again = measure(pool, config(tmp_path), SIZE, variants, heldout, (), measured)
    assert again.to_json()["overlap"] == measured.to_json()["overlap"]
    figures = overlap.figures(np.array([True, False, False]))
    assert figures.known_bytes == figures.function_bytes == overlap.functions[0]
    assert (
        figures.new_functions.baseline_bytes
        == 0
        < overlap.figures(np.array([False, True, True])).new_functions.baseline_bytes
    )
    assert measure(pool, config(tmp_path), SIZE, variants[:1], heldout, (), trained=trained).overlap is None


def test_sweep_changes_the_heuristic_and_its_default_threshold_is_five(
    tmp_path: Path, pool: LocalPool, corpus: Corpus
) -> None:
    measured = measure(pool, config(tmp_path), SIZE, [BASELINE, *sweep(0, 5, 225)], corpus.split("heldout"), ())
    baseline, by_threshold = measured.values["baseline"], measured.thresholds
    assert list(by_threshold) == [0, 5, 225]
    assert (by_threshold[5] == baseline).all()
    assert (by_threshold[0] != baseline).any()
    assert by_threshold[225].sum() != baseline.sum()


def damage(corpus: Corpus, directory: Path) -> Module:
    """Return a copy of a held-out module with truncated bitcode."""
    original = corpus.split("heldout")[0]
    for suffix in ("bc", "cmd"):
        content = (original.directory / f"{original.name}.{suffix}").read_bytes()
        (directory / f"damaged.{suffix}").write_bytes(content if suffix == "cmd" else content[: len(content) // 2])
    return Module("damaged", directory)


def test_failed_module_is_excluded_from_all_variants(tmp_path: Path, pool: LocalPool, corpus: Corpus) -> None:
    modules = [*corpus.split("heldout"), damage(corpus, tmp_path)]
    with pytest.raises(UserError, match="none of"):
        measure(pool, config(tmp_path, max_failed_fraction=1.0), SIZE, [BASELINE], modules[3:], ())
    with pytest.raises(UserError, match="damaged"):
        measure(pool, config(tmp_path, max_failed_fraction=0.2), SIZE, [BASELINE], modules, ())
    measured = measure(pool, config(tmp_path, max_failed_fraction=0.25), SIZE, [BASELINE, *sweep(15)], modules, ())
    assert "damaged" not in measured.modules
    assert {len(sizes) for sizes in measured.values.values()} == {3}
    (excluded,) = measured.excluded
    assert (excluded.module, excluded.variant, excluded.reason) == ("damaged", "baseline", "failed")
    assert "error:" in excluded.detail


def test_module_that_hangs_under_one_variant_is_excluded_from_all(
    tmp_path: Path, pool: LocalPool, corpus: Corpus
) -> None:
    hanging = tmp_path / "clang"
    hanging.write_text(f'#!/bin/sh\ncase "$*" in *sorted*) sleep 3600 ;; esac\nexec {CLANG} "$@"\n')
    hanging.chmod(0o755)
    variants = [BASELINE, Variant("policy", hanging, DEFAULT)]
    started_s = time.monotonic()
    measured = measure(
        pool, config(tmp_path, max_failed_fraction=0.5, timeout_s=10.0), SIZE, variants, corpus.split("heldout"), ()
    )
    assert time.monotonic() - started_s < 600  # killed before the hour of sleep ends
    assert measured.modules == ("known/words.cpp.o", "unknown/stack.cpp.o")
    assert [(e.module, e.variant, e.reason) for e in measured.excluded] == [("known/sorted.cpp.o", "policy", "timeout")]
    assert (measured.values["policy"] == measured.values["baseline"]).all()


def test_modules_with_the_same_content_are_all_counted(tmp_path: Path, pool: LocalPool, corpus: Corpus) -> None:
    module = corpus.split("heldout")[0]
    for suffix in ("bc", "cmd"):
        (tmp_path / f"copy.{suffix}").write_bytes((module.directory / f"{module.name}.{suffix}").read_bytes())
    measured = measure(pool, config(tmp_path), SIZE, [BASELINE], [module, Module("copy", tmp_path)], ())
    first, second = measured.values["baseline"].tolist()
    assert first == second > 0


@pytest.mark.parametrize("capable", [True, False])
def test_policies_are_compiled_with_the_ranges_of_the_release_clang(tmp_path: Path, capable: bool) -> None:
    """By the training clang, unless it is older than the option."""
    capabilities = CAPABILITIES if capable else CAPABILITIES - {"trained_ranges"}
    training = Toolchain(tmp_path, "training", "19.1.7", "", {}, {}, capabilities=capabilities)
    planned = plan_variants(SIZE, replace(config(tmp_path), warmstart=tmp_path), training, None)
    flags = {variant.name: variant.flags("inlining") for variant in planned}
    assert [name for name, text in flags.items() if "-mlgo-ranges=1" in text] == ["warmstart", "policy"] * capable


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_external_clang_is_known_to_every_variant(tmp_path: Path, objective: Objective) -> None:
    training = Toolchain(tmp_path, "training", "19.1.7", "", {}, {}, capabilities=frozenset())
    planned = plan_variants(objective, replace(config(tmp_path), warmstart=tmp_path), training, None)
    assert {variant.compiler for variant in planned if not variant.extra_flags} == {UpstreamCompiler}
