"""Check, before a run starts, that it can use the policies passed to it."""

from __future__ import annotations

from pathlib import Path

from components.core.console import UserError
from components.core.formats.policy import load_policy_info
from components.core.storage.fetch import fetch
from components.core.storage.uri import ObjectUri, parse_place

CPP_SOURCE = "policy.cpp"


def check_extra_policy(place: str, problem: str, llvm_major: int, spelled: str) -> None:
    """Check the extra policy at a path or URI.

    A path that does not exist on this machine is accepted: it may exist where the step runs.

    Args:
        problem, llvm_major: problem and LLVM version of the run.
        spelled: the policy as the user named it, for messages.

    Raises:
        UserError: it is not a policy, is for the run's own problem or another LLVM, or lacks its C++ form.
    """
    directory = _local(place)
    if directory is None:
        return
    info = load_policy_info(directory)
    if info.problem == problem:
        raise UserError(
            f"{spelled} is a policy for {problem}, the problem of this run",
            "name a policy of another problem, or leave it out",
        )
    if info.llvm_version and info.llvm_version.split(".")[0] != str(llvm_major):
        raise UserError(
            f"{spelled} was trained with LLVM {info.llvm_version}, but this run builds clang from LLVM {llvm_major}",
            "name a policy of the same LLVM version",
        )
    if not (directory / CPP_SOURCE).is_file():
        raise UserError(f"{spelled} has no {CPP_SOURCE}, which a release clang needs", "export the policy again")


def check_start_from(place: str, problem: str, spelled: str) -> None:
    """Check the policy that training starts from.

    A path that does not exist on this machine is accepted: it may exist where the step runs.

    Args:
        problem: problem of the run.
        spelled: the policy as the user named it, for messages.

    Raises:
        UserError: it is not a policy, or is for another problem.
    """
    directory = _local(place)
    if directory is not None and (found := load_policy_info(directory).problem) != problem:
        raise UserError(
            f"{spelled} is a policy for {found}, and this run is for {problem}", "name a policy of the same problem"
        )


def _local(place: str) -> Path | None:
    where = parse_place(place)
    directory = fetch(where) if isinstance(where, ObjectUri) else where
    return directory if directory.exists() else None
