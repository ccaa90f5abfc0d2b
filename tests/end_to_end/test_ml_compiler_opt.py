"""The demo of google/ml-compiler-opt with our corpus, clang, trace, vocab and release clang, step by step.

MLGO_TEST_ML_COMPILER_OPT names a checkout (tried: d57d79b), whose requirement psutil must be installed.
docs/ml-compiler-opt.md has these commands next to ours.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.formats.trace import load_trace
from tests.support.workflows import ROOT

THEIRS = os.environ.get("MLGO_TEST_ML_COMPILER_OPT", "")
LLVM_SIZE = "/usr/lib/llvm-19/bin/llvm-size"
GIN = "compiler_opt/rl/{}/gin_configs"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not THEIRS, reason="needs ml-compiler-opt, see docs/CONTRIBUTING.md"),
]


def run_theirs(program: str, problem: str, gin_file: str, bindings: tuple[str, ...], *arguments: object) -> None:
    """Run a program of ml-compiler-opt on a problem of ours."""
    folder = {"inlining": "inlining", "regalloc": "regalloc"}[problem]
    implementation = {"inlining": "InliningConfig", "regalloc": "RegallocEvictionConfig"}[problem]
    settings = (f"config_registry.get_configuration.implementation=@configs.{implementation}", *bindings)
    command = [
        sys.executable,
        f"compiler_opt/{program}",
        f"--gin_files={GIN.format(folder)}/{gin_file}",
        *(f"--gin_bindings={setting}" for setting in settings),
        *map(str, arguments),
    ]
    environment = os.environ | {
        "PYTHONPATH": f"{THEIRS}:{os.environ.get('PYTHONPATH', '')}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(command, cwd=THEIRS, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]


def mlgo(*arguments: object) -> str:
    command = [sys.executable, "-m", "pipelines", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_program_has_a_counterpart_in_the_document() -> None:
    page = (ROOT / "docs" / "ml-compiler-opt.md").read_text()
    programs = [
        path
        for path in Path(THEIRS, "compiler_opt").rglob("*.py")
        if not path.stem.endswith("_test") and re.search(r"app\.run\(|__main__", path.read_text())
    ]
    assert len(programs) >= 20
    assert [str(path) for path in programs if path.name not in page] == []


def test_chain_of_the_demo(finished: tuple[Path, str], tmp_path: Path) -> None:
    """Their trace, our vocab, their behavioral cloning and PPO with our clang, our release clang with their policy."""
    run, corpus = finished[0], finished[0] / "corpus"
    clang = (f"clang_path='{run}/training/bin/clang'", f"llvm_size_path='{LLVM_SIZE}'")

    records = tmp_path / "default_trace.tfrecord"
    run_theirs(
        "tools/generate_default_trace.py",
        "inlining",
        "common.gin",
        clang,
        f"--data_path={corpus}",
        f"--output_path={records}",
    )
    mlgo("trace", "import", "--records", records, "--output", tmp_path / "trace")
    ours, theirs = load_trace(run / "trace"), load_trace(tmp_path / "trace")
    assert theirs.decisions > ours.decisions / 2 and {*theirs.features} == {*ours.features}

    vocab = tmp_path / "vocab"
    mlgo("vocab", "--trace", tmp_path / "trace", "--output", vocab)
    their_vocab = tmp_path / "their-vocab"
    run_theirs(
        "tools/generate_vocab.py",
        "inlining",
        "common.gin",
        (),
        f"--input={records}",
        f"--output_dir={their_vocab}",
        "--parallelism=2",
    )
    mlgo(
        *("warmstart", "--trace", run / "trace", "--vocab", their_vocab, "--toolchain", run / "training"),
        *("--output", tmp_path / "our-warmstart"),
    )

    quantiles = f"inlining.config.get_observation_processing_layer_creator.quantile_file_dir='{vocab}'"
    warmstart = tmp_path / "warmstart"
    run_theirs(
        "rl/train_bc.py",
        "inlining",
        "behavioral_cloning_nn_agent.gin",
        (quantiles, "train_eval.num_iterations=200"),
        f"--root_dir={warmstart}",
        f"--data_path={records}",
    )
    model = tmp_path / "model"
    limits = ("num_policy_iterations=2", "num_modules=4", "num_iterations=5", "batch_size=8")
    run_theirs(
        "rl/train_locally.py",
        "inlining",
        "ppo_nn_agent.gin",
        (
            *(quantiles, *clang, *(f"train_eval.{limit}" for limit in limits)),
            f"train_eval.warmstart_policy_dir='{warmstart}/saved_policy'",
        ),
        f"--root_dir={model}",
        f"--data_path={corpus}",
        "--num_workers=2",
    )
    performance = tmp_path / "performance.csv"
    run_theirs(
        "tools/generate_default_trace.py",
        "inlining",
        "common.gin",
        clang,
        f"--data_path={corpus}",
        f"--policy_path={model}/saved_policy",
        f"--output_performance_path={performance}",
    )
    rows = list(csv.reader(performance.read_text().splitlines()))
    assert len(rows) > 3 and all(float(value) > 0 for row in rows for value in row[2:] if value[:1].isdigit())

    imported = tmp_path / "imported"
    mlgo(
        *("policy", "import", "--saved-model", model / "saved_policy", "--toolchain", run / "training"),
        *("--output", imported),
    )
    mlgo(
        *("evaluation", "--corpus", corpus, "--toolchain", run / "training", "--policy", imported),
        *("--output", tmp_path / "evaluation"),
    )
    assert json.loads((tmp_path / "evaluation/metrics.json").read_text())["modules"] > 0
    release = tmp_path / "release"
    mlgo("toolchain", "--mode", "release", "--policy", imported, "--embed", "tf-aot", "--output", release)
    source = tmp_path / "a.c"
    source.write_text("static int f(int x) { return x * 3; }\nint g(int x) { return f(x) + f(x + 1); }\n")
    subprocess.run(
        [release / "bin/clang", "-Oz", "-c", source, "-o", tmp_path / "a.o", "-mllvm", "-enable-ml-inliner=release"],
        check=True,
    )


def test_register_allocation_is_trained_with_our_clang(finished: tuple[Path, str], tmp_path: Path) -> None:
    run = finished[0]
    limits = ("num_policy_iterations=1", "num_modules=4", "num_iterations=5", "batch_size=8")
    run_theirs(
        "rl/train_locally.py",
        "regalloc",
        "ppo_nn_agent.gin",
        (
            f"clang_path='{run}/training/bin/clang'",
            *(f"train_eval.{limit}" for limit in limits),
            "train_eval.warmstart_policy_dir=''",
        ),
        f"--root_dir={tmp_path}/model",
        f"--data_path={run}/corpus",
        "--num_workers=2",
    )
    assert (tmp_path / "model/saved_policy/model.tflite").is_file()
