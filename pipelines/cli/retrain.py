"""`mlgo retrain`: retrain and promote policies in continuous integration."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.objectives import OBJECTIVES
from components.platform.console import say
from components.platform.console.number_types import FRACTION, LLVM_MAJOR, SEED, FiniteFloatRange
from components.platform.errors import UserError
from components.platform.launcher.notify import notify
from components.platform.storage import publish
from components.platform.storage.options import ARTIFACT
from components.platform.storage.options import OUTPUT as ARTIFACT_OUTPUT
from components.platform.storage.uri import USAGE
from components.platform.workers.factory import rayjob_workers
from pipelines.cli.flags import IMAGES, OUTPUT, PARAMS, PARAMS_FILE, PIPELINE_ROOT, RUNNER
from pipelines.cli.image_help import current_image, not_in_image
from pipelines.cli.pipeline import local_parameters, make_runner
from pipelines.cli.register import register, register_deployed, registry_options
from pipelines.cli.server_options import takes_run_or_stored, takes_server
from pipelines.parameters.on_server import check_state_on_server, require_shared
from pipelines.retrain.artifacts import check_evaluation, check_run, module_checksums, training_toolchain
from pipelines.retrain.check import Limits, RetrainInputs, retrain_reasons
from pipelines.retrain.promote import describe_day
from pipelines.retrain.registry import parse_registry
from pipelines.retrain.state import State, load_state, save_state
from pipelines.submit.options import SubmitOptions
from pipelines.submit.server import PipelineServer

_WHO = ("MLGO_PROMOTED_BY", "GITHUB_ACTOR", "GITLAB_USER_LOGIN")


def _who(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Return who decides: `name`, or what the environment says, or USER@HOST."""
    if given := next(filter(None, (name, *map(os.environ.get, _WHO))), None):
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


_BY = click.option(
    "--by",
    default="",
    callback=_who,
    metavar="NAME",
    help="Who promotes, for the state's history.  [default: $MLGO_PROMOTED_BY, the CI's user, or USER@HOST]",
)
_SEED = click.option(
    "--rotation-seed",
    type=SEED,
    default=0,
    show_default=True,
    help="Seed of the choice of modules that judge in a week.",
)
EXIT_NOT_PROMOTED = 4
"""Exit status for --fail-if-not-promoted. 3 is a canceled run, or a verdict other than "better"."""
_FAIL_IF_NOT_PROMOTED = click.option(
    "--fail-if-not-promoted", is_flag=True, help=f"Exit status {EXIT_NOT_PROMOTED} if the policy is not promoted."
)
_STATE = click.option("--state", required=True, metavar="URI", help=f"State of retraining: {USAGE}.json.")


class _RetrainGroup(click.Group):
    """The commands of `mlgo retrain`; in a container image without `run`, because no image has all steps."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for name in super().list_commands(context) if name != "run" or not current_image()]


@click.group("retrain", cls=_RetrainGroup)
def retrain_group() -> None:
    """Decide whether to retrain, retrain, and promote a policy that is clearly better than the deployed one.

    \b
    Examples:
      mlgo retrain check --state gs://my-bucket/retrain.json --corpus gs://my-bucket/corpus --max-age-days 30
      mlgo retrain submit --state gs://my-bucket/retrain.json --host http://localhost:8080 \\
        --param corpus=gs://my-bucket/corpus --pipeline-root gs://my-bucket/kfp
      mlgo retrain promote --state gs://my-bucket/retrain.json --run gs://my-bucket/runs/2
      mlgo retrain rollback --state gs://my-bucket/retrain.json
    """


class _RunOrSubmit(click.Command):
    """`run`, which with --host or --vertex is `submit`; only the latter works in a container image."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if any(word.partition("=")[0] in ("--host", "--vertex") for word in args):
            return submit.make_context(info_name, args, parent, **extra)
        if image := current_image():
            error = not_in_image(image, "retrain run")
            raise UserError(error.problem, f"retrain on a server with mlgo retrain submit; {error.remedy}")
        return super().make_context(info_name, args, parent, **extra)


