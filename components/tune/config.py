"""Configuration of the tune step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from components.core.projects.flags.request import RowsRequest

SizeOf = Literal["linked", "modules"]


@dataclass(frozen=True)
class TuneConfig:
    """One search for a plan.

    Attributes:
        corpus: artifact with the program's modules. Its split does not matter: a plan is for these modules.
        toolchain: artifact of a training clang.
        policy: directory of the policy that the search starts from, and that decides what is not in the plan.
        root_dir: directory of the search's state by module (or the mirror of a URI), from which the same command
            continues.
        output: artifact to write.
        release_toolchain: artifact of a release clang with the policy, which compiles every module twice with the plan;
            None to skip this verification.
        minutes: wall time of the search, without earlier parts of a resumed search.
        flip_compiles: counterfactual compiles of a module per round.
        size_of: "linked" weights functions that several objects define by the share that the link keeps.
        link: programs to link with the plan, which is refused if they are not smaller than by stock clang, each under
            its best row; requires `release_toolchain`. None links nothing.
        workers: see components/platform/workers/factory.py.
    """

    corpus: Path
    toolchain: Path
    policy: Path
    root_dir: Path
    output: Path
    release_toolchain: Path | None = None
    minutes: float = 15.0
    flip_compiles: int = 12
    size_of: SizeOf = "linked"
    seed: int = 1
    link: RowsRequest | None = None
    workers: str = "local"
    timeout_s: float = 120.0
    max_failed_fraction: float = 0.05
    allowed_options: tuple[str, ...] = ()
