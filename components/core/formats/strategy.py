"""The ways to bring our advisors into a compiler, and what each works with. Imported at every start of `mlgo`."""

from __future__ import annotations

from typing import Literal

from components.platform.errors import UserError
from components.platform.storage.uri import Words

Strategy = Literal["sdk", "plugin", "external"]
"""How a compiler gets our advisors: "sdk" links a clang of its own from the installed static libraries, "plugin" builds
a pass plugin for the installed clang, which has no advisor for register allocation. "external" does without them: the
training clang is one that others built in LLVM's development mode, and only the release clang is ours."""
EXTERNAL: Strategy = "external"
FeatureSet = Literal["extended", "llvm", "ir2vec"]
"""Features of a policy: all that our advisors log, those of upstream LLVM, or all with embeddings of functions."""
LLVM_SOURCES = Words(("deb",), ("git:",))
"""Values of --llvm-source that are no paths: Debian's source package, and a tag."""
Targets = Literal["native", "all"]
SUPPORTED_LLVM_MAJORS: dict[Strategy, tuple[int, ...]] = {"sdk": (19, 22), "plugin": (19, 22), "external": (19, 22)}
"""Strategy -> major versions of LLVM that it is written for."""
DEFAULT_LLVM_MAJOR = 19
DEBIAN_SOURCE_MAJORS = (19,)
"""The supported versions of LLVM whose source Debian has next to the packages."""
MIN_IR2VEC_MAJOR = 22
"""First of the supported versions of LLVM whose embeddings of functions (IR2Vec) are features, by a plugin."""


def release_strategy(strategy: Strategy, major: int) -> Strategy:
    """Return the strategy of a run's release clang: its own; of "external", what needs Debian's packages only."""
    if strategy != EXTERNAL:
        return strategy
    return "sdk" if major in DEBIAN_SOURCE_MAJORS else "plugin"


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
        f"pass {strategy_option.format(others[0]) if others else ' or '.join(map(major_option.format, majors))}",
    )


def check_llvm_source(
    strategy: Strategy, major: int, origin: str, sdk: str, source_option: str, strategy_option: str
) -> None:
    """Check that there is a source of the files of LLVM that a strategy compiles. UserError if Debian does not have it.

    Args:
        origin: "deb", "git:TAG", a path or a URI.
        sdk: prefix of an SDK, which may bring the files; "": the installed one.
        source_option, strategy_option: how messages write these: "--llvm-source {}".
    """
    if strategy == "sdk" and origin == "deb" and not sdk and major not in DEBIAN_SOURCE_MAJORS:
        raise UserError(
            f"{strategy_option.format(strategy)} compiles some files of LLVM's source, and Debian has no source "
            f"package of LLVM {major}",
            f"pass {source_option.format(f'git:llvmorg-{major}.X.Y')}, the installed version, or a directory, "
            f"or {strategy_option.format('plugin')}, which needs no source",
        )
