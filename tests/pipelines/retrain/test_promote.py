"""Tests of the reasons to retrain, of promotion and of rollback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.formats.corpus import write_description
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import Mode, Toolchain
from components.core.objectives import SCORE, SIZE
from components.core.objectives.estimate import MODULES, Estimate, Interval
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.projects.flags.types import SectionSizes
from components.evaluation.benchmarks.benchmark_comparison import BenchmarkComparison, summarize_programs
from components.evaluation.measurements import BASELINE, POLICY, Measurements, write_measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import (
    BinariesComparison,
    Metrics,
    RunMetrics,
    Verdict,
    WholeProjects,
    encode_json,
)
from components.evaluation.projects.linked_binaries import Binary, summarize_binaries
from components.evaluation.report.terminal_report import read_metrics
from components.platform.errors import UserError
from components.platform.launcher.notify import NOTIFY_VARIABLE
from components.platform.storage import digest, publish
from components.platform.storage.manifest import write_manifest
from components.ppo.module_sampler import read_oversampling
from pipelines.local.run_locally import local_steps
from pipelines.retrain.artifacts import check_run, module_checksums
from pipelines.retrain.check import Limits, RetrainInputs, drift, retrain_reasons
from pipelines.retrain.evaluate_deployed import evaluate_deployed, reported_error
from pipelines.retrain.promote import (
    compare,
    level_text,
    may_steer,
    promote,
    promotion,
    regressed_modules,
    run_artifacts,
)
from pipelines.retrain.retraining import REPORT_STEP, training_start
from pipelines.retrain.sequential import ALPHA, rotated, spent_alpha, week_of
from pipelines.retrain.state import Decision, Deployed, State, load_state, save_state
from pipelines.spec import COMPILED
from tests.support.commands import run_command

DAY_S = 86400.0
OLD = Deployed(
    policy="gs://b/old",
    policy_digest="d" * 64,
    problem="inlining",
    llvm_version="19.1.7",
    features=("a", "b"),
    modules={"m1": "x", "m2": "y", "m3": "z", "m4": "w"},
    reduction_percent=4.0,
    ci95=(3.0, 5.0),
    promoted_at=0.0,
)


def state(comparisons: int = 0, **more: Any) -> State:
    return State(deployed=replace(OLD, **more), comparisons={OLD.policy_digest: comparisons} if comparisons else {})


def measured(policy: list[int], names: str = "abcdefgh", baseline: int = 1000) -> Measurements:
    count = len(policy)
    return Measurements(
        SIZE,
        tuple(names[:count]),
        ("p",) * count,
        np.zeros(count, bool),
        {BASELINE: np.full(count, baseline), POLICY: np.array(policy)},
        languages=("c",) * count,
    )


def estimated(reduction_percent: float, interval: Interval) -> Estimate:
    return Estimate(target=MODULES, units=8, reduction_percent=reduction_percent, interval95=interval)


def evaluated(reduction_percent: float, interval: Interval) -> Metrics:
    metrics = summarize(measured([1000] * 8), 0.0)
    metrics.reduction_percent, metrics.other_modules = reduction_percent, estimated(reduction_percent, interval)
    return metrics


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (RetrainInputs(DAY_S), None),
        (RetrainInputs(DAY_S, llvm_version="19.1.7", features=("a", "b"), modules=OLD.modules), None),
        (RetrainInputs(DAY_S, llvm_version="22.1.0"), "LLVM is 22.1.0"),
        (RetrainInputs(DAY_S, features=("a", "c")), "no longer logs these features of the policy: b"),
        (RetrainInputs(DAY_S, features=("a", "b", "c")), None),
        (RetrainInputs(DAY_S, modules={"renamed": "x", "m2": "y", "m3": "z", "new": "v"}), None),
        (RetrainInputs(DAY_S, modules={"m1": "x", "m2": "Y", "m3": "Z", "m4": "w"}), "50% of the modules are new"),
        (RetrainInputs(DAY_S, metrics=evaluated(3.5, (2.0, 4.5))), None),
        (RetrainInputs(DAY_S, metrics=evaluated(1.0, (0.5, 1.5))), "gains 1.00%"),
        (RetrainInputs(DAY_S, metrics=evaluated(-0.1, (-9, 9))), "gains -0.10%"),
        (RetrainInputs(100 * DAY_S), "100 days old"),
    ],
)
def test_reasons_to_retrain(facts: RetrainInputs, named: str | None) -> None:
    reasons = retrain_reasons(state(), facts, Limits())
    assert (reasons == []) if named is None else (len(reasons) == 1 and named in reasons[0])


def test_no_deployed_policy_is_a_reason() -> None:
    assert retrain_reasons(State(), RetrainInputs(0.0), Limits()) == ["nothing is deployed yet"]


def test_drift_is_about_content_not_names() -> None:
    assert drift({"a": "1"}, {"b": "1"}) == 0.0
    assert drift({"a": "1"}, {"a": "2", "b": "1"}) == 0.5
    assert drift({"a": "1"}, {}) == 0.0


def test_better_requires_significance() -> None:
    old = measured([1000] * 8)
    clearly = compare(measured([950, 940, 960, 955, 945, 950, 952, 948]), old)
    assert clearly.clearly_better and clearly.modules == 8 and 4 < clearly.gain.reduction_percent < 6
    one_lucky_module = compare(measured([600, 1010, 1005, 1004, 1010, 1006, 1008, 1001]), old)
    assert one_lucky_module.gain.reduction_percent > 0 and not one_lucky_module.clearly_better
    assert compare(measured([1, 2, 3], names="abc"), old).modules == 3
    with pytest.raises(UserError, match="no modules in common"):
        compare(measured([1, 2], names="xy"), old)


def test_modules_that_grew_by_more_than_a_percent_regressed() -> None:
    assert regressed_modules(measured([1005, 1100, 900, 1020])) == ("b", "d")


def test_half_of_the_sources_never_steer_the_next_training() -> None:
    assert regressed_modules(measured([1100] * 8)) == tuple("abcdh")
    assert [may_steer(f"p/src/{name}.c.o") for name in "abcdefgh"] == [may_steer(name) for name in "abcdefgh"]


def scored(policy: list[float]) -> Measurements:
    count = len(policy)
    return Measurements(
        SCORE,
        tuple("abcdefgh"[:count]),
        ("p",) * count,
        np.zeros(count, bool),
        {BASELINE: np.full(count, 1e6), POLICY: np.array(policy)},
        tuple(f"f{index}" for index in range(count)),
        np.arange(count),
    )


def test_scores_are_compared_like_sizes() -> None:
    old = scored([1e6] * 8)
    comparison = compare(scored([0.95e6, 0.94e6, 0.96e6, 0.955e6, 0.945e6, 0.95e6, 0.952e6, 0.948e6]), old)
    assert comparison.clearly_better and comparison.modules == 8 and 4.9 < comparison.gain.reduction_percent < 5.1
    assert not compare(old, old).clearly_better
    assert regressed_modules(scored([1.005e6, 1.1e6, 0.9e6, 1.2e6])) == ("d", "b")
    with pytest.raises(UserError, match="one evaluation measures scores, the other sizes"):
        compare(old, measured([1000] * 8))


@pytest.fixture
def run(tmp_path: Path) -> dict[str, str]:
    """Return artifacts of a run whose policy makes most modules 5% smaller."""
    return artifacts(tmp_path / "run", [950, 940, 960, 955, 945, 950, 952, 1015])


SPEC = FeatureSpec("callee_users", "int64", (1,))


def artifacts(
    root: Path, policy: list[int], verdict: Verdict = "better", loadable: bool = False, seed: int = 0
) -> dict[str, str]:
    """Publish the artifacts of a run; return their locations.

    Args:
        policy: text of each module under the policy; 1000 under the heuristic.
        loadable: whether the policy has its weights (random ones of `seed`) and policy.so, and there is a toolchain.
    """
    measurements = measured(policy)
    metrics = summarize(measurements, 0.0)
    metrics.verdict, metrics.other_modules = verdict, estimated(4.0, (3.0, 5.0))
    with publish(root / "evaluation", "evaluation") as directory:
        (directory / "metrics.json").write_text(encode_json(metrics))
        write_measurements(directory, measurements)
    with publish(root / "policy", "policy") as directory:
        write_policy_info(
            directory,
            PolicyInfo("inlining", (SPEC,), 2, "ppo", llvm_version="19.1.7", metrics={"sum": float(sum(policy))}),
        )
        if loadable:
            weights = np.random.default_rng(seed).normal(size=(2, 2)).astype(np.float32)
            layers = ((weights, np.zeros(2, np.float32)),)
            dense = DensePolicy("inlining", (SPEC,), {SPEC.name: np.arange(1000.0)}, layers)
            export_fast(dense, directory, Path("/usr/bin/clang-19"))
            dense.save(directory)
    if loadable:
        metrics.inputs.policy_digest = digest(root / "policy")
        with publish(root / "evaluation", "evaluation") as directory:
            (directory / "metrics.json").write_text(encode_json(metrics))
            write_measurements(directory, measurements)
        toolchain_at(root / "training")
    with publish(root / "corpus", "corpus") as directory:
        for name in measurements.modules:
            (directory / f"{name}.bc").write_text(f"bitcode {name}")
            (directory / f"{name}.cmd").write_text("-cc1")
        write_description(directory, list(measurements.modules))
    return {name: str(root / name) for name in ("policy", "evaluation", "corpus")}


def toolchain_at(
    location: Path, mode: Mode = "training", features: tuple[FeatureSpec, ...] = (SPEC,), clang_version: str = ""
) -> str:
    """Publish a toolchain without a working clang; return its location."""
    built = {"clang_version": clang_version} if clang_version else {}
    with publish(location, "toolchain") as directory:
        (directory / "bin").mkdir()
        (directory / "bin" / "clang").touch()
        toolchain = Toolchain(directory, mode, "19.1.7", "x86_64-pc-linux-gnu", {"inlining": features}, built)
        (directory / "toolchain.json").write_text(json.dumps(toolchain.to_json()))
    return str(location)


def none_deployed(policy: str) -> str:
    pytest.fail(f"evaluated {policy}, although nothing is deployed")


def test_first_policy_better_than_oz_is_promoted(run: dict[str, str]) -> None:
    after, why = promotion(State(), run, none_deployed, now=5.0)
    assert after.deployed is not None and why.startswith(
        "promoted: against LLVM's heuristic, as nothing is deployed, +4."
    )
    assert after.deployed.policy == run["policy"] and after.deployed.promoted_at == 5.0
    assert after.deployed.features == ("callee_users",) and after.deployed.modules == module_checksums(run["corpus"])
    assert list(after.deployed.modules) == list("abcdefgh") and after.regressed == ("h",)


def test_only_policy_better_than_deployed_is_promoted(run: dict[str, str], tmp_path: Path) -> None:
    worse = artifacts(tmp_path / "old", [990] * 8)["evaluation"]
    after, why = promotion(state(), run, lambda _: worse, now=5.0)
    assert after.deployed is not None and after.deployed.policy == run["policy"] and why.startswith("promoted")
    assert after.history == (OLD,) and after.comparisons == {OLD.policy_digest: 1}
    assert after.deployed.better_ci95 is not None and after.deployed.better_ci95[0] > 0
    as_good = artifacts(tmp_path / "same", [951, 941, 959, 954, 946, 951, 951, 1014])["evaluation"]
    same, why = promotion(state(), run, lambda _: as_good)
    assert same.deployed == OLD and same.comparisons == {OLD.policy_digest: 1}
    assert why.startswith("not promoted: against the deployed policy")
    (decision,) = same.decisions
    assert decision.kind == "not promoted" and why == f"not promoted: {decision.reason}"
    assert decision.against == OLD.policy_digest and decision.modules == 8 and decision.alpha == 0.025


def test_each_comparison_must_be_surer_than_the_last(run: dict[str, str], tmp_path: Path) -> None:
    """A difference that suffices the first time does not after a year of comparisons."""
    slightly = artifacts(tmp_path / "old", [975, 960, 985, 950, 970, 975, 940, 1055])["evaluation"]
    first, why = promotion(state(), run, lambda _: slightly, now=5.0)
    assert first.deployed is not None and first.deployed.policy == run["policy"], why
    later, why = promotion(state(comparisons=51), run, lambda _: slightly, now=5.0)
    assert later.deployed == OLD and later.comparisons == {OLD.policy_digest: 52} and "99.9982% interval" in why


@pytest.mark.parametrize(
    ("number", "level"), [(1, "97.5"), (2, "99.17"), (10, "99.955"), (51, "99.9981"), (400, "99.999969"), (10**9, None)]
)
def test_level_is_never_100_percent(number: int, level: str | None) -> None:
    """Six digits were "100%" from the 316th comparison on, and 100 million of them ended in a math domain error."""
    compared = compare(measured([951, 941, 959, 954]), None, number)
    text = level_text(compared.alpha)
    assert text == (level or "99.9999999999") and f"({text}% interval " in str(compared)
    assert compared.gain.interval(1 - compared.alpha) is not None


def test_promotion_records_author_and_reason(run: dict[str, str]) -> None:
    after, _why = promotion(State(), run, none_deployed, now=5.0, by="somebody")
    assert after.deployed is not None
    assert after.deployed.promoted_by == "somebody" and "as nothing is deployed" in after.deployed.reason


def deploy(state_path: str, root: Path, policy: list[int]) -> dict[str, str]:
    """Deploy the policy of a run by hand; return the run's artifacts."""
    run = artifacts(root, policy)
    deployed = replace(OLD, policy=run["policy"], policy_digest=digest(root / "policy"))
    save_state(state_path, load_state(state_path).promoted(deployed))
    return run