@retrain_group.command(short_help="Say whether there is a reason to retrain.")
@_STATE
@click.option(
    "--llvm-major",
    type=LLVM_MAJOR,
    help="Compare the version of the installed clang-N, and the revision of its package, with the policy's.",
)
@click.option(
    "--toolchain",
    type=ARTIFACT,
    help="A current training toolchain: compare its features and, without --llvm-major, its LLVM.",
)
@click.option("--corpus", metavar="DIR|URI", help="A corpus of the current code: compare the content of its modules.")
@click.option("--evaluation", type=ARTIFACT, help="An evaluation of the deployed policy on current code.")
@click.option(
    "--max-drift",
    type=FRACTION,
    default=Limits.drift,
    show_default=True,
    help="Maximum fraction of modules that are new or changed.",
)
@click.option(
    "--max-age-days",
    type=FiniteFloatRange(min=0, max=36600),
    default=Limits.age_days,
    show_default=True,
    help="Maximum age of the policy.",
)
@click.option("--reason", default="", metavar="TEXT", help="A further reason, of whoever asks; empty for none.")
@click.option(
    "--github-output",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GITHUB_OUTPUT",
    help="Append retrain=true or retrain=false to this file.  [default: $GITHUB_OUTPUT]",
)
def check(
    state: str,
    llvm_major: int | None,
    toolchain: Path | None,
    corpus: str | None,
    evaluation: Path | None,
    max_drift: float,
    max_age_days: float,
    reason: str,
    github_output: Path | None,
) -> None:
    """Report whether to retrain, and why; check the policy's age and whatever the options name.

    Reasons to retrain are also POSTed to the webhook in $MLGO_NOTIFY_URL, if that is set.

    \b
    Example:
      mlgo retrain check --state gs://my-bucket/retrain.json --llvm-major 19 --corpus gs://my-bucket/corpus
    """
    loaded = load_state(state)
    problem = loaded.deployed.problem if loaded.deployed else "inlining"
    deployed = loaded.deployed.policy_digest if loaded.deployed else ""
    llvm_version, clang_version = _installed(llvm_major) if llvm_major else (None, "")
    features = None
    if toolchain:
        training = training_toolchain(str(toolchain), problem)
        features = tuple(sorted(feature.name for feature in training.features[problem]))
        if not llvm_major:
            llvm_version, clang_version = training.llvm_version, training.clang_version
    facts = RetrainInputs(
        now=time.time(),
        llvm_version=llvm_version,
        clang_version=clang_version,
        features=features,
        modules=module_checksums(corpus) if corpus else None,
        metrics=check_evaluation(str(evaluation), problem, deployed) if evaluation else None,
    )
    reasons = [*filter(None, [reason]), *retrain_reasons(loaded, facts, Limits(max_drift, max_age_days))]
    for text in reasons:
        say(f"retrain: {text}")
    if not reasons:
        say("no reason to retrain")
    if github_output:
        with open(github_output, "a", encoding="utf-8") as stream:
            stream.write(f"retrain={'true' if reasons else 'false'}\nreasons={json.dumps(reasons)}\n")
    if reasons:
        notify({"retrain": True, "reasons": reasons})


