"""What the toolchain step is asked to make."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from components.console import UserError
from components.formats.toolchain import Mode
from components.storage.cache import default_cache_dir

Embed = Literal["cpp", "tf-aot"]
Targets = Literal["native", "all"]


@dataclass(frozen=True)
class ToolchainConfig:
    """One clang to make.

    Invariants: there are `policies`, at most one for each problem, if and only if the mode is release. `llvm_source`
    is "deb", "git:TAG" or a path. `sdk` None means: wherever LLVM of that major version is installed. `jobs` >= 1.
    """

    mode: Mode
    output: Path
    llvm_major: int = 19
    llvm_source: str = "deb"
    policies: tuple[Path, ...] = ()
    embed: Embed = "cpp"
    targets: Targets = "native"
    sdk: Path | None = None
    cache: Path = field(default_factory=default_cache_dir)
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        if self.mode == "release" and not self.policies:
            raise UserError(
                "a release clang carries a policy, and none was given",
                "pass --policy DIR, the output of the warmstart or of the ppo step, or --policy pretrained",
            )
        if self.mode == "training" and self.policies:
            raise UserError(
                "a training clang takes its policy when it compiles, not when it is built",
                "leave --policy out, or pass --mode release",
            )
