"""Check, before a run starts, that it can use the policies passed to it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import HEURISTIC, PRETRAINED_NAMES, check_upstream_features, load_policy_info
from components.platform.errors import UserError
from components.platform.storage.downloads.archive import fetch_archive, is_archive_url
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.local.cache_inputs import identify_toolchain

CPP_SOURCE = "policy.cpp"


def check_extra_policy(location: str, problem: str, llvm_major: int, option: str) -> None:
    """Check the extra policy at a path or URI.

    A path that does not exist on this machine is accepted: it may exist where the step runs.

    Args:
        problem, llvm_major: problem and LLVM version of the run.
        option: the policy as the user named it, for messages.

    Raises:
        UserError: it is not a policy, is for the run's own problem or another LLVM, or lacks its C++ form.
    """
    directory = _local(location)
    if directory is None:
        return
    info = load_policy_info(directory)
    if info.problem == problem:
        raise UserError(
            f"{option} is a policy for {problem}, the problem of this run",
            "name a policy of another problem, or leave it out",
        )
    if info.llvm_version and info.llvm_version.split(".")[0] != str(llvm_major):
        raise UserError(
            f"{option} was trained with LLVM {info.llvm_version}, but this run builds clang from LLVM {llvm_major}",
            "name a policy of the same LLVM version",
        )
    if not (directory / CPP_SOURCE).is_file():
        raise UserError(f"{option} has no {CPP_SOURCE}, which a release clang needs", "export the policy again")


def check_start_from(location: str, problem: str, option: str) -> None:
    """Check the policy that training starts from.

    A path that does not exist on this machine is accepted: it may exist where the step runs.

    Args:
        problem: problem of the run.
        option: the policy as the user named it, for messages.

    Raises:
        UserError: it is not a policy, or is for another problem.
    """
    directory = _local(location)
    if directory is not None and (policy_problem := load_policy_info(directory).problem) != problem:
        raise UserError(
            f"{option} is a policy for {policy_problem}, and this run is for {problem}",
            "name a policy of the same problem",
        )


def check_external_clang(clang: str, llvm_major: int, problem: str, start_from: str, own_sdk: bool) -> None:
    """Check the training clang that others built by compiling a few lines with it.

    Args:
        problem, llvm_major: problem and LLVM version of the run.
        start_from: "heuristic", one of PRETRAINED_NAMES, or path or URI of the policy that training starts from.
        own_sdk: whether the release clang is linked from another LLVM than the installed one.

    Raises:
        UserError: it is not a clang of LLVM's development mode for this problem and version; it lacks features of the
            policy; or its version is not that of the release clang.
    """
    # Only a run with an external clang needs this module.
    from components.core.compiler.development_mode.external_clang import inspect_clang

    external = inspect_clang(clang, llvm_major, problem)
    if start_from != HEURISTIC:
        from components.core.policy.pretrained import pretrained_policy

        is_pretrained = start_from in PRETRAINED_NAMES
        policy = str(pretrained_policy(problem, name=start_from)) if is_pretrained else start_from
        check_start_features(policy, external.features[problem])
    installed = identify_toolchain(llvm_major)
    if installed and not own_sdk and f"version {external.version}" not in installed[0]:
        raise UserError(
            f"{external.clang} is clang {external.version}, but the release clang will be {installed[0]}: their code "
            "would differ by more than the policy",
            "install the same version, or pass --sdk with an LLVM of this version (mlgo toolchain --mode sdk)",
        )


def check_start_features(start_from: str, logged: Collection[FeatureSpec]) -> None:
    """Check that a training clang that others built has all features that a policy needs; optional ones may be missing.

    A path that does not exist on this machine is accepted, as in `check_start_from`.

    Args:
        start_from: path or URI of the policy.
        logged: the features that the clang logs.

    Raises:
        UserError: it lacks some.
    """
    if (policy := _local(start_from)) is not None:
        info = load_policy_info(policy)
        needed = [spec for spec in info.features if spec.name not in info.optional_features]
        check_upstream_features(policy, needed, {spec.name for spec in logged})


def _local(location: str) -> Path | None:
    if is_archive_url(location):
        return fetch_archive(location)
    parsed = parse_location(location)
    directory = fetch(parsed) if isinstance(parsed, ObjectUri) else parsed
    return directory if directory.exists() else None
