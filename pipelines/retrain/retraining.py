"""Run the pipeline on this machine, and promote its policy if it is clearly better than the deployed one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from components.core.formats.policy import HEURISTIC
from components.platform.console import say
from components.platform.launcher.images import COMMAND, IMAGES
from components.platform.storage.uri import in_object_storage
from pipelines.local.locations import absolute_place, artifact_digest, artifact_root
from pipelines.local.run_locally import run_locally
from pipelines.local.runners.runner import Runner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step
from pipelines.retrain.artifacts import check_run
from pipelines.retrain.evaluate_deployed import evaluation_arguments
from pipelines.retrain.promote import other_problem, promote, require_deployed, run_artifacts
from pipelines.retrain.state import State
from pipelines.spec import COMPILED, REPORT_STEP, load_spec, parameter_values


def retrain(
    state_location: str,
    state: State,
    parameters: Mapping[str, str],
    output: Path,
    pipeline_root: str,
    runner: Runner,
    by: str,
    seed: int = 0,
) -> str:
    """Run the pipeline, and promote its policy if it is clearly better than the deployed one; see `promote`.

    Training starts from the deployed policy unless `parameters` says otherwise.

    Args:
        output, pipeline_root, runner: as for pipelines.local.run_locally.run_locally.

    Raises:
        UserError: the deployed policy is for another problem, would be overwritten by this run, or is missing; or a
            step fails.
    """
    problem = parameters.get("problem", "inlining")
    if state.deployed is not None and state.deployed.problem != problem:
        raise other_problem(state.deployed.problem, problem)
    root = artifact_root(pipeline_root, output)
    state.require_outside(root)
    require_deployed(state)
    parameters = {"start_from": training_start(state, parameters), **parameters}
    skipped = run_locally(COMPILED, parameters, output, runner, pipeline_root)
    # If the report was skipped, one of an earlier run may be there. One on another policy than the trained one, which
    # took its place, is not read: then the evaluation refuses the trained one.
    artifacts = run_artifacts(root, REPORT_STEP not in skipped)
    artifacts["clang_version"] = check_run(artifacts, f"{root}/training", problem).clang_version

    def evaluate(policy: str) -> str:
        corpus, toolchain, made = f"{root}/corpus", f"{root}/training", "deployed_evaluation"
        workers = parameters.get("workers", "local")
        arguments = evaluation_arguments(policy, corpus, toolchain, problem, workers, f"{root}/{made}")
        step = Step(
            name="deployed-evaluation",
            image=IMAGES["toolchain"],
            module="components.evaluation",
            command=COMMAND,
            arguments=("evaluation", *arguments),
            output=made,
            # The content at these locations may have changed although their names have not.
            cache_inputs=tuple(artifact_digest(location) for location in (corpus, toolchain, policy)),
        )
        run_pipeline([step], output, runner, RunLocations(root, str(output / ".files")))
        return f"{root}/{made}"

    return promote(state_location, artifacts, evaluate, by, seed)


def training_start(state: State, parameters: Mapping[str, str]) -> str:
    """Return what training starts from by default: the deployed policy if it is for the run's LLVM version.

    Otherwise training starts from the heuristic, because another LLVM version may have other features.
    """
    if state.deployed is None:
        return HEURISTIC
    major = str(int(parameter_values(load_spec(COMPILED), parameters)["llvm_major"]))
    if state.deployed.llvm_version.split(".")[0] != major:
        say(f"the deployed policy is for LLVM {state.deployed.llvm_version}: training starts from LLVM's heuristic")
        return HEURISTIC
    policy = state.deployed.policy
    return policy if in_object_storage(policy) else absolute_place(policy)  # never a word such as pretrained
