"""Validate a run's parameters before its first step starts or anything is submitted.

Otherwise a late step would refuse them hours later, and on a server nobody would notice at once.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click

from components.core import problems
from components.core.formats.gin_bindings import parse_gin_bindings
from components.core.formats.ir2vec_vocabulary import RANDOM
from components.core.formats.policy import (
    HEURISTIC,
    PRETRAINED,
    PRETRAINED_FOLDERS,
    PRETRAINED_LLVM,
    PRETRAINED_NAMES,
    PRETRAINED_THUMB,
)
from components.core.formats.strategy import (
    DEBIAN_SOURCE_MAJORS,
    EXTERNAL,
    LLVM_SOURCES,
    MIN_IR2VEC_MAJOR,
    PLUGIN_PROBLEMS,
    FeatureSet,
    Strategy,
    Targets,
    check_llvm_source,
    check_strategy,
    release_strategy,
)
from components.core.objectives import OBJECTIVES
from components.core.projects.flags.options import RowNames
from components.core.projects.option import CodeKind, require_code_kind
from components.core.projects.recipe import load_recipes, locate_recipe, recipe_words
from components.evaluation.config import RELEASE_IF
from components.platform.console import PRESETS, say
from components.platform.console.number_types import (
    JOBS,
    LLVM_MAJOR,
    POSITIVE_MINUTES,
    REDUCTION_PERCENT,
    SEED,
    FiniteFloatRange,
)
from components.platform.errors import UserError
from components.platform.rayjob.options import parse_settings, parse_spot
from components.platform.storage.uri import (
    GS,
    KFP_LOCAL,
    NO_WORDS,
    S3,
    USAGE,
    ObjectUri,
    Words,
    in_object_storage,
    parse_location,
)
from components.platform.workers.factory import check_workers, rayjob_workers
from components.ppo.config import (
    ONLY_CREDIT,
    Algorithm,
    CreditAssignment,
    SizeOf,
    algorithms_without_advisors,
)
from components.toolchain.config import SdkConfig
from components.toolchain.option_types import CmakeDefinitions, CodeGenerators, ProjectNames
from pipelines.policy_checks import check_extra_policy, check_start_from
from pipelines.retrain.state import load_state
from pipelines.smoke.rows import FAIL_ONCE
from pipelines.spec import builds_sdk, parameter_values

START_WORDS = Words((HEURISTIC, *PRETRAINED_NAMES))
"""Values of `start_from` other than the path or URI of a policy."""
IMAGE_LLVM_MAJOR = 19
"""Version of LLVM in the image toolchain (docker/requirements/apt-toolchain.txt); the image training has none."""
MINIO = "minio"
KFP_SCHEMES = (MINIO, "s3")
"""Schemes of object storage that KFP's launcher copies artifacts from and to."""
_DIRECT_ROOT = "--artifact-root s3://BUCKET/PATH or --pipeline-root gs://BUCKET/PATH"
PLACES = (
    "recipe",
    "corpus",
    "compile_commands",
    "llvm_source",
    "sdk",
    "ir2vec_vocab",
    "oversample_modules",
    "extra_policy",
    "start_from",
)
"""Parameters that may be the path or URI of something that exists."""
_PLACE_WORDS = {"llvm_source": LLVM_SOURCES, "ir2vec_vocab": Words((RANDOM,)), "start_from": START_WORDS}
_SOURCES: dict[CodeKind, str] = {"compile_commands": "FILE", "corpus": "DIR", "recipe": "FILE"}
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
    "train_minutes": (POSITIVE_MINUTES, "60"),
    "min_reduction_percent": (REDUCTION_PERCENT, "0.5"),
    "max_slowdown_percent": (FiniteFloatRange(), "5"),
    "flag_rows": (RowNames(), "layout,lto,program"),
    "tune_minutes": (POSITIVE_MINUTES, "15"),
}
"""Type of a pipeline parameter, and an example value."""
_SDK_KINDS: dict[str, tuple[click.ParamType, str]] = {
    "llvm_source": (click.STRING, "git:llvmorg-19.1.7"),
    "llvm_major": (LLVM_MAJOR, "19"),
    "targets": (CodeGenerators(), "X86,AArch64"),
    "projects": (ProjectNames(), "polly"),
    "definitions": (CmakeDefinitions(), "LLVM_ENABLE_LTO=Thin"),
    "jobs": (JOBS, "32"),
}
"""The same for the pipeline that builds an SDK."""
_SMOKE_KINDS: dict[str, tuple[click.ParamType, str]] = {"fail_once": (click.Choice(FAIL_ONCE), "no")}
"""The same for the smoke test, whose other parameter is one of the training pipeline."""


