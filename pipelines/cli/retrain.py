"""`mlgo retrain`: retrain and promote policies in continuous integration."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.console import UserError, say
from components.core.console.number_types import FRACTION, LLVM_MAJOR, FiniteFloatRange
from components.core.launcher.notify import notify
from components.core.objectives import OBJECTIVES
from components.core.storage.options import ARTIFACT
from components.core.storage.uri import USAGE, in_object_storage
from pipelines.cli.flags import IMAGES, OUTPUT, PARAMS, PIPELINE_ROOT, RUNNER
from pipelines.cli.pipeline import make_runner, parameters
from pipelines.retrain.check import Limits, RetrainInputs, module_checksums, retrain_reasons
from pipelines.retrain.state import load_state, save_state

_STATE = click.option("--state", required=True, metavar="URI", help=f"State of retraining: {USAGE}.json.")


@click.group("retrain")
def retrain_group() -> None:
    """Decide whether to retrain, retrain, and promote a policy that is clearly better than the deployed one.

    \b
    Examples:
      mlgo retrain check --state gs://my-bucket/retrain.json --corpus gs://my-bucket/corpus --max-age-days 30
      mlgo retrain run --state gs://my-bucket/retrain.json --param corpus=gs://my-bucket/corpus --output runs/2 \\
        --pipeline-root gs://my-bucket/runs/2
      mlgo retrain rollback --state gs://my-bucket/retrain.json
    """


@retrain_group.command()
@_STATE
@click.option("--llvm-major", type=LLVM_MAJOR, help="Compare the version of the installed clang-N with the policy's.")
@click.option("--toolchain", type=ARTIFACT, help="A current training toolchain: compare its features.")
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
    github_output: Path | None,
) -> None:
    """Report whether to retrain, and why; check the policy's age and whatever the options name.

    Reasons to retrain are also POSTed to the webhook in $MLGO_NOTIFY_URL, if that is set.

    \b
    Example:
      mlgo retrain check --state gs://my-bucket/retrain.json --llvm-major 19 --corpus gs://my-bucket/corpus
    """
    from components.evaluation.report.terminal_report import read_metrics

    known = load_state(state)
    problem = known.deployed.problem if known.deployed else "inlining"
    facts = RetrainInputs(
        now=time.time(),
        llvm_version=_installed(llvm_major) if llvm_major else None,
        features=_features(toolchain, problem) if toolchain else None,
        modules=module_checksums(corpus) if corpus else None,
        metrics=read_metrics(evaluation) if evaluation else None,
    )
    found = retrain_reasons(known, facts, Limits(max_drift, max_age_days))
    for reason in found:
        say(f"retrain: {reason}")
    if not found:
        say("no reason to retrain")
    if github_output:
        with open(github_output, "a", encoding="utf-8") as stream:
            stream.write(f"retrain={'true' if found else 'false'}\nreasons={json.dumps(found)}\n")
    if found:
        notify({"retrain": True, "reasons": found})


@retrain_group.command()
@_STATE
@RUNNER
@OUTPUT
@PIPELINE_ROOT
@PARAMS
@IMAGES
def run(state: str, runner: str, output: Path, pipeline_root: str, params: tuple[str, ...], images: Path) -> None:
    """Run the pipeline, compare its policy with the deployed one on the same held-out modules, promote a better one.

    A policy is better if the 95% interval of the difference, from a bootstrap over the modules, is above zero, and the
    verdict against LLVM's own heuristic is `better`. Training starts from the deployed policy, unless `--param
    start_from=heuristic` says otherwise. Modules that the deployed policy made worse take part in every round of this
    training. Each problem needs its own state.

    \b
    Example:
      mlgo retrain run --state gs://my-bucket/retrain.json --param corpus=gs://my-bucket/corpus --output runs/2 \\
        --pipeline-root gs://my-bucket/runs/2
    """
    from pipelines.retrain.promote import retrain

    given = parameters(params)
    if in_object_storage(state) and not in_object_storage(pipeline_root):
        raise UserError(
            f"the state in {state} is shared, but a policy on this machine is not",
            f"pass --pipeline-root {USAGE}, a different one for each run",
        )
    known = load_state(state)
    if known.regressed:
        given.setdefault("oversample_modules", state if "://" in state else str(Path(state).absolute()))
    after, why = retrain(known, given, output, pipeline_root, make_runner(runner, images, given))
    if after is not known:
        save_state(state, after)
    say(why)


@retrain_group.command()
@_STATE
def rollback(state: str) -> None:
    """Deploy the previous policy again.

    \b
    Example:
      mlgo retrain rollback --state gs://my-bucket/retrain.json
    """
    after = load_state(state).rolled_back()
    save_state(state, after)
    _show(after)


@retrain_group.command()
@_STATE
def show(state: str) -> None:
    """Show the deployed policy and the previous ones.

    \b
    Example:
      mlgo retrain show --state gs://my-bucket/retrain.json
    """
    loaded = load_state(state)
    if loaded.read.content is None:
        say(f"there is no state at {state} yet: the first promotion writes it")
    _show(loaded)


def _show(state: Any) -> None:
    entries = [entry for entry in (state.deployed, *state.history) if entry]
    if not entries:
        say("nothing is deployed")
    for number, entry in enumerate(entries):
        day = time.strftime("%Y-%m-%d", time.gmtime(entry.promoted_at))
        reward = OBJECTIVES[problems.get(entry.problem).objective].labels.reward
        say(
            f"{'deployed' if number == 0 else 'before'}: {entry.policy} ({entry.policy_digest[:12]}, LLVM "
            f"{entry.llvm_version}), promoted {day}: {entry.reduction_percent:.2f}{reward}"
        )
    for name in state.regressed:
        say(f"regressed: {name}")


def _installed(llvm_major: int) -> str:
    import re

    from pipelines.local.cache_inputs import identify_toolchain

    facts = identify_toolchain(llvm_major)
    match = re.search(r"version (\d+\.\d+\.\d+)", facts[0]) if facts else None
    if match is None:
        raise UserError(f"clang-{llvm_major} is not installed", f"sudo apt-get install clang-{llvm_major}")
    return match[1]


def _features(toolchain: Path, problem: str) -> tuple[str, ...]:
    from components.core.formats.toolchain import load_toolchain

    return tuple(sorted(feature.name for feature in load_toolchain(toolchain).features.get(problem, ())))
