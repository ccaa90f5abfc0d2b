"""Trains again, compares with what is deployed on the same held-out modules, promotes only what is clearly better."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.console import UserError, say
from components.evaluation.measurements import Measured
from components.evaluation.stored import read_measurements
from components.evaluation.table import read_metrics, verdict
from components.formats.policy import HEURISTIC, load_policy_info
from components.launcher.images import IMAGES
from components.storage import digest
from components.storage.fetch import fetch
from components.storage.uri import GsUri, parse_place
from pipelines.local import run_locally
from pipelines.places import root_of, whole_digest
from pipelines.retrain_check import module_checksums
from pipelines.retrain_state import Deployed, State
from pipelines.run import run_pipeline
from pipelines.runner import Runner
from pipelines.spec import COMPILED, load_spec, parameter_values
from pipelines.step import Places, Step

GROWN_PERCENT = 1.0
"""A module that is larger than under -Oz, or has higher scores, by more than this has regressed."""

REPORT_STEP = "size-report"
"""The step of the pipeline that judges by the release clang."""


@dataclass(frozen=True)
class Against:
    """A new policy against the deployed one on the same modules. percent: of text or score, positive is better; with
    the 95% interval of a bootstrap over modules."""

    percent: float
    ci95: tuple[float, float]
    modules: int

    @property
    def clearly_better(self) -> bool:
        return self.ci95[0] > 0


def compare(new: Measured, old: Measured, seed: int = 0) -> Against:
    """Compares two evaluations, case by case. UserError if they have too few modules in common."""
    if new.measure != old.measure:
        raise UserError(f"one evaluation is of {new.measure}s, the other of {old.measure}s", "compare one problem's")
    found = new.against(old, seed)
    if found["modules"] < 2:
        raise UserError("the two evaluations have no modules in common", "evaluate both policies on one corpus")
    low, high = found["reduction_percent_ci95"]
    return Against(float(found["reduction_percent"]), (float(low), float(high)), found["modules"])


def regressed_modules(measured: Measured) -> tuple[str, ...]:
    """Modules that the policy makes clearly worse than LLVM's heuristic does, the worst first."""
    return measured.worsened(GROWN_PERCENT)


def promotion(
    state: State, run: Mapping[str, str], deployed_evaluation: str | None, now: float | None = None
) -> tuple[State, str]:
    """What a finished run means for the deployment.

    Args:
        run: places of its artifacts: policy, evaluation, corpus; size_report, where a release clang was made: the
            training clang's evaluation runs no programs, and they have the last word.
        deployed_evaluation: place of an evaluation of the deployed policy on the same corpus; None if none is deployed.

    Returns the new state, the old one if the new policy is not clearly better, and a sentence that says which and why.
    """
    evaluation, policy = local(run["evaluation"]), local(run["policy"])
    metrics, measured = read_metrics(evaluation), read_measurements(evaluation)
    if metrics["verdict"] != "better":
        return state, f"not promoted: the verdict on the new policy is {verdict(metrics)}"
    if "size_report" in run:
        report = read_metrics(local(run["size_report"]))
        if report["verdict"] != "better":
            return state, f"not promoted: the verdict on the release clang of the new policy is {verdict(report)}"
    against = None
    if state.deployed is not None:
        if deployed_evaluation is None:
            raise UserError("the deployed policy was not evaluated on this corpus", "mlgo retrain run does that")
        against = compare(measured, read_measurements(local(deployed_evaluation)))
        told = f"{against.percent:+.2f}% (95% interval {against.ci95[0]:+.2f}% to {against.ci95[1]:+.2f}%)"
        if not against.clearly_better:
            return state, f"not promoted: against the deployed policy {told} on {against.modules} modules"
    info = load_policy_info(policy)
    interval = metrics.get("reduction_percent_ci95")
    deployed = Deployed(
        policy=run["policy"],
        policy_digest=digest(policy),
        problem=info.problem,
        llvm_version=info.llvm_version,
        features=tuple(sorted(feature.name for feature in info.features)),
        modules=module_checksums(run["corpus"]),
        reduction_percent=float(metrics["reduction_percent"]),
        ci95=(float(interval[0]), float(interval[1])) if interval else None,
        promoted_at=time.time() if now is None else now,
        run=run.get("run", ""),
        better_percent=against.percent if against else None,
        better_ci95=against.ci95 if against else None,
        regressed=regressed_modules(measured),
    )
    why = f"against the deployed policy {told}" if against else "nothing was deployed"
    return state.promoted(deployed), f"promoted: {why}"


