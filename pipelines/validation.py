"""Validate a run's parameters before its first step starts or anything is submitted.

Otherwise a late step would refuse them hours later, and on a server nobody would notice at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import click

from components.core import problems
from components.core.console import PRESETS, UserError
from components.core.console.number_types import LLVM_MAJOR, MINUTES, SEED, FiniteFloatRange
from components.core.formats.gin_bindings import parse_gin_bindings
from components.core.formats.policy import HEURISTIC, PRETRAINED
from components.core.formats.strategy import PLUGIN_PROBLEMS, Strategy, Targets, check_strategy
from components.core.projects.recipe import recipe_place
from components.core.rayjob.options import parse_settings, parse_spot
from components.core.storage.uri import GS, S3, USAGE, in_object_storage, parse_place
from components.core.workers.factory import check_workers, rayjob_workers
from components.evaluation.config import RELEASE_IF
from components.ppo.config import ONLY_CREDIT, Algorithm, CreditAssignment, SizeOf
from components.warmstart.config import FeatureSet
from pipelines.policy_checks import check_extra_policy, check_start_from
from pipelines.retrain.state import load_state
from pipelines.spec import parameter_values

START_WORDS = (HEURISTIC, PRETRAINED)
"""Values of `start_from` other than the path or URI of a policy."""
KFP_SCHEMES = ("minio", "s3")
"""Schemes of object storage that KFP's launcher copies artifacts from and to."""
_SOURCES = {"compile_commands": "FILE", "corpus": "DIR", "recipe": "FILE"}
_KINDS: dict[str, tuple[click.ParamType, str]] = {
    "preset": (click.Choice(PRESETS), "demo"),
    "problem": (click.Choice(problems.names()), "inlining"),
    "features": (click.Choice(get_args(FeatureSet)), "llvm"),
    "algorithm": (click.Choice(get_args(Algorithm)), "ppo"),
    "credit_assignment": (click.Choice(get_args(CreditAssignment)), "function"),
    "size_of": (click.Choice(get_args(SizeOf)), "modules"),
    "release_if": (click.Choice(RELEASE_IF), "always"),
    "seed": (SEED, "1"),
    "llvm_major": (LLVM_MAJOR, "19"),
    "strategy": (click.Choice(get_args(Strategy)), "plugin"),
    "targets": (click.Choice(get_args(Targets)), "all"),
    "train_minutes": (FiniteFloatRange(min=0, min_open=True, max=MINUTES.max), "60"),
    "min_reduction_percent": (FiniteFloatRange(max=100), "0.5"),
    "max_slowdown_percent": (FiniteFloatRange(), "5"),
    "tune_minutes": (FiniteFloatRange(min=0, min_open=True, max=MINUTES.max), "15"),
}
"""Type of a pipeline parameter, and an example value."""


def as_option(name: str, value: object) -> str:
    """Return a pipeline parameter as an option of `mlgo run`."""
    return f"--{name.replace('_', '-')} {value}"


def as_parameter(name: str, value: object) -> str:
    """Return a pipeline parameter as an option of `mlgo pipeline`."""
    return f"--param {name}={value}"


