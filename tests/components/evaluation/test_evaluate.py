"""Tests of the whole step on a small real corpus, with the training clang and a release clang."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import Corpus
from components.core.formats.splits import Splits, write_splits
from components.evaluation.projects.commands import EXIT_NOT_BETTER
from tests.support.commands import run_command


def step(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("components.evaluation", *arguments, timeout=600)


@pytest.mark.toolchain
def test_release_clang_warmstart_and_sweep(
    tmp_path: Path, corpus_directory: Path, training_toolchain: Path, release: Path, never: Path, always: Path
) -> None:
    inputs = ("--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", never)
    output = tmp_path / "evaluation"
    options = ["--release-toolchain", release, "--warmstart", always, "--compare-with", "pretrained"]
    options += ["--thresholds", "0,5", "--output", output]
    done = step(*inputs, *options)
    assert done.returncode == 0, done.stderr
    assert "release clang" in done.stdout
    metrics = json.loads((output / "metrics.json").read_text())
    assert (metrics["modules"], metrics["policy_compiled_by"], metrics["excluded"]) == (3, "release", [])
    assert metrics["sweep"]["5"]["policy_bytes"] == metrics["baseline_bytes"]
    assert metrics["warmstart"]["policy_bytes"] != metrics["policy_bytes"] != metrics["baseline_bytes"]
    compared = {metrics[name]["policy_bytes"] for name in ("warmstart", "reference")}
    assert len(compared | {metrics["policy_bytes"], metrics["baseline_bytes"]}) == 4
    assert metrics["inputs"]["reference"] == "pretrained" and "pretrained policy" in done.stdout
    assert {name: group["modules"] for name, group in metrics["groups"].items()} == {
        "unseen_modules": 2,
        "unseen_projects": 1,
    }
    with open(output / "report.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["policy_bytes"]) for row in rows) == metrics["policy_bytes"]
    assert "known/words.cpp.o" in (output / "report.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation"]
    assert (metrics["verdict"], metrics["release_policy"]) == ("not better", "trained"), "the release clang embeds it"

    # The training clang takes the same decisions when it runs the same policy.
    options = ["--thresholds", "", "--output", tmp_path / "greedy", "--fail-if-not-better"]
    options += ["--min-reduction-percent", "99"]
    done = step(*inputs, *options)
    assert done.returncode == EXIT_NOT_BETTER, done.stderr
    assert "training clang" in done.stdout
    greedy = json.loads((tmp_path / "greedy" / "metrics.json").read_text())
    assert greedy["policy_bytes"] == metrics["policy_bytes"]
    assert (greedy["sweep"], greedy["warmstart"], greedy["best_threshold"]) == ({}, None, None)

    arguments = ("--policy", "pretrained", "--thresholds", "", "--quiet", "--output", tmp_path / "pretrained")
    done = step("--corpus", corpus_directory, "--toolchain", training_toolchain, *arguments)
    assert done.returncode == 0, done.stderr
    pretrained = json.loads((tmp_path / "pretrained" / "metrics.json").read_text())
    several = len(pretrained["per_project"]) > 1
    verdict, *projects = done.stdout.splitlines()[-2 if several else -1 :]
    assert verdict.startswith("verdict"), "what a server's log has"
    assert all(line.startswith("by project: ") for line in projects)
    assert pretrained["policy_bytes"] == metrics["reference"]["policy_bytes"]

    # Completing it with the release clang gives the figures of the whole evaluation and compiles only the policy.
    options = ["--evaluation", tmp_path / "greedy", "--release-toolchain", release, "--release-if", "always"]
    options += ["--output", tmp_path / "report"]
    done = step(*inputs, *options)
    assert done.returncode == 0, done.stderr
    assert "modules, policy" in done.stdout and "compiling modules, baseline" not in done.stdout
    report = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert (report["policy_compiled_by"], report["as_under_the_training_clang"]) == ("release", 3)
    same = ("baseline_bytes", "policy_bytes", "reduction_percent", "other_modules", "modules")
    assert [report[key] for key in same] == [metrics[key] for key in same]
    assert (greedy["release_policy"], report["release_policy"]) == ("none", "trained")
    assert report["variants"][0] == greedy["variants"][0] and len(report["variants"]) == 2
    assert report["variants"][1]["clang"] == str(release / "bin" / "clang")
    assert f"{metrics['policy_bytes']:,}" in (tmp_path / "report" / "summary.md").read_text()

    options = ["--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", always]
    options += ["--evaluation", tmp_path / "greedy", "--release-toolchain", release, "--output", tmp_path / "mixed"]
    done = step(*options)
    assert done.returncode == 1 and "another policy" in done.stderr

    card = json.loads((tmp_path / "report" / "model-card.json").read_text())
    assert (card["problem"], card["gate"]["compiled_by"]) == ("inlining", "release")
    assert card["corpus"]["projects"] == {"known": 2, "unknown": 1} or card["corpus"]["modules"]["heldout"] == 3
    assert card["features"] and card["policy_digest"]
    text = (tmp_path / "report" / "model-card.md").read_text()
    assert card["policy_digest"] in text and card["gate"]["verdict"] in text

    shown = step("show", "--metrics", output)
    assert shown.returncode == 0
    assert f"{metrics['policy_bytes']:,}" in shown.stdout


@pytest.mark.toolchain
def test_release_clang_with_another_policy_is_refused(
    tmp_path: Path, corpus_directory: Path, training_toolchain: Path, release: Path, always: Path
) -> None:
    options = ["--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", always]
    options += ["--release-toolchain", release, "--output", tmp_path / "out"]
    done = step(*options)
    assert done.returncode == 1
    assert "another policy" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.toolchain
def test_damaged_policy_is_refused_before_any_compile(
    tmp_path: Path, corpus_directory: Path, training_toolchain: Path, never: Path
) -> None:
    copy = tmp_path / "policy"
    subprocess.run(["cp", "-r", never, copy], check=True)
    content = (copy / "policy.so").read_bytes()
    (copy / "policy.so").write_bytes(content[: len(content) // 2])
    done = step(
        "--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", copy, "--output", tmp_path / "out"
    )
    assert done.returncode == 1
    assert "policy.so" in done.stderr
    assert not (tmp_path / "out").exists()


def test_errors_of_bad_options_have_a_remedy(tmp_path: Path) -> None:
    paths = ("--corpus", tmp_path, "--toolchain", tmp_path, "--policy", tmp_path, "--output", tmp_path / "out")
    for arguments, message in (
        (("--thresholds", "5,many"), "--thresholds '5,many'"),
        (("--recipe", "tiny"), "pass --release-toolchain"),
        ((), "is not a corpus"),
    ):
        done = step(*paths, *arguments)
        assert done.returncode == 1
        assert message in done.stderr
        assert "remedy:" in done.stderr
        assert "Traceback" not in done.stderr
    done = step(*paths, "--min-reduction-percent", "101")
    assert done.returncode == 2 and "--min-reduction-percent" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_corpus_without_heldout_modules_is_refused(tmp_path: Path, tiny_corpus: Corpus) -> None:
    copy = tmp_path / "corpus"
    subprocess.run(["cp", "-r", tiny_corpus.directory, copy], check=True)
    write_splits(copy, Splits(0, tuple(module.name for module in tiny_corpus), (), ()))
    done = step("--corpus", copy, "--toolchain", tmp_path, "--policy", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "held-out" in done.stderr
