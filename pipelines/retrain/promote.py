"""Retrain, compare with the deployed policy on the same held-out modules, and promote only a clearly better policy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.core.console import UserError, say
from components.core.formats.policy import HEURISTIC, load_policy_info
from components.core.launcher.images import IMAGES
from components.core.storage import digest
from components.core.storage.fetch import fetch
from components.core.storage.uri import ObjectUri, parse_place
from components.evaluation.measurements import Measurements, read_measurements
from components.evaluation.report.terminal_report import read_metrics, verdict
from pipelines.local.locations import artifact_digest, artifact_root
from pipelines.local.run_locally import run_locally
from pipelines.local.runners.runner import Runner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step
from pipelines.retrain.check import module_checksums
from pipelines.retrain.state import Deployed, State
from pipelines.spec import COMPILED, load_spec, parameter_values

GROWN_PERCENT = 1.0
"""A module has regressed if it is larger than under -Oz, or has higher scores, by more than this percentage."""

REPORT_STEP = "release-report"
"""The step of the pipeline that evaluates the release clang."""


@dataclass(frozen=True)
class PolicyComparison:
    """Comparison of a new policy with the deployed one on the same modules.

    Attributes:
        percent: reduction of text size or score; positive is better.
        ci95: 95% interval of `percent`, from a bootstrap over modules.
        modules: number of modules compared.
    """

    percent: float
    ci95: tuple[float, float]
    modules: int

    @property
    def clearly_better(self) -> bool:
        return self.ci95[0] > 0


def compare(new: Measurements, old: Measurements, seed: int = 0) -> PolicyComparison:
    """Compare two evaluations module by module.

    Raises:
        UserError: the evaluations measure different things, or have fewer than two modules in common.
    """
    if new.objective.name != old.objective.name:
        raise UserError(
            f"one evaluation measures {new.objective.name}s, the other {old.objective.name}s",
            "compare evaluations of one problem",
        )
    found = new.compare_policies(old, seed)
    if found.modules < 2 or found.reduction_percent is None or found.reduction_percent_ci95 is None:
        raise UserError("the two evaluations have no modules in common", "evaluate both policies on one corpus")
    return PolicyComparison(found.reduction_percent, found.reduction_percent_ci95, found.modules)


def regressed_modules(measured: Measurements) -> tuple[str, ...]:
    """Return the modules that the policy makes clearly worse than LLVM's heuristic does, the worst first."""
    return measured.regressed_modules(GROWN_PERCENT)


def promotion(
    state: State, run: Mapping[str, str], deployed_evaluation: str | None, now: float | None = None
) -> tuple[State, str]:
    """Decide whether to promote the policy of a finished run.

    Args:
        run: locations of its artifacts: policy, evaluation, corpus, and release_report if a release clang was built.
            The release report decides last, because the training clang's evaluation runs no programs.
        deployed_evaluation: location of an evaluation of the deployed policy on the same corpus; None if no policy is
            deployed.

    Returns:
        The new state, or the old one if the new policy is not clearly better, and a sentence with the reason.
    """
    evaluation, policy = local(run["evaluation"]), local(run["policy"])
    metrics, measured = read_metrics(evaluation), read_measurements(evaluation)
    if metrics.verdict != "better":
        return state, f"not promoted: the verdict on the new policy is {verdict(metrics)}"
    if "release_report" in run:
        report = read_metrics(local(run["release_report"]))
        if report.verdict != "better":
            return state, f"not promoted: the verdict on the release clang of the new policy is {verdict(report)}"
    against = None
    if state.deployed is not None:
        if deployed_evaluation is None:
            raise UserError("the deployed policy was not evaluated on this corpus", "use mlgo retrain run")
        against = compare(measured, read_measurements(local(deployed_evaluation)))
        gain = f"{against.percent:+.2f}% (95% interval {against.ci95[0]:+.2f}% to {against.ci95[1]:+.2f}%)"
        if not against.clearly_better:
            return state, f"not promoted: against the deployed policy {gain} on {against.modules} modules"
    info = load_policy_info(policy)
    deployed = Deployed(
        policy=run["policy"],
        policy_digest=digest(policy),
        problem=info.problem,
        llvm_version=info.llvm_version,
        features=tuple(sorted(feature.name for feature in info.features)),
        modules=module_checksums(run["corpus"]),
        reduction_percent=metrics.reduction_percent or 0.0,
        ci95=metrics.reduction_percent_ci95,
        promoted_at=time.time() if now is None else now,
        run=run.get("run", ""),
        better_percent=against.percent if against else None,
        better_ci95=against.ci95 if against else None,
        regressed=regressed_modules(measured),
    )
    why = f"against the deployed policy {gain}" if against else "nothing was deployed"
    return state.promoted(deployed), f"promoted: {why}"