def local(place: str) -> Path:
    """The artifact at `place` on this machine."""
    where = parse_place(place)
    return fetch(where) if isinstance(where, GsUri) else where


def retrain(
    state: State, given: Mapping[str, str], output: Path, pipeline_root: str, runner: Runner
) -> tuple[State, str]:
    """Runs the pipeline, evaluates the deployed policy on its corpus, and decides; see `promotion`.

    Training starts from the deployed policy where `given` does not say otherwise.

    Args:
        given: the pipeline's parameters. output, pipeline_root, runner: as of pipelines.local.run_locally.

    Raises:
        UserError: what is deployed is of another problem, in the way of this run, or gone; a step fails.
    """
    problem = given.get("problem", "inlining")
    if state.deployed is not None and state.deployed.problem != problem:
        raise UserError(
            f"the deployed policy is for {state.deployed.problem}, and this training would be for {problem}",
            "use another --state for each problem",
        )
    root = root_of(pipeline_root, output)
    kept = [entry for entry in (state.deployed, *state.history) if entry is not None]
    if any(entry.policy.startswith(f"{root}/") for entry in kept):
        raise UserError(
            f"a policy that is or was deployed lies in {root}, and a run would replace it",
            "use another --output or --pipeline-root for each run",
        )
    if state.deployed is not None and whole_digest(state.deployed.policy) != state.deployed.policy_digest:
        raise UserError(
            f"the deployed policy at {state.deployed.policy} is not there any more, or is another",
            "mlgo retrain rollback, or put it back",
        )
    given = {"start_from": training_start(state, given), **given}
    left_out = run_locally(COMPILED, given, output, runner, pipeline_root)
    reports = () if REPORT_STEP in left_out else ("size_report",)  # else what lies there is an earlier run's
    places = {name: f"{root}/{name}" for name in ("policy", "evaluation", "corpus", *reports)}
    evaluated = None
    if state.deployed is not None:
        step = deployed_evaluation_step(state.deployed.policy, root, given)
        run_pipeline([step], output, runner, Places(root, str(output / ".files")))
        evaluated = f"{root}/{step.output}"
    return promotion(state, {**places, "run": root}, evaluated)


def training_start(state: State, given: Mapping[str, str]) -> str:
    """Return what training starts from by default: the deployed policy, if it is of the LLVM version of the run.

    Another version may tell a policy of other features, so that it begins from the heuristic there.
    """
    if state.deployed is None:
        return HEURISTIC
    major = str(int(parameter_values(load_spec(COMPILED), given)["llvm_major"]))
    if state.deployed.llvm_version.split(".")[0] != major:
        say(f"the deployed policy is of LLVM {state.deployed.llvm_version}: training starts from LLVM's heuristic")
        return HEURISTIC
    return state.deployed.policy


def deployed_evaluation_step(policy: str, root: str, given: Mapping[str, str]) -> Step:
    """Evaluates the deployed policy, by the training clang, on the corpus of the run at `root`."""
    arguments = (
        "evaluation", "--corpus", f"{root}/corpus", "--toolchain", f"{root}/training", "--policy", policy,
        "--problem", given.get("problem", "inlining"), "--workers", given.get("workers", "local"),
        "--thresholds", ",", "--quiet", "--output", f"{root}/deployed_evaluation",
    )  # fmt: skip
    return Step(
        name="deployed-evaluation",
        image=IMAGES["toolchain"],
        module="components.evaluation",
        command=("python", "-m", "components.launcher"),
        arguments=arguments,
        output="deployed_evaluation",
        # What the places hold may have changed, though their names have not.
        facts=tuple(whole_digest(place) for place in (f"{root}/corpus", f"{root}/training", policy)),
    )
