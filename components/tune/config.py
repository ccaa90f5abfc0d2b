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
    """One search for a plan; the fields are the options of `mlgo tune`, described by its --help.

    Attributes:
        corpus: its split does not matter: a plan is for these modules.
        minutes: without earlier parts of a resumed search.
        link: programs to link with the plan, which is refused if they are not smaller than by stock clang, each under
            its best row; requires `release_toolchain`. None links nothing.
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