def place_words(parameter: str) -> Words:
    """Return the values of a parameter that are words, whatever files are in the working directory."""
    return recipe_words() if parameter == "recipe" else _PLACE_WORDS.get(parameter, NO_WORDS)


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
    if builds_sdk(spec):
        check_sdk_values(values)
    else:
        check_values(values, as_parameter)
        _converted(values, _SMOKE_KINDS, as_parameter)
    return values


def check_sdk_values(values: Mapping[str, Any]) -> None:
    """Raise UserError for parameters of the pipeline that builds an SDK that its step does not accept."""
    found = _converted(values, _SDK_KINDS, as_parameter)
    SdkConfig(output=Path("sdk"), definitions=dict(found.pop("definitions", ())), **found)


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
        require_code_kind(sources[0], values[sources[0]], spelled)
    _converted(values, _KINDS, spelled)
    if (major := values.get("llvm_major")) and (strategy := values.get("strategy")):
        check_strategy(strategy, int(float(major)), spelled("strategy", "{}"), spelled("llvm_major", "{}"))
        check_llvm_source(
            strategy,
            int(float(major)),
            values.get("llvm_source", ""),
            values.get("sdk", ""),
            spelled("llvm_source", "{}"),
            spelled("strategy", "{}"),
        )
        check_external(values, spelled)
        released = release_strategy(strategy, int(float(major)))
        if released == "plugin" and values.get("problem") not in PLUGIN_PROBLEMS:
            raise UserError(
                f"{spelled('problem', values['problem'])}: LLVM lets a plugin decide on {PLUGIN_PROBLEMS[0]} only",
                f"leave {spelled('strategy', strategy)} out",
            )
        if released == "plugin" and values.get("extra_policy"):
            raise UserError(
                f"{spelled('extra_policy', values['extra_policy'])}: a plugin embeds an inlining policy only",
                f"leave it or {spelled('strategy', strategy)} out",
            )
    check_ir2vec(values, spelled)
    if values.get("tune_minutes") and values["problem"] != "inlining":
        raise UserError(
            f"{spelled('tune_minutes', values['tune_minutes'])}: a plan holds inlining decisions, but this run is for "
            f"{values['problem']}",
            f"leave {spelled('tune_minutes', '')} out",
        )
    if limit := values.get("max_slowdown_percent"):
        applicable = not OBJECTIVES[problems.get(values["problem"]).objective].programs_decide
        if not applicable or not values.get("recipe"):
            why = "there are no benchmarks without a recipe" if applicable else f"not applicable to {values['problem']}"
            raise UserError(
                f"{spelled('max_slowdown_percent', limit)}: {why}",
                f"leave {spelled('max_slowdown_percent', '')} out" + (", or name a recipe" if applicable else ""),
            )
    if (rows := values.get("flag_rows")) and not (values["problem"] == "inlining" and values.get("recipe")):
        raise UserError(
            f"{spelled('flag_rows', rows)}: programs of a recipe are linked under rows of flags, for inlining",
            f"leave {spelled('flag_rows', '')} out, or name a recipe",
        )
    parse_gin_bindings(values.get("gin_bindings", ""))
    credit = values.get("credit_assignment")
    if credit and (only := ONLY_CREDIT.get(values.get("algorithm", ""), credit)) != credit:
        raise UserError(
            f"{spelled('algorithm', values['algorithm'])} learns from {only} credit only, not {credit}",
            f"pass {spelled('credit_assignment', only)}",
        )
    with _spelled_as_given(spelled, "workers", "spot_node_label", "ray_cluster_options"):
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
    if registry := values.get("model_registry"):
        from pipelines.retrain.registry import parse_registry  # imports what reads evaluations, in a second

        parse_registry(registry)
        if not state:
            raise UserError(
                f"{spelled('model_registry', registry)}: nothing is promoted without a state of retraining",
                f"pass {spelled('retrain_state', f'{USAGE}.json')}",
            )
    start = values.get("start_from", "")
    if start and start not in START_WORDS:
        check_start_from(start, values["problem"], spelled("start_from", start))
    decided = PRETRAINED_FOLDERS.get(start)
    if decided is not None and values["problem"] not in decided:
        raise UserError(
            f"{spelled('start_from', start)} is a policy for {', '.join(decided)}, and this run is for "
            f"{values['problem']}",
            f"pass {spelled('start_from', PRETRAINED)}",
        )
    # The path of a recipe may exist only where the step runs; a bare name is a built-in recipe everywhere.
    if values.get("recipe") and "/" not in values["recipe"]:
        locate_recipe(values["recipe"])


