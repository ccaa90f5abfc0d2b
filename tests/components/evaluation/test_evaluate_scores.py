"""Tests of the whole step on a small real corpus whose functions the training clang scores."""

from __future__ import annotations

import csv
import html
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.objects.function_names import demangle
from components.core.formats.corpus import Corpus, load_corpus
from components.core.formats.splits import Splits, write_splits
from components.core.objectives.geometric_mean import FLOOR
from components.evaluation.report.formatting import change
from components.platform.storage.manifest import write_manifest
from tests.components.conftest import PRESSED
from tests.components.evaluation.conftest import write_evicting_policy
from tests.components.evaluation.test_evaluate import step


@pytest.fixture(scope="module")
def pressed(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Path:
    """A corpus in which all modules are held out, and "lib" is an unseen project."""
    directory = tmp_path_factory.mktemp("scores") / "corpus"
    names = tuple(module.name for module in make_corpus(directory, PRESSED))
    write_splits(directory, Splits(0, (), (), names, ("lib",)))
    write_manifest(directory)
    return directory


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory, training_toolchain: Path) -> tuple[Path, Path]:
    """Two opposite policies: one evicts the least used register, one the most used."""
    root = tmp_path_factory.mktemp("policies")
    one = write_evicting_policy(root / "lightest", training_toolchain, heaviest=False)
    return one, write_evicting_policy(root / "heaviest", training_toolchain, heaviest=True)


