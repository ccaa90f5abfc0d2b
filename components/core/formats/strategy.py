"""The ways to bring our advisors into a compiler, and what each works with. Imported at every start of `mlgo`."""

from __future__ import annotations

from typing import Literal

from components.core.console import UserError

Strategy = Literal["sdk", "plugin"]
"""How a compiler gets our advisors: "sdk" links a clang of its own from the installed static libraries, "plugin" builds
a pass plugin for the installed clang, which has no advisor for register allocation."""
Targets = Literal["native", "all"]
"""Code generators of a clang."""
SUPPORTED_LLVM_MAJORS: dict[Strategy, tuple[int, ...]] = {"sdk": (19,), "plugin": (19, 22)}
"""Strategy -> major versions of LLVM that it is written for."""
PLUGIN_PROBLEMS = ("inlining",)
"""Problems that LLVM lets a plugin decide."""


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