def test_concurrent_promotion_is_compared_again(run: dict[str, str], tmp_path: Path) -> None:
    """While one run is compared, another is promoted; the first is then compared with the promoted one."""
    state_path = str(tmp_path / "state.json")
    old = deploy(state_path, tmp_path / "worse", [990] * 8)
    other = artifacts(tmp_path / "other", [700, 710, 690, 705, 695, 700, 702, 750])
    asked = []

    def evaluate(policy: str) -> str:
        asked.append(policy)
        if policy == old["policy"]:  # the other promotion happens now
            assert promote(state_path, other, lambda _: old["evaluation"], "other").startswith("promoted")
            return old["evaluation"]
        return other["evaluation"]

    assert promote(state_path, run, evaluate, "me").startswith("not promoted: against the deployed policy")
    loaded = load_state(state_path)
    assert asked == [old["policy"], other["policy"]]
    assert loaded.deployed is not None and loaded.deployed.policy == other["policy"]
    assert loaded.comparisons[loaded.deployed_digest] == 1
    assert [entry.policy for entry in loaded.history] == [old["policy"]]
    assert [(entry.kind, entry.by) for entry in loaded.decisions] == [("not promoted", "me"), ("promoted", "other")]


def test_comparison_is_not_repeated_in_the_same_week(tmp_path: Path) -> None:
    """A step that is repeated after its pod was lost neither compiles nor counts a second comparison."""
    state_path = tmp_path / "state.json"
    old = deploy(str(state_path), tmp_path / "old", [950] * 8)
    new = artifacts(tmp_path / "new", [951, 949, 950, 950, 952, 948, 950, 949])
    first = promote(str(state_path), new, lambda _: old["evaluation"], "me")
    before = state_path.read_bytes()
    again = promote(str(state_path), new, lambda _: pytest.fail("evaluated again"), "me")
    assert again.startswith(first) and "compared on " in again and state_path.read_bytes() == before