@retrain_group.command(cls=_RunOrSubmit, short_help="Retrain, and promote a better policy.")
@_STATE
@RUNNER
@OUTPUT
@PIPELINE_ROOT
@PARAMS
@PARAMS_FILE
@IMAGES
@_BY
@_SEED
@_FAIL_IF_NOT_PROMOTED
def run(
    state: str,
    runner: str,
    output: Path,
    pipeline_root: str,
    params: tuple[str, ...],
    params_file: Mapping[str, str] | None,
    images: str,
    by: str,
    rotation_seed: int,
    fail_if_not_promoted: bool,
) -> int:
    """Run the pipeline on this machine, compare its policy with the deployed one, promote a better one.

    With --host or --vertex, the server does all that: see `mlgo retrain submit --help`.

    A policy is better if it is smaller, or has lower scores, by more than chance on the held-out modules that judge in
    this week (docs/retraining.md), and the verdict against LLVM's own heuristic is `better`. Training starts from the
    deployed policy, unless `--param start_from=heuristic` says otherwise. Modules that the deployed policy made worse
    take part in every round of this training. Each problem needs its own state. The exit status is 0 whatever is
    decided, unless --fail-if-not-promoted is given.

    \b
    Example:
      mlgo retrain run --state gs://my-bucket/retrain.json --param corpus=gs://my-bucket/corpus --output runs/2 \\
        --pipeline-root gs://my-bucket/runs/2
    """
    from pipelines.retrain.retraining import retrain

    values = local_parameters(params, params_file)
    require_shared(state, "--pipeline-root", pipeline_root)
    loaded = load_state(state)
    if loaded.regressed:
        values.setdefault("oversample_modules", state if "://" in state else str(Path(state).absolute()))
    why = retrain(state, loaded, values, output, pipeline_root, make_runner(runner, images, values), by, rotation_seed)
    say(why)
    return _status_of(why, fail_if_not_promoted)


@retrain_group.command(short_help="Retrain and promote on a server.")
@_STATE
@takes_server
@takes_run_or_stored
@click.option("--wait", is_flag=True, help="Follow the run, and exit as `mlgo pipeline watch`.")
@_BY
def submit(server: PipelineServer, options: SubmitOptions, state: str, wait: bool, by: str) -> None:
    """Submit the pipeline to a server, where its last step compares the policy with the deployed one and promotes it.

    Training starts from the policy that is deployed when it starts, unless `--param start_from=heuristic` says
    otherwise. The state must be in object storage that the steps can read and write; the promotion is one conditional
    write, whoever else writes there. To retrain on a schedule of the server: mlgo pipeline schedule --param
    retrain_state=URI.

    \b
    Example:
      mlgo retrain submit --state gs://my-bucket/retrain.json --host http://localhost:8080 \\
        --param corpus=gs://my-bucket/corpus --pipeline-root gs://my-bucket/kfp --wait
    """
    from pipelines.cli.submit import submit_run
    from pipelines.retrain.promote import require_deployed

    check_state_on_server(state, options.pipeline_root, options.artifact_root)
    require_deployed(load_state(state))
    run = {"retrain_state": state, "promoted_by": by, **options.parameters}
    submit_run(server, replace(options, parameters=run), wait)