@contextmanager
def _spelled_as_given(spelled: Callable[[str, object], str], *names: str) -> Iterator[None]:
    """Rewrite the options in the errors of checks that steps share: the user gave parameters of these names."""
    try:
        yield
    except UserError as error:
        problem, remedy = error.problem, error.remedy
        for name in names:
            option = re.compile(rf"{re.escape(as_option(name, ''))}(?=\S)")
            problem, remedy = option.sub(spelled(name, ""), problem), option.sub(spelled(name, ""), remedy)
        raise UserError(problem, remedy) from None


def _converted(
    values: Mapping[str, Any], kinds: Mapping[str, tuple[click.ParamType, str]], spelled: Callable[[str, object], str]
) -> dict[str, Any]:
    """Return the values that are not empty as what their types make of them. UserError if one is invalid."""
    found = {}
    for name, (kind, example) in kinds.items():
        value = values.get(name, "")
        if value == "":
            continue
        try:
            found[name] = kind.convert(value, None, None)
        except (click.BadParameter, TypeError) as error:  # a default that is a list, of a pipeline written by hand
            problem = f"{spelled(name, value)}: {getattr(error, 'message', error)}"
            raise UserError(problem, f"for example {spelled(name, example)}") from None
    return found


def check_external(values: Mapping[str, Any], spelled: Callable[[str, object], str]) -> None:
    """Raise UserError if the external training clang is missing, superfluous, or lacks what the run needs."""
    clang, strategy = values.get("clang", ""), values["strategy"]
    if (strategy == EXTERNAL) != bool(clang):
        raise UserError(
            f"{spelled('strategy', strategy)} {'without' if not clang else 'with'} {spelled('clang', clang or 'PATH')}",
            f"the training clang that others built goes with {spelled('strategy', EXTERNAL)}",
        )
    if strategy != EXTERNAL:
        return
    problem = values.get("problem", "inlining")
    possible = {"algorithm": algorithms_without_advisors(problem), "credit_assignment": ("module",)}
    for name, allowed in possible.items():
        if (value := values.get(name)) and value not in allowed:
            raise UserError(
                f"{spelled(name, value)} for {problem} needs a training clang with our advisors, not {clang}",
                f"leave it out, or use {spelled('strategy', 'sdk')}",
            )
    # The pretrained policy for register allocation uses LLVM's features only.
    if (start := values.get("start_from")) in (PRETRAINED, PRETRAINED_THUMB) and problem == "inlining":
        raise UserError(
            f"{spelled('start_from', start)}: the pretrained policy for {problem} uses features that LLVM itself, "
            f"and so {clang}, does not have",
            f"pass {spelled('start_from', PRETRAINED_LLVM)}, or a policy that was trained with "
            f"{spelled('features', 'llvm')}",
        )
    if values.get("tune_minutes"):
        raise UserError(
            f"{spelled('tune_minutes', values['tune_minutes'])}: a search for a plan needs a training clang that takes "
            "given decisions",
            f"leave it out, or use {spelled('strategy', 'sdk')}",
        )