def test_rolled_back_policy_is_promoted_again_only_if_asked(tmp_path: Path) -> None:
    state_path = str(tmp_path / "state.json")
    old = deploy(state_path, tmp_path / "old", [990] * 8)
    new = artifacts(tmp_path / "new", [700, 710, 690, 705, 695, 700, 702, 750])
    assert promote(state_path, new, lambda _: old["evaluation"], "me").startswith("promoted")
    done = mlgo("rollback", "--state", state_path, "--by", "somebody", "--reason", "slower at start-up")
    assert done.returncode == 0 and "rolled back by somebody: " in done.stdout, done.stderr
    after = load_state(state_path)
    assert after.comparisons == {digest(Path(old["policy"])): 1}, "counted on"
    with pytest.raises(UserError, match=r"was rolled back on .* by somebody: slower at start-up") as error:
        promote(state_path, new, lambda _: old["evaluation"], "me")
    assert "--again" in error.value.remedy
    assert promote(state_path, new, lambda _: old["evaluation"], "me", again=True).startswith("promoted")
    assert [entry.kind for entry in load_state(state_path).decisions] == ["promoted", "rolled back", "promoted"]


def test_rollback_to_a_policy_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    state_path = tmp_path / "state.json"
    for name in ("old", "new"):
        deploy(str(state_path), tmp_path / name, [990] * 8)
    shutil.rmtree(tmp_path / "old" / "policy")
    before = state_path.read_bytes()
    done = mlgo("rollback", "--state", state_path)
    assert (
        done.returncode == 1 and "old/policy is missing or has changed" in done.stderr and "restore it" in done.stderr
    )
    assert state_path.read_bytes() == before