def checked_values(spec: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a pipeline's validated parameters: those in `given` (as text), defaults for the others.

    Raises:
        UserError: a parameter is unknown, or has a value that no step accepts.
    """
    values = parameter_values(spec, given)
    check_values(values, as_parameter)
    return values


def check_values(values: Mapping[str, Any], spelled: Callable[[str, object], str]) -> None:
    """Raise UserError for values that no step accepts.

    Args:
        values: parameters by name. For a pipeline other than ours, only the parameters that it shares with ours are
            checked.
        spelled: as_option or as_parameter: how messages write a parameter.
    """
    if set(_SOURCES) <= set(values):
        sources = [name for name in _SOURCES if values[name]]
        if len(sources) != 1:
            raise UserError(
                f"exactly one source of code is needed, {len(sources) or 'none'} given",
                f"pass one of {', '.join(spelled(name, value) for name, value in _SOURCES.items())}",
            )
    for name, (kind, example) in _KINDS.items():
        value = values.get(name, "")
        if value == "":
            continue
        try:
            kind.convert(value, None, None)
        except (click.BadParameter, TypeError) as error:  # a default that is a list, of a pipeline written by hand
            problem = f"{spelled(name, value)}: {getattr(error, 'message', error)}"
            raise UserError(problem, f"for example {spelled(name, example)}") from None
    if (major := values.get("llvm_major")) and (strategy := values.get("strategy")):
        check_strategy(strategy, int(float(major)), spelled("strategy", "{}"), spelled("llvm_major", "{}"))
        if strategy == "plugin" and values.get("problem") not in PLUGIN_PROBLEMS:
            raise UserError(
                f"{spelled('problem', values['problem'])}: LLVM lets a plugin decide on {PLUGIN_PROBLEMS[0]} only",
                f"leave {spelled('strategy', strategy)} out",
            )
        if strategy == "plugin" and values.get("extra_policy"):
            raise UserError(
                f"{spelled('extra_policy', values['extra_policy'])}: a plugin embeds an inlining policy only",
                f"leave it or {spelled('strategy', strategy)} out",
            )
    if values.get("tune_minutes") and values["problem"] != "inlining":
        raise UserError(
            f"{spelled('tune_minutes', values['tune_minutes'])}: a plan holds inlining decisions, but this run is for "
            f"{values['problem']}",
            f"leave {spelled('tune_minutes', '')} out",
        )
    if limit := values.get("max_slowdown_percent"):
        sized = problems.get(values["problem"]).objective == "size"
        if not sized or not values.get("recipe"):
            why = "there are no benchmarks without a recipe" if sized else f"not applicable to {values['problem']}"
            raise UserError(
                f"{spelled('max_slowdown_percent', limit)}: {why}",
                f"leave {spelled('max_slowdown_percent', '')} out" + (", or name a recipe" if sized else ""),
            )
    parse_gin_bindings(values.get("gin_bindings", ""))
    credit = values.get("credit_assignment")
    if credit and (only := ONLY_CREDIT.get(values.get("algorithm", ""), credit)) != credit:
        raise UserError(
            f"{spelled('algorithm', values['algorithm'])} learns from {only} credit only, not {credit}",
            f"pass {spelled('credit_assignment', only)}",
        )
    if values.get("workers"):
        check_workers(values["workers"])
    parse_spot(values.get("spot_node_label", ""))
    parse_settings(values.get("ray_cluster_options", ""))
    if extra_policy := values.get("extra_policy"):
        check_extra_policy(
            extra_policy, values["problem"], int(values["llvm_major"]), spelled("extra_policy", extra_policy)
        )
    if state := values.get("retrain_state"):
        check_retrain_state(state, values, spelled)
    if values.get("start_from", "") not in ("", *START_WORDS):
        check_start_from(values["start_from"], values["problem"], spelled("start_from", values["start_from"]))
    # The path of a recipe may exist only where the step runs; a bare name is a built-in recipe everywhere.
    if values.get("recipe") and "/" not in values["recipe"]:
        recipe_place(values["recipe"])


def check_retrain_state(state: str, values: Mapping[str, Any], spelled: Callable[[str, object], str]) -> None:
    """Raise UserError if the state of retraining cannot be read, or is for another problem than the run."""
    deployed = load_state(state).deployed
    if deployed is not None and deployed.problem != values["problem"]:
        raise UserError(
            f"{spelled('retrain_state', state)} deploys a policy for {deployed.problem}, not for {values['problem']}",
            "use another state for each problem",
        )


def require_shared(state: str, option: str, place: str) -> None:
    """Raise UserError if the state is in object storage, but the policy that it would name is not.

    Args:
        option: the option that gives `place`, for the message.
    """
    if in_object_storage(state) and not in_object_storage(place):
        raise UserError(
            f"the state in {state} is shared, but a policy on this machine is not",
            f"pass {option} {USAGE}, a different one for each run",
        )


def check_state_on_server(state: str, root: str) -> None:
    """Raise UserError unless steps on a server can read and write the state, and others can read what they promote."""
    if not in_object_storage(state):
        raise UserError(f"the state {state} is on this machine, but the steps run on others", f"name it {USAGE}.json")
    require_shared(state, "--pipeline-root", root)


def uses_rayjob(values: Mapping[str, Any]) -> bool:
    """Return whether the PPO step of a pipeline with these parameters starts a Ray cluster."""
    return rayjob_workers(values.get("workers") or "") is not None


def check_cloud_root(root: str, vertex: bool = True, rayjob: bool = False) -> None:
    """Raise UserError unless all steps on a server can exchange artifacts through --pipeline-root.

    Args:
        vertex: the server is Vertex AI, where that is Cloud Storage only. KFP's launcher also copies artifacts between
            minio:// or s3:// and the pods of the steps.
        rayjob: a step runs on a Ray cluster, whose nodes get no such copies.
    """
    scheme, _separator, rest = root.partition("://")
    if scheme in KFP_SCHEMES and not vertex:
        try:
            parse_place(f"{S3}://{rest.partition('?')[0]}")  # the names are S3's; a query is KFP's configuration
        except UserError:
            problem = f"--pipeline-root {root} has no valid bucket and path"
            raise UserError(problem, f"write it as {scheme}://BUCKET/PATH") from None
        if rayjob:
            raise UserError(
                f"--param workers=rayjob with --pipeline-root {root}: the nodes of a Ray cluster read artifacts in "
                "gs://, but Kubeflow Pipelines copies others only to the step's pod",
                "pass --pipeline-root gs://BUCKET/PATH, or use workers=local",
            )
        return
    if scheme != GS:
        given = f"--pipeline-root {root}" if root else "no --pipeline-root"
        storage = "Cloud Storage" if vertex else "object storage"
        more = "" if vertex else ", minio://BUCKET/PATH or s3://BUCKET/PATH"
        raise UserError(
            f"{given}: on a server, steps exchange artifacts through {storage}",
            f"pass --pipeline-root gs://BUCKET/PATH{more}",
        )
    parse_place(root)