def check_ir2vec(values: Mapping[str, Any], spelled: Callable[[str, object], str]) -> None:
    """Raise UserError if a run wants IR2Vec embeddings that its compiler does not have."""
    wanted = [name for name in ("features", "ir2vec_vocab") if values.get(name) not in (None, "", "extended", "llvm")]
    if not wanted:
        return
    shown = spelled(wanted[0], values[wanted[0]])
    if values.get("strategy") != "plugin" or int(float(values.get("llvm_major", 0))) < MIN_IR2VEC_MAJOR:
        raise UserError(
            f"{shown}: IR2Vec's embeddings need LLVM {MIN_IR2VEC_MAJOR}",
            f"pass {spelled('strategy', 'plugin')} {spelled('llvm_major', MIN_IR2VEC_MAJOR)}",
        )
    if not values.get("ir2vec_vocab"):
        raise UserError(
            f"{shown}: embeddings need a vocabulary",
            f"pass {spelled('ir2vec_vocab', 'FILE')}, or {spelled('ir2vec_vocab', 'random')}",
        )


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
    if place.startswith(f"{KFP_LOCAL}://"):
        raise UserError(
            f"the policy is at {place}, in this pod, from which Kubeflow Pipelines copies it: the next run could not "
            "read it",
            f"run the pipeline with {_DIRECT_ROOT}",
        )
    if in_object_storage(state) and not in_object_storage(place):
        raise UserError(
            f"the state in {state} is shared, but a policy on this machine is not",
            f"pass {option} {USAGE}, a different one for each run",
        )


def check_bucket_exists(root: str, option: str = "--pipeline-root") -> None:
    """Read below the root of the artifacts with the user's credentials.

    Steps may have other credentials, so where these do not suffice, or nothing answers, the user is only warned.

    Raises:
        UserError: there is no such bucket.
    """
    from components.platform.storage.object_storage.object_store import StorageError
    from components.platform.storage.object_storage.stores import store_of

    place = parse_location(root)
    assert isinstance(place, ObjectUri)
    # List a folder that nobody has: the root may contain many objects.
    folder = place / f"mlgo-check-{secrets.token_hex(4)}"
    try:
        store_of(folder).objects(folder)
    except StorageError as error:
        problem = error.problem.replace(str(folder), root)
        say(f"warning: {option} is not checked, the steps' account may be another: {problem}")
    except UserError as error:
        raise UserError(
            f"{option} {error.problem.replace(str(folder), root)}",
            "create the bucket, or correct its name",
        ) from None


def check_state_on_server(state: str, root: str, own: str) -> None:
    """Raise UserError unless steps on a server can read and write the state, and others can read what they promote.

    Args:
        root, own: --pipeline-root and --artifact-root; "" for none.
    """
    if not in_object_storage(state):
        raise UserError(f"the state {state} is on this machine, but the steps run on others", f"name it {USAGE}.json")
    if not own and root.partition("://")[0] in KFP_SCHEMES:
        raise UserError(
            f"--pipeline-root {root}: Kubeflow Pipelines copies artifacts there from pods, so the next run "
            "could not read the policy that this one deploys",
            f"pass {_DIRECT_ROOT}",
        )
    require_shared(state, "--pipeline-root", own or root)


def check_places_on_server(values: Mapping[str, Any], mounts: Collection[str] | None) -> None:
    """Raise UserError if a parameter names a path of this machine, which steps on a server do not see.

    An absolute path that does not exist here is accepted: it may be in an image.

    Args:
        values: the pipeline's parameters, with paths as the user wrote them.
        mounts: where volumes are mounted in steps; None if that is unknown, so that each absolute path may be on one.
    """
    for name in PLACES:
        place = str(values.get(name, ""))
        if not place or place in place_words(name) or in_object_storage(place):
            continue
        seen = mounts is None or any(Path(place).is_relative_to(mount) for mount in mounts)
        if not place.startswith("/") or (os.path.exists(place) and not seen):
            raise UserError(
                f"{as_parameter(name, place)} is a path of this machine, but the steps run on others",
                f"copy it to object storage, and name it {USAGE}, or pass its absolute path on a volume that "
                f"{'--overrides mounts' if mounts is not None else 'the stored pipeline mounts'}",
            )
    clang = str(values.get("clang", ""))
    if "/" in clang and not clang.startswith("/"):
        raise UserError(
            f"{as_parameter('clang', clang)} is relative to a directory of this machine, but the steps run on others",
            "pass its absolute path in the images, or on a volume that all steps mount",
        )