def test_changed_deployed_policy_is_refused(run: dict[str, str], tmp_path: Path) -> None:
    state_path = str(tmp_path / "state.json")
    deploy(state_path, tmp_path / "old", [990] * 8)
    with publish(tmp_path / "old" / "policy", "policy") as directory:
        (directory / "policy.json").write_text("{}")
    before = load_state(state_path)
    with pytest.raises(UserError, match="is missing or has changed"):
        promote(state_path, run, lambda _: pytest.fail("evaluated"), "me")
    assert load_state(state_path) == before


def test_artifacts_of_different_runs_are_refused(run: dict[str, str], tmp_path: Path) -> None:
    other = artifacts(tmp_path / "other", [900] * 8)
    metrics = json.loads((tmp_path / "other" / "evaluation" / "metrics.json").read_text())
    metrics["inputs"] = {"policy_digest": "another"}
    with publish(tmp_path / "alien", "trace") as directory:
        (directory / "metrics.json").write_text(json.dumps(metrics))
        shutil.copy(tmp_path / "other" / "evaluation" / "measurements.json", directory)
    for name, location, named in (
        ("evaluation", tmp_path / "alien", "is of another policy"),
        ("release_report", tmp_path / "alien", "is of another policy"),
        ("corpus", artifacts(tmp_path / "small", [900] * 3)["corpus"], "which has no module d"),
        ("evaluation", tmp_path / "nothing", "does not exist|no metrics.json"),
        ("corpus", tmp_path / "nothing", "nothing"),
    ):
        with pytest.raises(UserError, match=named):
            promotion(State(), {**other, name: str(location)}, none_deployed)


def test_failed_evaluation_of_the_deployed_policy_keeps_its_remedy(run: dict[str, str], tmp_path: Path) -> None:
    """A wrong corpus is no reason to roll back."""
    with pytest.raises(UserError, match=r"cannot be evaluated: .*corpus is damaged") as caught:
        evaluate_deployed(run["policy"], run["corpus"], str(tmp_path / "nowhere"), "local:1")
    assert caught.value.remedy and "rollback" not in caught.value.remedy


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("error: a failed\n  remedy: do b\n", ("a failed", "do b")),
        ("a warning\nerror: a:\nclang: error: no c\n  remedy: do b", ("a:\nclang: error: no c", "do b")),
        ("Traceback\nValueError: a\n", ("Traceback\nValueError: a", "")),
        ("", ("", "")),
    ],
)
def test_error_of_a_step_is_passed_on_whole(stderr: str, expected: tuple[str, str]) -> None:
    assert reported_error(stderr) == expected