@pytest.mark.toolchain
def test_scores_equal_those_in_the_training_log(
    tmp_path: Path, pressed: Path, training_toolchain: Path, policies: tuple[Path, Path]
) -> None:
    one, other = policies
    inputs = ("--problem", "regalloc", "--corpus", pressed, "--toolchain", training_toolchain, "--policy", other)
    output = tmp_path / "evaluation"
    others = ("--warmstart", one, "--compare-with", other)
    done = step(*inputs, *others, "--min-reduction-percent", 99, "--preset", "tiny", "--output", output)
    assert done.returncode == 0, done.stderr
    assert (
        "training clang" in done.stdout
        and "policy of --compare-with" in done.stdout
        and "lower / equal / higher" in done.stdout
    )
    metrics = json.loads((output / "metrics.json").read_text())
    assert (metrics["measure"], metrics["problem"], metrics["excluded"]) == ("score", "regalloc", [])
    assert (metrics["policy_compiled_by"], metrics["binaries"], metrics["programs"]) == ("training", [], None)
    assert [variant["name"] for variant in metrics["variants"]] == ["baseline", "warmstart", "reference", "policy"]
    assert metrics["reference"]["reduction_percent"] == metrics["reduction_percent"]
    assert metrics["inputs"]["reference"] == str(other)
    assert (metrics["verdict"], metrics["release_policy"]) == ("not better", "none")

    with open(output / "report.csv", newline="") as file:
        rows = {(row["module_name"], row["identifier"]): row for row in csv.DictReader(file)}
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    expected: dict[tuple[str, str, str], float] = {}
    for column, advisor in (("heuristic_score", Advisor("log")), ("policy_score", Advisor("policy", other, log=True))):
        for module in load_corpus(pressed):
            (sample,) = compiler(Request(module, advisor)).samples
            assert sample.scores is not None
            expected |= {(module.name, name, column): score for name, score in sample.scores.items()}
    reported = {(*key, column): float(row[column]) for key, row in rows.items() for column in list(row)[2:]}
    assert reported == expected
    functions = {function for _, function in rows}
    assert {"mix", "calls"} <= functions and not {"calm", "leaf"} & functions
    assert metrics["functions"] == len(rows) == 3 and metrics["modules"] == 2
    pairs = [(float(row["heuristic_score"]), float(row["policy_score"])) for row in rows.values()]
    mean = math.prod((policy + FLOOR) / (before + FLOOR) for before, policy in pairs) ** (1 / len(pairs))
    assert metrics["reduction_percent"] == pytest.approx(100 * (1 - mean)) and mean != 1
    worse = sorted(name for (_, name), pair in zip(rows, pairs, strict=True) if pair[1] > pair[0])
    assert worse, "evicting the most used register must increase scores"
    groups = metrics["groups"]
    assert [groups[name]["functions"] for name in ("unseen_modules", "unseen_projects")] == [2, 1]

    page, card = (output / "report.html").read_text(), json.loads((output / "model-card.json").read_text())
    assert "regalloc" in page and all(f">{html.escape(name)}<" in page for name in demangle(worse))
    assert card["measure"] == "score" and sorted(entry["name"] for entry in card["worst_functions"]) == worse
    assert "rose most" in (output / "model-card.md").read_text()
    reduction = change(metrics["reduction_percent"], ("lower scores", "higher scores"))
    assert reduction in (output / "summary.md").read_text()
    shown = step("show", "--metrics", output)
    assert shown.returncode == 0 and reduction in shown.stdout

    # Completing it with a release clang gives the same figures and compiles nothing.
    release = tmp_path / "release"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "release", "--policy", str(other)]
    subprocess.run([*command, "--output", str(release)], check=True)
    options = ["--evaluation", output, "--release-toolchain", release, "--output", tmp_path / "report"]
    options += ["--min-reduction-percent", 99]
    done = step(*inputs, *options)
    assert done.returncode == 0, done.stderr
    assert "compiling modules" not in done.stdout + done.stderr
    report = json.loads((tmp_path / "report" / "metrics.json").read_text())
    metrics["inputs"]["release_clang"], metrics["release_policy"] = str(release / "bin" / "clang"), "trained"
    assert report == metrics and report["inputs"]["warmstart"] == str(one) and len(report["variants"]) == 4
    assert (tmp_path / "report" / "report.csv").read_bytes() == (output / "report.csv").read_bytes()

    # The warmstart figures are the earlier evaluation's, so another warmstart policy is refused.
    arguments = (*inputs, "--evaluation", output, "--release-toolchain", release, "--output", tmp_path / "again")
    assert step(*arguments, "--warmstart", one).returncode == 0
    done = step(*arguments[:-1], tmp_path / "mixed", "--warmstart", other)
    assert done.returncode == 1 and "warmstart" in done.stderr

    # A recipe without benchmarks is reported in the terms of scores.
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: lib\nsource: {{path: {tmp_path}}}\ncmake: {{}}\n")
    done = step(*arguments[:-1], tmp_path / "unrun", "--recipe", recipe)
    assert done.returncode == 0, done.stderr
    assert "benchmarks" in done.stdout + done.stderr
    recipe.write_text(recipe.read_text().replace("lib", "elsewhere"))
    done = step(*arguments[:-1], tmp_path / "unknown", "--recipe", recipe)
    assert done.returncode == 0, done.stderr
    assert "instructions" in done.stdout + done.stderr

    # The warmstart policy has the same figures when it is evaluated as the policy.
    done = step(*inputs[:-1], one, "--output", tmp_path / "one", "--min-reduction-percent", -99)
    assert done.returncode == 0, done.stderr
    evaluated = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert evaluated["reduction_percent"] == metrics["warmstart"]["reduction_percent"] != metrics["reduction_percent"]
    assert (evaluated["verdict"], evaluated["release_policy"]) == ("better", "trained")
    assert evaluated["warmstart"] is None

    # A policy of another problem is refused.
    done = step(*inputs[2:], "--output", tmp_path / "mixed")
    assert done.returncode == 1 and "regalloc" in done.stderr
    assert not (tmp_path / "mixed").exists()


def test_sweep_is_refused_for_scores(tmp_path: Path) -> None:
    paths = ("--corpus", tmp_path, "--toolchain", tmp_path, "--policy", tmp_path, "--output", tmp_path / "out")
    done = step("--problem", "regalloc", *paths, "--thresholds", "5")
    assert done.returncode == 1
    assert "--thresholds" in done.stderr and "leave --thresholds out" in done.stderr
    for accepted in (("--thresholds", ","), ("--preset", "tiny")):  # retraining passes the first, a pipeline the second
        done = step("--problem", "regalloc", *paths, *accepted)
        assert done.returncode == 1 and "a corpus" in done.stderr, "only the paths are wrong"
