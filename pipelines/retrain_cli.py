"""`mlgo retrain`: for continuous integration."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from components import problems
from components.console import UserError, say
from components.console.number_types import FRACTION, LLVM_MAJOR, FiniteFloatRange
from components.evaluation.judges import JUDGES
from components.launcher.notify import notify
from components.storage.options import ARTIFACT
from pipelines.flags import IMAGES, OUTPUT, PARAMS, PIPELINE_ROOT, RUNNER
from pipelines.pipeline_cli import make_runner, parameters
from pipelines.retrain_check import Facts, Limits, module_checksums, reasons
from pipelines.retrain_state import load_state, save_state

_STATE = click.option("--state", required=True, metavar="URI", help="Where the state is kept: gs://BUCKET/PATH.json.")


@click.group("retrain")
def retrain_group() -> None:
    """Decide whether to train again, train, and promote what is clearly better than what is deployed.

    \b
    Examples:
      mlgo retrain check --state gs://my-bucket/retrain.json --corpus gs://my-bucket/corpus --max-age-days 30
      mlgo retrain run --state gs://my-bucket/retrain.json --param corpus=gs://my-bucket/corpus --output runs/2 \\
        --pipeline-root gs://my-bucket/runs/2
      mlgo retrain rollback --state gs://my-bucket/retrain.json
    """


@retrain_group.command()
@_STATE
@click.option("--llvm-major", type=LLVM_MAJOR, help="Compare the installed clang-N's version with the policy's.")
@click.option("--toolchain", type=ARTIFACT, help="A training toolchain of today: compare its features.")
@click.option("--corpus", metavar="DIR|URI", help="A corpus of today: compare its modules' content.")
@click.option("--evaluation", type=ARTIFACT, help="An evaluation of the deployed policy on fresh code.")
@click.option("--max-drift", type=FRACTION, default=Limits.drift, show_default=True,
              help="Share of modules that may be new or changed.")
@click.option("--max-age-days", type=FiniteFloatRange(min=0, max=36600), default=Limits.age_days, show_default=True,
              help="How old the policy may become.")
@click.option("--github-output", type=click.Path(path_type=Path, dir_okay=False), envvar="GITHUB_OUTPUT",
              help="Append retrain=true or retrain=false to this file.  [default: $GITHUB_OUTPUT]")
def check(
    state: str, llvm_major: int | None, toolchain: Path | None, corpus: str | None, evaluation: Path | None,
    max_drift: float, max_age_days: float, github_output: Path | None,
) -> None:  # fmt: skip
    """Say whether to train again, and why. What no option names is not looked at; the age always is.

    A reason to train again is also POSTed to the webhook in $MLGO_NOTIFY_URL, if that is set.

    \b
    Example:
      mlgo retrain check --state gs://my-bucket/retrain.json --llvm-major 19 --corpus gs://my-bucket/corpus
    """
    from components.evaluation.table import read_metrics

    known = load_state(state)
    problem = known.deployed.problem if known.deployed else "inlining"
    facts = Facts(
        now=time.time(),
        llvm_version=_installed(llvm_major) if llvm_major else None,
        features=_features(toolchain, problem) if toolchain else None,
        modules=module_checksums(corpus) if corpus else None,
        metrics=read_metrics(evaluation) if evaluation else None,
    )
    found = reasons(known, facts, Limits(max_drift, max_age_days))
    for reason in found:
        say(f"train again: {reason}")
    if not found:
        say("nothing speaks for training again")
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
def run(
    state: str, runner: str, output: Path, pipeline_root: str, params: tuple[str, ...], images: Path
) -> None:  # fmt: skip
    """Run the pipeline, compare its policy with the deployed one on the same held-out modules, promote what is better.

    Better means: the 95% interval of the difference, a bootstrap over the modules, lies above zero, and the verdict
    against LLVM's own heuristic is `better`. Training starts from the deployed policy, or where
    `--param start_from=heuristic` says otherwise. Modules that the deployed policy made worse take part in every round
    of this training. Each problem wants a state of its own.

    \b
    Example:
      mlgo retrain run --state gs://my-bucket/retrain.json --param corpus=gs://my-bucket/corpus --output runs/2 \\
        --pipeline-root gs://my-bucket/runs/2
    """
    from pipelines.retrain import retrain

    given = parameters(params)
    if state.startswith("gs://") and not pipeline_root.startswith("gs://"):
        raise UserError(
            f"the state in {state} is everybody's, and a policy on this machine is not",
            "pass --pipeline-root gs://BUCKET/PATH, another for each run",
        )
    known = load_state(state)
    if known.regressed:
        given.setdefault("emphasize", state if "://" in state else str(Path(state).absolute()))
    after, why = retrain(known, given, output, pipeline_root, make_runner(runner, images, given))
    if after is not known:
        save_state(state, after)
    say(why)


@retrain_group.command()
@_STATE
def rollback(state: str) -> None:
    """Deploy the policy before the deployed one again.

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
    """Say what is deployed, and what was before.

    \b
    Example:
      mlgo retrain show --state gs://my-bucket/retrain.json
    """
    _show(load_state(state))


def _show(state: Any) -> None:
    entries = [entry for entry in (state.deployed, *state.history) if entry]
    if not entries:
        say("nothing is deployed")
    for number, entry in enumerate(entries):
        day = time.strftime("%Y-%m-%d", time.gmtime(entry.promoted_at))
        reward = JUDGES[problems.get(entry.problem).measure].reward
        say(
            f"{'deployed' if number == 0 else 'before'}: {entry.policy} ({entry.policy_digest[:12]}, LLVM "
            f"{entry.llvm_version}), promoted {day}: {entry.reduction_percent:.2f}{reward}"
        )
    for name in state.regressed:
        say(f"regressed: {name}")


def _installed(llvm_major: int) -> str:
    import re

    from pipelines.facts import toolchain_facts

    facts = toolchain_facts(llvm_major)
    match = re.search(r"version (\d+\.\d+\.\d+)", facts[0]) if facts else None
    if match is None:
        raise UserError(f"there is no clang-{llvm_major} here", f"sudo apt-get install clang-{llvm_major}")
    return match[1]


def _features(toolchain: Path, problem: str) -> tuple[str, ...]:
    from components.formats.toolchain import load_toolchain

    return tuple(sorted(feature.name for feature in load_toolchain(toolchain).features.get(problem, ())))