def test_promoting_a_run_twice_changes_nothing(tmp_path: Path) -> None:
    state_path = tmp_path / "state.json"
    run = artifacts(tmp_path / "run", [950] * 8, loadable=True)
    training = tmp_path / "run" / "training"
    command = ("promote", "--state", state_path, *(f"--{name}={where}" for name, where in run.items()))
    assert "either --run or all of" in mlgo(*command).stderr and "--toolchain is missing" in mlgo(*command).stderr
    done = mlgo(*command, "--toolchain", training, "--by", "somebody", "--output", tmp_path / "decision")
    assert done.stdout.startswith("promoted: against LLVM's heuristic, as nothing is deployed, +5.00% ("), done.stderr
    assert json.loads((tmp_path / "decision" / "promotion.json").read_text())["by"] == "somebody"
    before = state_path.read_bytes()
    again = mlgo(*command, "--toolchain", training, "--output", tmp_path / "decision")
    assert again.stdout.startswith(f"{done.stdout.strip()} (on "), again.stderr
    assert json.loads((tmp_path / "decision" / "promotion.json").read_text())["promoted"] == 1
    shutil.copytree(run["policy"], tmp_path / "copy")
    copy = mlgo(*command, "--toolchain", training, "--policy", tmp_path / "copy")
    assert "it is deployed already" in copy.stdout and state_path.read_bytes() == before
    assert "by somebody" in mlgo("show", "--state", state_path).stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a run with a policy that loads."""
    root = tmp_path_factory.mktemp("finished") / "run"
    artifacts(root, [950] * 8, loadable=True)
    return root


def republish(policy: Path, change: Callable[[Path], object]) -> None:
    """Publish a policy again after a change of its files."""
    change(policy)
    (policy / "manifest.json").unlink()
    write_manifest(policy)


def _other_weights(policy: Path) -> None:
    layers = ((np.array([[0, -9], [0, -9]], np.float32), np.array([0, 7], np.float32)),)
    DensePolicy("inlining", (SPEC,), {SPEC.name: np.arange(1000.0)}, layers).save(policy)


def _other_problem(policy: Path) -> None:
    document = json.loads((policy / "policy.json").read_text())
    (policy / "policy.json").write_text(json.dumps(document | {"problem": "regalloc"}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda policy: (policy / "weights.npz").write_bytes(b""), r"weights\.npz is damaged"),
        (lambda policy: (policy / "weights.npz").unlink(), r"has no weights\.npz"),
        (lambda policy: (policy / "policy.so").unlink(), r"policy\.so is missing"),
        (lambda policy: (policy / "policy.so").write_bytes(b"\x7fELF"), r"policy\.so is not a native policy"),
        (lambda policy: os.truncate(policy / "policy.so", 4096), r"policy\.so"),
        (_other_problem, r"are of different policies: the problem differs, regalloc and inlining"),
        (_other_weights, r"policy\.so and weights\.npz are of different policies: they differ in \d+ of"),
    ],
)
def test_policy_that_does_not_load_or_agree_is_not_deployed(
    finished: Path, tmp_path: Path, change: Callable[[Path], object], named: str
) -> None:
    root = tmp_path / "run"
    shutil.copytree(finished, root)
    republish(root / "policy", change)
    with pytest.raises(UserError, match=named):
        check_run(run_artifacts(str(root), False), f"{root}/training", None)


def test_artifacts_of_another_kind_are_refused(finished: Path, tmp_path: Path) -> None:
    """Each artifact is checked before the first policy is deployed, when nothing else would read it."""
    finished_run = run_artifacts(str(finished), False)
    with publish(tmp_path / "vocab", "vocab") as directory:
        (directory / "vocab.json").write_text("{}")
    release = toolchain_at(tmp_path / "release", "release")
    other = toolchain_at(tmp_path / "other", features=())
    check_run(finished_run, f"{finished}/training", None)
    for name, location, named in (
        ("policy", finished_run["corpus"], "is a corpus, not a policy"),
        ("evaluation", finished_run["policy"], "is a policy, not an evaluation"),
        ("corpus", finished_run["evaluation"], "is an evaluation, not a corpus"),
        ("corpus", str(tmp_path / "vocab"), "is a vocab, not a corpus"),
        ("toolchain", str(tmp_path / "vocab"), "is a vocab, not a toolchain"),
        ("toolchain", release, "is a release toolchain"),
        ("toolchain", other, "does not log: callee_users"),
        ("toolchain", str(tmp_path / "nowhere"), "no toolchain at"),
        ("release_report", finished_run["corpus"], "is a corpus, not an evaluation"),
    ):
        with pytest.raises(UserError, match=named):
            run, toolchain = finished_run | {name: location}, f"{finished}/training"
            check_run(run, run.pop("toolchain", toolchain), None)
    with pytest.raises(UserError, match="deployed policy is for regalloc"):
        check_run(finished_run, f"{finished}/training", "regalloc")


def test_command_deploys_nothing_that_is_of_another_kind(finished: Path, tmp_path: Path) -> None:
    state_path = tmp_path / "state.json"
    command = ("promote", "--state", state_path, *(f"--{n}={finished / n}" for n in ("policy", "evaluation", "corpus")))
    done = mlgo(*command, f"--toolchain={finished / 'corpus'}")
    assert done.returncode == 1 and "is a corpus, not a toolchain" in done.stderr and "Traceback" not in done.stderr
    assert not state_path.exists()


@pytest.mark.parametrize(
    ("option", "artifact", "named"),
    [
        ("--corpus", "policy", "is a policy, not a corpus"),
        ("--corpus", "training", "is a toolchain, not a corpus"),
        ("--toolchain", "corpus", "is a corpus, not a toolchain"),
        ("--evaluation", "corpus", "is a corpus, not an evaluation"),
        ("--evaluation", "evaluation", "is of another policy"),
    ],
)
def test_check_refuses_artifacts_of_another_kind(
    finished: Path, tmp_path: Path, option: str, artifact: str, named: str
) -> None:
    """Not "no reason to retrain", which is what an unattended check would believe."""
    state_path = str(tmp_path / "state.json")
    save_state(state_path, load_state(state_path).promoted(replace(OLD, promoted_at=time.time())))
    done = mlgo("check", "--state", state_path, option, finished / artifact)
    assert done.returncode == 1 and named in done.stderr and "no reason" not in done.stdout, done.stdout + done.stderr


def test_other_modules_judge_each_week() -> None:
    names = [f"m{number}" for number in range(100)]
    weeks = [rotated(names, f"2026-W{week:02}", 0) for week in range(1, 11)]
    assert all(len(week) == 50 for week in weeks) and len(set(weeks)) == 10 and frozenset().union(*weeks) == set(names)
    assert rotated(names, "2026-W01", 1) != weeks[0] == rotated(reversed(names), "2026-W01", 0)
    assert rotated(names[:39], "2026-W01", 0) == set(names[:39])
    assert week_of(1774224000.0) == "2026-W13"


def test_alpha_is_spent_once() -> None:
    assert sum(spent_alpha(number) for number in range(1, 100_000)) == pytest.approx(ALPHA, rel=1e-4)


@pytest.mark.parametrize(
    ("before", "parameters", "start"),
    [
        (State(), {}, "heuristic"),
        (State(OLD), {}, OLD.policy),
        (State(OLD), {"llvm_major": "19"}, OLD.policy),
        (State(OLD), {"llvm_major": "22"}, "heuristic"),
    ],
)
def test_training_starts_from_deployed_policy_of_same_llvm(
    before: State, parameters: dict[str, str], start: str
) -> None:
    assert training_start(before, parameters) == start


def test_deployed_policy_is_not_evaluated_for_a_bad_verdict(tmp_path: Path) -> None:
    state_path = str(tmp_path / "state.json")
    promote(state_path, artifacts(tmp_path / "first", [950] * 8), lambda _: "", "me")
    before = load_state(state_path)

    def evaluate(_policy: str) -> str:
        raise AssertionError("the deployed policy is evaluated")

    refused = {**artifacts(tmp_path / "second", [900] * 8, "not better"), "run": "run-2"}
    why = promote(state_path, refused, evaluate, "other")
    assert why.startswith("not promoted: the verdict on the new policy is")
    after = load_state(state_path)
    assert after.deployed == before.deployed
    assert after.comparisons == {**before.comparisons, after.deployed_digest: 1}, "only lucky ones pass"
    decision = after.decisions[0]
    assert after.decisions[1:] == before.decisions and decision.kind == "not promoted"
    assert (decision.by, decision.run, f"not promoted: {decision.reason}") == ("other", "run-2", why)
    assert decision.reduction_percent == pytest.approx(10) and decision.reduction_ci95 == (3.0, 5.0)
    assert (
        decision.percent is None
        and "not better (10.00% gain over LLVM's heuristic)" in mlgo("show", "--state", state_path).stdout
    )
    assert promote(state_path, refused, evaluate, "another") == why
    assert load_state(state_path) == after, "a repeated step records it once"


def test_bad_verdict_prevents_promotion(tmp_path: Path) -> None:
    """As long as nothing is deployed, each run that is judged counts as a comparison with LLVM's heuristic: otherwise a
    useless policy would be deployed in the week in which it looks good by chance."""
    state = State()
    for number in (1, 2):
        run = artifacts(tmp_path / f"run{number}", [1000 - number] * 8, "not better")
        state, why = promotion(state, run, none_deployed)
        assert state.deployed is None and "not promoted: the verdict" in why and state.comparisons == {"": number}
    assert [entry.alpha for entry in state.decisions] == [spent_alpha(2), spent_alpha(1)]
    lucky = artifacts(tmp_path / "lucky", [975, 960, 985, 950, 970, 975, 940, 1015])
    assert promotion(State(), lucky, none_deployed)[1].startswith("promoted")
    later, why = promotion(State(comparisons={"": 50}), lucky, none_deployed)
    assert later.deployed is None and why.startswith("not promoted: against LLVM's heuristic, as nothing is deployed")


def test_refusal_and_promotion_at_once_are_both_recorded(run: dict[str, str], tmp_path: Path) -> None:
    """The state changes between the refusal's reading and its conditional write; then the new state gets it."""
    state_path, refused = str(tmp_path / "state.json"), artifacts(tmp_path / "bad", [900] * 8, "not better")
    save, others = save_state, [run]

    def interrupted(where: str, after: State) -> None:
        if others:
            assert promote(where, others.pop(), none_deployed, "other").startswith("promoted")
        save(where, after)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.retrain.promote.save_state", interrupted)
        assert promote(state_path, refused, none_deployed, "me").startswith("not promoted")
    loaded = load_state(state_path)
    assert loaded.deployed is not None and loaded.deployed.policy == run["policy"]
    assert [(entry.kind, entry.by) for entry in loaded.decisions] == [("not promoted", "me"), ("promoted", "other")]


