"""Policies that a run is given: whether it can use them, asked before it begins."""

from __future__ import annotations

from pathlib import Path

from components.console import UserError
from components.formats.policy import load_policy_info
from components.storage.fetch import fetch
from components.storage.uri import GsUri, parse_place

SOURCE = "policy.cpp"


def check_with_policy(place: str, problem: str, llvm_major: int, spelled: str) -> None:
    """Looks at the policy at a path or URI; a path that is not on this machine may be there for the step.

    Args:
        problem, llvm_major: of the run. spelled: how the user named the policy.

    Raises:
        UserError: it is none, of the run's own problem, of another LLVM, or without its C++ form.
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
            f"{spelled} was trained with LLVM {info.llvm_version}, and this run's clangs are LLVM {llvm_major}",
            "name a policy of the same LLVM version",
        )
    if not (directory / SOURCE).is_file():
        raise UserError(f"{spelled} has no {SOURCE}, which a release clang is made of", "export the policy again")


def check_start_from(place: str, problem: str, spelled: str) -> None:
    """Look at the policy that training is to start from; a path that is not on this machine may be there for the step.

    Args:
        problem: of the run. spelled: how the user named the policy.

    Raises:
        UserError: it is none, or of another problem.
    """
    directory = _local(place)
    if directory is not None and (found := load_policy_info(directory).problem) != problem:
        raise UserError(
            f"{spelled} is a policy for {found}, and this run is for {problem}", "name a policy of the same problem"
        )


def _local(place: str) -> Path | None:
    where = parse_place(place)
    directory = fetch(where) if isinstance(where, GsUri) else where
    return directory if directory.exists() else None