@retrain_group.command(short_help="Judge the policy of a finished run, and promote a better one.")
@_STATE
@click.option(
    "--run",
    default="",
    metavar="URI|ID",
    help="Finished run, in place of the options for its artifacts: root of a run on this machine, or, with --host or "
    "--vertex, the ID of one on a server.",
)
@partial(takes_server, required=False)
@click.option("--policy", default="", metavar="URI", help="Policy of the run.")
@click.option("--evaluation", default="", metavar="URI", help="Evaluation of this policy.")
@click.option("--corpus", default="", metavar="URI", help="Corpus of the run.")
@click.option("--toolchain", default="", metavar="URI", help="Training clang of the run.")
@click.option("--release-report", default="", metavar="URI", help="Report on the release clang, if one was built.")
@click.option("--run-id", default="", metavar="ID", help="With --policy: ID of the run, for the state's history.")
@click.option(
    "--run-resource-name",
    default="",
    metavar="NAME",
    help="With --policy: resource name of the run. If Vertex AI's, it is used in place of --run-id.",
)
@click.option("--workers", default="local", show_default=True, help="Where the deployed policy is evaluated.")
@click.option("--output", "decision", type=ARTIFACT_OUTPUT, help="Also write the decision here, as promotion.json.")
@click.option("--again", is_flag=True, help="Judge the policy even if it was rolled back.")
@_BY
@_SEED
@_FAIL_IF_NOT_PROMOTED
@registry_options
def promote(
    state: str,
    run: str,
    policy: str,
    evaluation: str,
    corpus: str,
    toolchain: str,
    release_report: str,
    run_id: str,
    run_resource_name: str,
    workers: str,
    decision: Path | None,
    again: bool,
    by: str,
    rotation_seed: int,
    fail_if_not_promoted: bool,
    registry: str,
    model: str,
    serving_image: str,
    server: PipelineServer | None,
) -> int:
    """Compare the policy of a finished run with the deployed one on the run's corpus, and promote a better one.

    The deployed policy is evaluated first. One of two concurrent promotions wins; the other is compared again, with
    the winner. A policy is compared with the same deployed policy once a week: repeating the command changes nothing.
    The exit status is 0 whatever is decided, unless --fail-if-not-promoted is given.

    \b
    Examples:
      mlgo retrain promote --state gs://my-bucket/retrain.json --run gs://my-bucket/runs/2
      mlgo retrain promote --state gs://my-bucket/retrain.json --run 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 \\
        --host http://localhost:8080
      mlgo retrain promote --state retrain.json --policy p --evaluation e --corpus c --toolchain t
    """
    chosen = parse_registry(registry, serving_image) if registry else None
    from pipelines.local.locations import absolute_place, artifact_digest
    from pipelines.retrain.evaluate_deployed import evaluate_deployed
    from pipelines.retrain.promote import promote as judge_and_promote
    from pipelines.retrain.promote import run_artifacts

    locations = {"policy": policy, "evaluation": evaluation, "corpus": corpus, "toolchain": toolchain}
    if server and not run:
        raise UserError("--host and --vertex need the ID of a run", "pass --run ID")
    if (bool(run) == any(locations.values()) and not server) or (not run and not all(locations.values())):
        missing = [f"--{name}" for name, location in locations.items() if not location]
        raise UserError(
            "either --run or all of --policy, --evaluation, --corpus and --toolchain are needed"
            + (f": {missing[0]} is missing" if missing and not run else ""),
            "pass --run URI",
        )
    refused = {"run-id": run_id, "run-resource-name": run_resource_name}
    if not server:
        refused["release-report"] = release_report
    if run and (unused := [f"--{name}" for name, text in refused.items() if text]):
        raise UserError(
            f"{' and '.join(unused)} cannot be used with --run {run}",
            f"leave {' and '.join(unused)} out, or pass --policy, --evaluation, --corpus and --toolchain in place of "
            "--run",
        )
    if server:
        from pipelines.retrain.server_run import server_run_artifacts

        uris = {"policy": policy, "evaluation": evaluation, "corpus": corpus, "training": toolchain}
        uris["release_report"] = release_report
        artifacts = server_run_artifacts(server, run, uris)
        toolchain = artifacts.pop("training")
    elif run:
        root = absolute_place(run)
        artifacts = run_artifacts(root, bool(artifact_digest(f"{root}/release_report")))
        toolchain = f"{root}/training"
    else:
        on_vertex = run_resource_name.startswith("projects/")
        artifacts = {
            **{name: absolute_place(location) for name, location in locations.items()},
            "run": (run_resource_name if on_vertex else run_id) or policy,
        }
        if release_report:
            artifacts["release_report"] = absolute_place(release_report)
    require_shared(state, "--run or --policy", artifacts["policy"])
    known_state = load_state(state)
    clang = check_run(artifacts, toolchain, known_state.deployed.problem if known_state.deployed else None)
    artifacts["clang_version"] = clang.clang_version
    if rayjob_workers(workers) is not None:  # only the training starts a RayJob
        workers = "local"
    why = judge_and_promote(
        state,
        artifacts,
        lambda deployed: evaluate_deployed(deployed, artifacts["corpus"], toolchain, workers),
        by,
        rotation_seed,
        again,
    )
    say(why)
    if decision is not None:
        with publish(decision, "promotion decision") as directory:
            promoted = int(why.startswith("promoted"))
            content = {"decision": why, "promoted": promoted, "policy": artifacts["policy"], "state": state, "by": by}
            (directory / "promotion.json").write_text(json.dumps(content, indent=1) + "\n")
    if chosen and load_state(state).deployed is not None:
        register_deployed(state, chosen, model)
    return _status_of(why, fail_if_not_promoted)