def test_start_of_a_training_is_not_promoted_as_a_new_policy(run: dict[str, str], tmp_path: Path) -> None:
    """The report on a release clang that embeds the start is about the start, and its verdict may be "better"."""
    report = read_metrics(Path(run["evaluation"]))
    assert report.verdict == "better"
    report.inputs.policy_role = "start"
    shutil.copytree(run["evaluation"], tmp_path / "report")
    (tmp_path / "report" / "metrics.json").write_text(encode_json(report))
    for name in ("evaluation", "release_report"):
        after, why = promotion(State(), {**run, name: str(tmp_path / "report")}, none_deployed)
        assert after.deployed is None
        assert why == "not promoted: it is the policy that training started from, not a new one"


def test_refused_policy_stays_rolled_back(tmp_path: Path) -> None:
    gone = Decision("rolled back", 1.0, "me", "slow", "p", "d")
    refused = State(decisions=(replace(gone, kind="not promoted", at=2.0), gone))
    assert refused.rollback_of("d") == gone
    assert State(decisions=(replace(gone, kind="promoted"), gone)).rollback_of("d") is None


def test_slower_programs_prevent_promotion(tmp_path: Path, run: dict[str, str]) -> None:
    for policy, promoted in ((1001, False), (1000, True)):
        ran = [BenchmarkComparison("p", "n", "bin/n", RunMetrics(1000, None, 5), RunMetrics(policy, None, 5), "perf")]
        report = summarize(scored([0.95e6] * 8), 0.1, WholeProjects(BinariesComparison(), summarize_programs(ran)))
        with publish(tmp_path / str(policy), "policy") as directory:
            (directory / "metrics.json").write_text(encode_json(report))
        after, why = promotion(State(), {**run, "release_report": str(tmp_path / str(policy))}, none_deployed)
        assert (after.deployed is not None) == promoted
        assert why.startswith("promoted" if promoted else "not promoted")
        assert ("the release clang of the new policy is not better, because programs execute more" in why) != promoted


