"""Configuration of the toolchain step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from components.core.console import UserError
from components.core.formats.strategy import SUPPORTED_LLVM_MAJORS, Strategy, Targets, check_strategy
from components.core.formats.toolchain import Mode
from components.core.storage.cache import default_cache_dir

Embed = Literal["cpp", "tf-aot"]


@dataclass(frozen=True)
class ToolchainConfig:
    """Configuration of the clang to build.

    Attributes:
        mode: "training" or "release".
        output: directory of the toolchain.
        strategy: "sdk" links a clang, "plugin" builds a pass plugin for the installed one.
        llvm_major: major version of LLVM.
        llvm_source: "deb", "git:TAG" or a path; not used with an SDK that brings its source files.
        policies: policies to embed, at most one per problem; not empty if and only if the mode is release.
        embed: form of the policies.
        targets: code generators to link.
        sdk: prefix of the LLVM SDK, also one of mode "sdk"; None: the installed one of `llvm_major`.
        cache: directory for downloads and build trees.
        jobs: number of parallel compiles, >= 1.
    """

    mode: Mode
    output: Path
    strategy: Strategy = "sdk"
    llvm_major: int = 19
    llvm_source: str = "deb"
    policies: tuple[Path, ...] = ()
    embed: Embed = "cpp"
    targets: Targets = "native"
    sdk: Path | None = None
    cache: Path = field(default_factory=default_cache_dir)
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        check_strategy(self.strategy, self.llvm_major, "--strategy {}", "--llvm-major {}")
        if self.strategy == "plugin" and self.embed != "cpp":
            raise UserError("a plugin embeds a policy as C++ only", "omit --embed, or pass --strategy sdk")
        if self.mode == "release" and not self.policies:
            raise UserError(
                "a release clang needs a policy, and none was given",
                "pass --policy DIR, the output of the warmstart or of the ppo step, or --policy pretrained",
            )
        if self.mode == "training" and self.policies:
            raise UserError(
                "a training clang loads its policy when it compiles, not when it is built",
                "omit --policy, or pass --mode release",
            )


@dataclass(frozen=True)
class SdkConfig:
    """Configuration of an LLVM SDK to build from source.

    Attributes:
        output: prefix of the SDK.
        llvm_major: major version of LLVM, which the source must have.
        llvm_source: "deb", "git:TAG" or a path.
        targets: code generators: "native", "all", or LLVM's names of targets with commas between.
        definitions: further variables of LLVM's CMake project.
        cache: directory for downloads and build trees.
        jobs: number of parallel compiles, >= 1.
    """

    output: Path
    llvm_major: int = 19
    llvm_source: str = "deb"
    targets: str = "native"
    definitions: Mapping[str, str] = field(default_factory=dict)
    cache: Path = field(default_factory=default_cache_dir)
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        majors = SUPPORTED_LLVM_MAJORS["sdk"]
        if self.llvm_major not in majors:
            raise UserError(
                f"--mode sdk works with LLVM {' or '.join(map(str, majors))}, not {self.llvm_major}",
                f"pass --llvm-major {majors[-1]}",
            )
