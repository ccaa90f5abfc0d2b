"""The whole step on a small real corpus whose functions the training clang scores."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request
from components.evaluation.words import change
from components.formats.corpus import Corpus, load_corpus
from components.formats.splits import Splits, write_splits
from components.problems.scores import FLOOR
from components.storage.manifest import write_manifest
from tests.components.conftest import PRESSED
from tests.components.evaluation.test_evaluate import step
from tests.components.ppo.runs import step as run_step


@pytest.fixture(scope="module")
def pressed(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Path:
    """Everything is held out, the project "lib" as a whole."""
    directory = tmp_path_factory.mktemp("scores") / "corpus"
    names = tuple(module.name for module in make_corpus(directory, PRESSED))
    write_splits(directory, Splits(0, (), (), names, ("lib",)))
    write_manifest(directory)
    return directory


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory, pressed: Path, training_toolchain: Path) -> tuple[Path, Path]:
    """Two that decide otherwise: one has begun to learn from the heuristic, one has hardly."""
    root = tmp_path_factory.mktemp("policies")
    learned = root / "corpus"  # the trace is of what is not held out
    subprocess.run(["cp", "-r", pressed, learned], check=True)
    write_splits(learned, Splits(0, tuple(module.name for module in load_corpus(learned)), (), ()))
    write_manifest(learned)
    toolchain = ("--toolchain", training_toolchain)
    run_step("trace", "--corpus", learned, *toolchain, "--output", root / "trace", "--problem", "regalloc")
    run_step("vocab", "--trace", root / "trace", "--output", root / "vocab")
    for name, epochs in (("one", 20), ("other", 1)):
        run_step(
            "warmstart", "--trace", root / "trace", "--vocab", root / "vocab", *toolchain, "--output", root / name,
            "--epochs", epochs, "--batch-size", 32, "--heldout-fraction", 0,
        )  # fmt: skip
    return root / "one", root / "other"


@pytest.mark.slow
def test_scores_are_those_that_the_training_clang_logs(
    tmp_path: Path, pressed: Path, training_toolchain: Path, policies: tuple[Path, Path]
) -> None:
    one, other = policies
    inputs = ("--problem", "regalloc", "--corpus", pressed, "--toolchain", training_toolchain, "--policy", other)
    output = tmp_path / "evaluation"
    done = step(*inputs, "--warmstart", one, "--min-reduction-percent", 99, "--preset", "tiny", "--output", output)
    assert done.returncode == 0, done.stderr
    assert "policy, compiled by the training clang" in done.stdout and "lower / equal / higher" in done.stdout
    metrics = json.loads((output / "metrics.json").read_text())
    assert (metrics["measure"], metrics["problem"], metrics["excluded"]) == ("score", "regalloc", [])
    assert (metrics["policy_compiled_by"], metrics["binaries"], metrics["programs"]) == ("training", [], None)
    assert [variant["name"] for variant in metrics["variants"]] == ["baseline", "warmstart", "policy"]
    assert (metrics["verdict"], metrics["release"]) == ("not better", "no")

    with open(output / "report.csv", newline="") as file:
        rows = {(row["module_name"], row["identifier"]): row for row in csv.DictReader(file)}
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    expected = {}
    for column, advisor in (("heuristic_score", Advisor("log")), ("policy_score", Advisor("policy", other, log=True))):
        for module in load_corpus(pressed):
            (sample,) = compiler(Request(module, advisor)).samples
            assert sample.scores is not None
            expected |= {(module.name, name, column): score for name, score in sample.scores.items()}
    found = {(*key, column): float(row[column]) for key, row in rows.items() for column in list(row)[2:]}
    assert found == expected
    functions = {function for _, function in rows}
    assert {"mix", "calls"} <= functions and not {"calm", "leaf"} & functions
    assert metrics["functions"] == len(rows) == 3 and metrics["modules"] == 2
    pairs = [(float(row["heuristic_score"]), float(row["policy_score"])) for row in rows.values()]
    mean = math.prod((policy + FLOOR) / (before + FLOOR) for before, policy in pairs) ** (1 / len(pairs))
    assert metrics["reduction_percent"] == pytest.approx(100 * (1 - mean)) and mean != 1
    risen = sorted(name for (_, name), pair in zip(rows, pairs, strict=True) if pair[1] > pair[0])
    groups = metrics["groups"]
    assert [groups[name]["functions"] for name in ("unseen_modules", "unseen_projects")] == [2, 1]

    page, card = (output / "report.html").read_text(), json.loads((output / "model-card.json").read_text())
    assert "Policy for regalloc" in page and all(f">{name}<" in page for name in risen)
    assert card["measure"] == "score" and sorted(entry["name"] for entry in card["worst_functions"]) == risen
    assert "Functions whose score rose most" in (output / "model-card.md").read_text()
    told = change(metrics["reduction_percent"], ("lower scores", "higher scores"))
    assert told in (output / "summary.md").read_text()
    shown = step("show", "--metrics", output)
    assert shown.returncode == 0 and told in shown.stdout

    # Completed by a release clang of the policy, it says the same and compiles nothing.
    release = tmp_path / "release"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "release", "--policy", str(other)]
    subprocess.run([*command, "--output", str(release)], check=True)
    done = step(*inputs, "--evaluation", output, "--release-toolchain", release, "--output", tmp_path / "report",
                "--min-reduction-percent", 99)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "compiling held-out modules" not in done.stdout + done.stderr
    report = json.loads((tmp_path / "report" / "metrics.json").read_text())
    own = {"inputs", "variants"}
    assert {k: v for k, v in report.items() if k not in own} == {k: v for k, v in metrics.items() if k not in own}
    assert report["inputs"]["release_clang"] == str(release / "bin" / "clang")
    assert (tmp_path / "report" / "report.csv").read_bytes() == (output / "report.csv").read_bytes()

    # What was the warmstart policy comes to the same as the policy that is judged.
    done = step(*inputs[:-1], one, "--output", tmp_path / "one", "--min-reduction-percent", -99)
    assert done.returncode == 0, done.stderr
    judged = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert judged["reduction_percent"] == metrics["warmstart"]["reduction_percent"] != metrics["reduction_percent"]
    assert (judged["verdict"], judged["release"], judged["warmstart"]) == ("better", "yes", None)

    # A policy of another problem is refused.
    done = step(*inputs[2:], "--output", tmp_path / "mixed")
    assert done.returncode == 1 and "is a policy for regalloc, not for inlining" in done.stderr
    assert not (tmp_path / "mixed").exists()


def test_a_sweep_is_the_inliners(tmp_path: Path) -> None:
    paths = ("--corpus", tmp_path, "--toolchain", tmp_path, "--policy", tmp_path, "--output", tmp_path / "out")
    done = step("--problem", "regalloc", *paths, "--thresholds", "5")
    assert done.returncode == 1
    assert "--thresholds are of the inliner" in done.stderr and "leave --thresholds out" in done.stderr
    for fine in (("--thresholds", ","), ("--preset", "tiny")):  # retraining gives the one, a pipeline the other
        done = step("--problem", "regalloc", *paths, *fine)
        assert done.returncode == 1 and "is not a corpus" in done.stderr, "nothing is wrong but the paths"