@pytest.mark.parametrize(
    ("linked_bytes", "stock_bytes", "name", "variant", "promoted"),
    [
        (880, 1000, "tool", "default", True),
        (900, 1000, "tool", "default", True),
        (910, 1000, "tool", "default", False),
        (910, 1000, "other", "default", True),
        (910, 1000, "tool", "full LTO", True),
        pytest.param(920, 1001, "tool", "default", True, id="the code has changed"),
    ],
)
def test_worse_linked_files_prevent_promotion(
    linked_bytes: int, stock_bytes: int, name: str, variant: str, promoted: bool, tmp_path: Path, run: dict[str, str]
) -> None:
    def report(location: Path, size: int, binary: str, stock: int = 1000) -> str:
        sizes = [SectionSizes(text=n, total=n, llvm_size_text=n) for n in (stock, size)]
        whole = summarize_binaries([Binary("p", binary, "program", "c", variant, *sizes)])
        metrics = summarize(measured([950] * 8), 0.0, WholeProjects(whole))
        with publish(location, "trace") as directory:
            (directory / "metrics.json").write_text(encode_json(metrics))
        return str(location)

    worse = artifacts(tmp_path / "old", [990] * 8)["evaluation"]
    deployed = state(evaluation=report(tmp_path / "deployed", 900, "tool"))
    new = {**run, "release_report": report(tmp_path / "new", linked_bytes, name, stock_bytes)}
    after, why = promotion(deployed, new, lambda _: worse, now=5.0)
    assert after.deployed is not None and (after.deployed.policy == run["policy"]) == promoted
    assert ("(default) is 9.00% smaller, with the deployed policy 10.00% smaller" in why) != promoted
    assert after.decisions[0].kind == ("promoted" if promoted else "not promoted")


def test_report_step_exists_in_pipeline() -> None:
    (step,) = (step for step in local_steps(COMPILED, {"recipe": "tiny"}) if step.output == "release_report")
    assert step.name == REPORT_STEP and step.conditions


def test_nothing_is_promoted_or_refused_without_a_state() -> None:
    assert not {"promote", "record-refusal"} & {step.name for step in local_steps(COMPILED, {"recipe": "tiny"})}


def test_seed_of_training_does_not_choose_the_modules_that_judge(tmp_path: Path) -> None:
    parameters = {"recipe": "tiny", "seed": "7", "retrain_state": str(tmp_path / "retrain.json")}
    (arguments,) = (step.arguments for step in local_steps(COMPILED, parameters) if step.name == "promote")
    assert not {"7", "--rotation-seed"} & set(arguments)


def test_promotion_is_saved_and_can_be_rolled_back(tmp_path: Path) -> None:
    state_path = str(tmp_path / "state.json")
    save_state(state_path, load_state(state_path).promoted(replace(OLD, regressed=("m1",))))
    save_state(state_path, load_state(state_path).promoted(replace(OLD, policy="gs://b/new", regressed=("m2", "m3"))))
    loaded = load_state(state_path)
    assert loaded.deployed is not None and loaded.deployed.policy == "gs://b/new"
    assert [entry.policy for entry in loaded.history] == ["gs://b/old"]
    assert loaded.regressed == read_oversampling(Path(state_path)) == ("m2", "m3")
    save_state(state_path, loaded.rolled_back("somebody", "it was slow", 7.0))
    (decision,) = load_state(state_path).decisions
    assert (decision.kind, decision.by, decision.reason, decision.at) == ("rolled back", "somebody", "it was slow", 7.0)
    assert decision.policy == "gs://b/new" and load_state(state_path).rollback_of(OLD.policy_digest) == decision
    assert load_state(state_path).deployed == replace(OLD, regressed=("m1",)) and load_state(state_path).history == ()
    assert load_state(state_path).regressed == read_oversampling(Path(state_path)) == ("m1",), (
        "those of the restored policy"
    )
    with pytest.raises(UserError, match="no previous policy"):
        load_state(state_path).rolled_back()
    with pytest.raises(UserError, match="was modified concurrently"):
        save_state(state_path, loaded)