def check_llvm_in_images(values: Mapping[str, Any]) -> None:
    """Raise UserError if a run whose steps are containers needs an LLVM that the images lack.

    Args:
        values: the pipeline's parameters.
    """
    strategy: Strategy = values.get("strategy") or "sdk"
    major = int(float(values.get("llvm_major") or IMAGE_LLVM_MAJOR))
    if release_strategy(strategy, major) == "plugin":
        raise UserError(
            f"{as_parameter('strategy', strategy)} with LLVM {major}: a plugin runs in an installed clang, and the "
            "images for training have none",
            f"pass {as_parameter('strategy', 'sdk')}, or run the steps on this machine: mlgo run",
        )
    given: dict[str, object] = {}
    have = []
    if major != IMAGE_LLVM_MAJOR:
        given["llvm_major"] = major
        have.append(f"LLVM {IMAGE_LLVM_MAJOR} only")
    if values.get("targets") == "all":
        given["targets"] = "all"
        have.append("the code generator of their own processor only")
    if given and not values.get("sdk"):
        source = {} if major in DEBIAN_SOURCE_MAJORS else {"llvm_source": f"git:llvmorg-{major}.X.Y"}
        build = " ".join(as_parameter(name, value) for name, value in {**given, **source}.items())
        raise UserError(
            f"{' '.join(as_parameter(name, value) for name, value in given.items())}: the images have "
            f"{' and '.join(have)}",
            f"pass {as_parameter('sdk', USAGE)}, the output of mlgo pipeline submit --pipeline sdk {build}, or run "
            "the steps on this machine: mlgo run",
        )


def check_recipe_in_images(values: Mapping[str, Any]) -> None:
    """Raise UserError if a run whose steps are containers should build Debian packages: that needs root and mounts.

    A recipe that cannot be read here is left to the step: its path may be on a volume, its URI for another account.

    Args:
        values: the pipeline's parameters.
    """
    recipe = str(values.get("recipe") or "")
    if not recipe:
        return
    try:
        place = locate_recipe(recipe)
        if isinstance(place, ObjectUri):
            from components.platform.storage.object_storage.fetch import fetch_file

            place = fetch_file(place)
        projects = load_recipes(place).projects
    except UserError:
        return
    if packages := [project.name for project in projects if project.debian]:
        more = f" and {len(packages) - 1} more" if len(packages) > 1 else ""
        raise UserError(
            f"{as_parameter('recipe', recipe)} builds Debian packages ({packages[0]}{more}) in a system of their own, "
            "which takes root and mounts, and containers of steps have neither",
            f"build the corpus on a machine, mlgo corpus obtain --recipe {recipe} --output {USAGE}, and pass "
            f"{as_parameter('corpus', USAGE)}",
        )


def uses_rayjob(values: Mapping[str, Any]) -> bool:
    """Return whether the training step of a pipeline with these parameters starts a Ray cluster."""
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
            parse_location(f"{S3}://{rest.partition('?')[0]}")  # the names are S3's; a query is KFP's configuration
        except UserError:
            problem = f"--pipeline-root {root} has no valid bucket and path"
            raise UserError(problem, f"write it as {scheme}://BUCKET/PATH") from None
        if rayjob:
            raise UserError(
                f"--param workers=rayjob with --pipeline-root {root}: the nodes of a Ray cluster read artifacts in "
                "gs://, but Kubeflow Pipelines copies others only to the step's pod",
                f"pass {_DIRECT_ROOT}, or use workers=local",
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
    parse_location(root)