def _status_of(decision: str, fail_if_not_promoted: bool) -> int:
    return EXIT_NOT_PROMOTED if fail_if_not_promoted and not decision.startswith("promoted") else 0


@retrain_group.command()
@_STATE
@_BY
@click.option("--reason", default="", metavar="TEXT", help="Why, for the state's history.")
@registry_options
def rollback(state: str, by: str, reason: str, registry: str, model: str, serving_image: str) -> None:
    """Deploy the previous policy again. The policy that was deployed is not promoted again unless asked for.

    \b
    Example:
      mlgo retrain rollback --state gs://my-bucket/retrain.json --reason "slower at start-up"
    """
    chosen = parse_registry(registry, serving_image) if registry else None
    from pipelines.retrain.promote import require_deployed

    after = load_state(state).rolled_back(by, reason, time.time())
    require_deployed(after, "restore it, or promote another policy: the state was not changed")
    save_state(state, after)
    _show(after)
    if chosen:
        register_deployed(state, chosen, model)


@retrain_group.command(short_help="Show what is deployed, and who decided what.")
@_STATE
def show(state: str) -> None:
    """Show the deployed policy and the previous ones, and who decided what, when and why.

    \b
    Example:
      mlgo retrain show --state gs://my-bucket/retrain.json
    """
    loaded = load_state(state)
    if loaded.read.content is None:
        say(f"there is no state at {state} yet: the first promotion writes it")
    _show(loaded)


retrain_group.add_command(register)


def _show(state: State) -> None:
    entries = [entry for entry in (state.deployed, *state.history) if entry]
    if not entries:
        say(f"nothing is deployed; {state.comparisons.get('', 0)} policies were compared with LLVM's heuristic")
    for number, entry in enumerate(entries):
        reward = OBJECTIVES[problems.get(entry.problem).objective].labels.reward
        by = f" by {entry.promoted_by}" if entry.promoted_by else ""
        say(
            f"{'deployed' if number == 0 else 'before'}: {entry.policy} ({entry.policy_digest[:12]}, LLVM "
            f"{entry.llvm_version}), promoted {describe_day(entry.promoted_at)}{by}: "
            f"{entry.reduction_percent:.2f}{reward}"
        )
        if entry.better_percent is not None and entry.better_ci95 is not None:
            low, high = entry.better_ci95
            say(f"  {entry.better_percent:+.2f}% against its predecessor (95% interval {low:+.2f}% to {high:+.2f}%)")
        if entry.run:
            say(f"  run {entry.run}")
        if entry.corpus_digest:
            say(f"  corpus {entry.corpus_digest[:12]}, training clang {entry.toolchain_digest[:12]}")
        if compared := state.comparisons.get(entry.policy_digest):
            say(f"  {compared} newer {'policy was' if compared == 1 else 'policies were'} judged to replace it")
    for decision in state.decisions:
        by = f" by {decision.by}" if decision.by else ""
        reason = f": {decision.reason}" if decision.reason else ""
        gain = ""
        if decision.kind == "not promoted" and decision.reduction_percent is not None and decision.percent is None:
            gain = f" ({decision.reduction_percent:.2f}% gain over LLVM's heuristic)"
        say(f"{describe_day(decision.at)} {decision.kind}{by}: {decision.policy}{reason}{gain}")
    for name in state.regressed:
        say(f"regressed: {name}")


def _installed(llvm_major: int) -> tuple[str, str]:
    """Return the version of the installed clang, and the first line of its `--version`."""
    from pipelines.local.cache_inputs import identify_toolchain

    facts = identify_toolchain(llvm_major)
    match = re.search(r"version (\d+\.\d+\.\d+)", facts[0]) if facts else None
    if match is None:
        raise UserError(f"clang-{llvm_major} is not installed", f"sudo apt-get install clang-{llvm_major}")
    return match[1], facts[0]
