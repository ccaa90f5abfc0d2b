"""The ways to bring our advisors into a compiler, and what each works with. Imported at every start of `mlgo`."""

from __future__ import annotations

from typing import Literal

from components.core.console import UserError

Strategy = Literal["sdk", "plugin", "external"]
"""How a compiler gets our advisors: "sdk" links a clang of its own from the installed static libraries, "plugin" builds
a pass plugin for the installed clang, which has no advisor for register allocation. "external" does without them: the
training clang is one that others built in LLVM's development mode, and only the release clang is ours."""
EXTERNAL: Strategy = "external"
Targets = Literal["native", "all"]
"""Code generators of a clang."""
SUPPORTED_LLVM_MAJORS: dict[Strategy, tuple[int, ...]] = {"sdk": (19,), "plugin": (19, 22), "external": (19, 22)}
"""Strategy -> major versions of LLVM that it is written for."""
MIN_IR2VEC_MAJOR = 22
"""First of the supported versions of LLVM whose embeddings of functions (IR2Vec) are features, by a plugin."""
PLUGIN_PROBLEMS = ("inlining",)
"""Problems that LLVM lets a plugin decide."""


def release_strategy(strategy: Strategy, major: int) -> Strategy:
    """Return the strategy of a run's release clang: its own, or for "external" the first that works with this LLVM."""
    if strategy != EXTERNAL:
        return strategy
    return next(other for other, majors in SUPPORTED_LLVM_MAJORS.items() if major in majors)


def check_strategy(strategy: Strategy, major: int, strategy_option: str, major_option: str) -> None:
    """Check that a strategy works with this major version of LLVM.

    Args:
        strategy_option: how messages write the strategy: "--strategy {}".
        major_option: how messages write the version.

    Raises:
        UserError: it does not; the remedy names what works.
    """
    majors = SUPPORTED_LLVM_MAJORS[strategy]
    if major in majors:
        return
    others = [other for other, works in SUPPORTED_LLVM_MAJORS.items() if major in works]
    raise UserError(
        f"{strategy_option.format(strategy)} works with LLVM {' or '.join(map(str, majors))}, not {major}",
        f"pass {strategy_option.format(others[0]) if others else major_option.format(majors[-1])}",
    )