def test_state_of_version_1_is_read(tmp_path: Path) -> None:
    """Version 1 stored the names of regressed modules only next to the policies, for the policy promoted last."""
    state_path = tmp_path / "state.json"
    entry = {key: value for key, value in asdict(OLD).items() if key != "regressed"}
    before = {"version": 1, "deployed": entry, "history": [entry | {"policy": "gs://b/older"}], "regressed": ["m1"]}
    state_path.write_text(json.dumps(before))
    loaded = load_state(str(state_path))
    assert loaded.deployed == replace(OLD, regressed=("m1",)) and loaded.regressed == ("m1",)
    back = loaded.rolled_back()
    assert back.deployed == replace(OLD, policy="gs://b/older") and back.regressed == (), "version 1 had none for it"
    save_state(str(state_path), loaded)
    assert json.loads(state_path.read_text())["version"] == 4 and load_state(str(state_path)) == loaded


def test_comparisons_that_version_3_counted_with_its_policies_still_count(tmp_path: Path) -> None:
    state_path, older = tmp_path / "state.json", asdict(OLD) | {"policy_digest": "o" * 64, "comparisons": 7}
    document = {"version": 3, "deployed": asdict(OLD) | {"comparisons": 2}, "history": [older], "regressed": []}
    state_path.write_text(json.dumps(document))
    assert load_state(str(state_path)).comparisons == {OLD.policy_digest: 2, "o" * 64: 7}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_unknown_state_version_is_refused(tmp_path: Path, version: int) -> None:
    state_path = tmp_path / "state.json"
    state_path.write_text(json.dumps({"version": version, "deployed": None, "history": [], "regressed": []}))
    if version < 5:
        assert load_state(str(state_path)) == State()
        return
    with pytest.raises(UserError, match=r"version 5"):
        load_state(str(state_path))


@pytest.mark.parametrize("text", ["{}", '{"version": 2}', '{"version": 1, "deployed": 3, "history": []}'])
def test_invalid_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UserError, match=r"state\.json"):
        load_state(str(tmp_path / "state.json"))


def mlgo(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("pipelines", "retrain", *arguments, timeout=120)


@pytest.mark.parametrize(("verdict", "status"), [("better", 0), ("not better", 4)])
def test_promotion_has_a_status_for_ci(verdict: Verdict, status: int, tmp_path: Path) -> None:
    made = artifacts(tmp_path / "run", [950] * 8, verdict, loadable=True)
    artifact_options = [part for name in ("policy", "evaluation", "corpus") for part in (f"--{name}", made[name])]
    for more, expected in ((["--fail-if-not-promoted"], status), ([], 0)):
        state_path = tmp_path / f"{expected}{len(more)}.json"
        done = mlgo(
            "promote", "--state", state_path, *artifact_options, "--toolchain", tmp_path / "run" / "training", *more
        )
        assert done.returncode == expected, done.stderr
        assert done.stdout.splitlines()[-1].startswith("promoted" if verdict == "better" else "not promoted")
    assert mlgo("run", "--help").stdout.count("--fail-if-not-promoted") == 2


def test_other_problem_is_refused_before_training(tmp_path: Path) -> None:
    state_path, output = tmp_path / "state.json", tmp_path / "run"
    save_state(str(state_path), load_state(str(state_path)).promoted(replace(OLD, regressed=("m1",))))
    before = state_path.read_bytes()
    done = mlgo(
        "run", "--state", state_path, "--param", "recipe=tiny", "--param", "problem=regalloc", "--output", output
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "policy is for inlining, but this training is for regalloc" in done.stderr
    assert "use another --state for each problem" in done.stderr
    assert state_path.read_bytes() == before and not output.exists()


def test_check_writes_github_output(tmp_path: Path, run: dict[str, str]) -> None:
    state_path, output = tmp_path / "state.json", tmp_path / "github"
    assert f"there is no state at {state_path} yet" in mlgo("show", "--state", state_path).stdout
    done = mlgo("check", "--state", state_path, "--github-output", output)
    assert done.returncode == 0 and "retrain: nothing is deployed yet" in done.stdout
    assert output.read_text().startswith("retrain=true\n")
    save_state(str(state_path), promotion(load_state(str(state_path)), run, none_deployed)[0])
    done = mlgo(
        "check", "--state", state_path, "--corpus", run["corpus"], "--llvm-major", 19, "--github-output", output
    )
    assert done.returncode == 0 and "no reason to retrain" in done.stdout, done.stdout + done.stderr
    assert output.read_text().splitlines()[-2] == "retrain=false"
    assert run["policy"] in mlgo("show", "--state", state_path).stdout
    done = mlgo("rollback", "--state", state_path)
    assert done.returncode == 1 and "no previous policy" in done.stderr and "Traceback" not in done.stderr


def test_reason_is_posted_to_webhook_without_revealing_its_url(
    tmp_path: Path, run: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, "http://127.0.0.1:1/s3cret")
    state_path, output = tmp_path / "state.json", tmp_path / "github"
    done = mlgo("check", "--state", state_path, "--github-output", output)
    assert done.returncode == 1 and "the webhook at 127.0.0.1 did not accept the notification" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr and output.read_text().startswith("retrain=true\n")
    save_state(str(state_path), promotion(load_state(str(state_path)), run, none_deployed)[0])
    done = mlgo("check", "--state", state_path, "--corpus", run["corpus"])
    assert done.returncode == 0, "no notification without a reason"
