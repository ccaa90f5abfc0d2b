"""A policy of another problem that a run's release clang is to carry: whether it can, asked before the run begins."""

from __future__ import annotations

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
    where = parse_place(place)
    directory = fetch(where) if isinstance(where, GsUri) else where
    if not directory.exists():
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