def local(place: str) -> Path:
    """Return the local path of the artifact at `place`, which is downloaded if it is in object storage."""
    where = parse_place(place)
    return fetch(where) if isinstance(where, ObjectUri) else where


def retrain(
    state: State, given: Mapping[str, str], output: Path, pipeline_root: str, runner: Runner
) -> tuple[State, str]:
    """Run the pipeline, evaluate the deployed policy on its corpus, and decide whether to promote; see `promotion`.

    Training starts from the deployed policy unless `given` says otherwise.

    Args:
        state: the current deployment.
        given: the pipeline's parameters.
        output, pipeline_root, runner: as for pipelines.local.run_locally.run_locally.

    Raises:
        UserError: the deployed policy is for another problem, would be overwritten by this run, or is missing; or a
            step fails.
    """
    problem = given.get("problem", "inlining")
    if state.deployed is not None and state.deployed.problem != problem:
        raise UserError(
            f"the deployed policy is for {state.deployed.problem}, but this training is for {problem}",
            "use another --state for each problem",
        )
    root = artifact_root(pipeline_root, output)
    kept = [entry for entry in (state.deployed, *state.history) if entry is not None]
    if any(entry.policy.startswith(f"{root}/") for entry in kept):
        raise UserError(
            f"{root} contains a policy that is or was deployed, and this run would overwrite it",
            "use another --output or --pipeline-root for each run",
        )
    if state.deployed is not None and artifact_digest(state.deployed.policy) != state.deployed.policy_digest:
        raise UserError(
            f"the deployed policy at {state.deployed.policy} is missing or has changed",
            "run mlgo retrain rollback, or restore it",
        )
    given = {"start_from": training_start(state, given), **given}
    skipped = run_locally(COMPILED, given, output, runner, pipeline_root)
    reports = () if REPORT_STEP in skipped else ("release_report",)  # if skipped, an earlier run's report may be there
    places = {name: f"{root}/{name}" for name in ("policy", "evaluation", "corpus", *reports)}
    evaluated = None
    if state.deployed is not None:
        step = deployed_evaluation_step(state.deployed.policy, root, given)
        run_pipeline([step], output, runner, RunLocations(root, str(output / ".files")))
        evaluated = f"{root}/{step.output}"
    return promotion(state, {**places, "run": root}, evaluated)


def training_start(state: State, given: Mapping[str, str]) -> str:
    """Return what training starts from by default: the deployed policy if it is for the run's LLVM version.

    Otherwise training starts from the heuristic, because another LLVM version may have other features.
    """
    if state.deployed is None:
        return HEURISTIC
    major = str(int(parameter_values(load_spec(COMPILED), given)["llvm_major"]))
    if state.deployed.llvm_version.split(".")[0] != major:
        say(f"the deployed policy is for LLVM {state.deployed.llvm_version}: training starts from LLVM's heuristic")
        return HEURISTIC
    return state.deployed.policy


def deployed_evaluation_step(policy: str, root: str, given: Mapping[str, str]) -> Step:
    """Return a step that evaluates the deployed policy with the training clang on the corpus of the run at `root`."""
    arguments = (
        "evaluation",
        "--corpus",
        f"{root}/corpus",
        "--toolchain",
        f"{root}/training",
        "--policy",
        policy,
        "--problem",
        given.get("problem", "inlining"),
        "--workers",
        given.get("workers", "local"),
        "--thresholds",
        ",",
        "--quiet",
        "--output",
        f"{root}/deployed_evaluation",
    )
    return Step(
        name="deployed-evaluation",
        image=IMAGES["toolchain"],
        module="components.evaluation",
        command=("python", "-m", "components.core.launcher"),
        arguments=arguments,
        output="deployed_evaluation",
        # The content at these locations may have changed although their names have not.
        facts=tuple(artifact_digest(place) for place in (f"{root}/corpus", f"{root}/training", policy)),
    )
