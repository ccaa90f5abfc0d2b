"""Configuration of the toolchain step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from components.core.formats.strategy import (
    DEBIAN_SOURCE_MAJORS,
    EXTERNAL,
    MIN_IR2VEC_MAJOR,
    SUPPORTED_LLVM_MAJORS,
    Strategy,
    Targets,
    check_llvm_source,
    check_strategy,
    release_strategy,
)
from components.core.formats.toolchain import Mode
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage.cache import default_cache_dir

Embed = Literal["cpp", "tf-aot"]


@dataclass(frozen=True)
class ToolchainConfig:
    """The clang to build; the fields are the options of `mlgo toolchain`, described by its --help.

    Attributes:
        strategy: a release clang of "external" is built by the first of the others that works with `llvm_major`.
        clang: "" for other strategies than "external"; ignored for release clangs.
        problem: name of the problem that an external clang must log; "": any.
        policies: at most one per problem; not empty if and only if the mode is release.
        sdk: None: the installed one of `llvm_major`.
    """

    mode: Mode
    output: Path
    strategy: Strategy = "sdk"
    llvm_major: int = 19
    clang: str = ""
    problem: str = ""
    llvm_source: str = "deb"
    policies: tuple[Path, ...] = ()
    embed: Embed = "cpp"
    ir2vec_vocab: Path | str | None = None
    targets: Targets = "native"
    sdk: Path | None = None
    cache: Path = field(default_factory=default_cache_dir)
    jobs: int = field(default_factory=available_processors)

    def __post_init__(self) -> None:
        check_strategy(self.strategy, self.llvm_major, "--strategy {}", "--llvm-major {}")
        is_external = self.strategy == EXTERNAL
        if self.mode == "training" and (is_external != bool(self.clang) or (self.problem and not is_external)):
            raise UserError(
                f"--strategy {self.strategy} {'needs' if is_external else 'builds'} the training clang",
                "pass --clang PATH, and --problem, together with --strategy external, only",
            )
        if self.mode == "release":
            object.__setattr__(self, "strategy", release_strategy(self.strategy, self.llvm_major))
        check_llvm_source(
            self.strategy, self.llvm_major, self.llvm_source, str(self.sdk or ""), "--llvm-source {}", "--strategy {}"
        )
        if self.strategy == "plugin" and self.embed != "cpp":
            raise UserError("a plugin embeds a policy as C++ only", "omit --embed, or pass --strategy sdk")
        if self.ir2vec_vocab and (self.strategy != "plugin" or self.llvm_major < MIN_IR2VEC_MAJOR):
            raise UserError(
                f"LLVM {self.llvm_major} in a toolchain of --strategy {self.strategy} has no IR2Vec embeddings",
                f"pass --strategy plugin --llvm-major {MIN_IR2VEC_MAJOR}, or omit --ir2vec-vocab",
            )
        if self.mode == "release" and not self.policies:
            raise UserError(
                "a release clang needs a policy, and none was given",
                "pass --policy DIR, the output of the warmstart or of the ppo step, or --policy pretrained",
            )


FIXED_DEFINITIONS = {
    "BUILD_SHARED_LIBS": "OFF",
    "LLVM_LINK_LLVM_DYLIB": "OFF",
    "CLANG_LINK_CLANG_DYLIB": "OFF",
}
"""Variables on which linking our clangs relies."""
ENABLE_PROJECTS = "LLVM_ENABLE_PROJECTS"
_CODE_GENERATORS = (
    *("native", "all", "AArch64", "AMDGPU", "ARM", "AVR", "BPF", "Hexagon", "Lanai", "LoongArch", "MSP430", "Mips"),
    *("NVPTX", "PowerPC", "RISCV", "SPIRV", "Sparc", "SystemZ", "VE", "WebAssembly", "X86", "XCore"),
)
"""Values of --targets for LLVM's own source, whose download takes minutes; make_sdk asks the source itself."""


@dataclass(frozen=True)
class SdkConfig:
    """An LLVM SDK to build; the fields are the options of `mlgo toolchain --mode sdk`, described by its --help.

    Attributes:
        output: prefix of the SDK.
        targets: "native", "all", or LLVM's names of targets with commas between.
        definitions: further variables of LLVM's CMake project.
    """

    output: Path
    llvm_major: int = 19
    llvm_source: str = "deb"
    targets: str = "native"
    projects: tuple[str, ...] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)
    cache: Path = field(default_factory=default_cache_dir)
    jobs: int = field(default_factory=available_processors)

    def __post_init__(self) -> None:
        majors = SUPPORTED_LLVM_MAJORS["sdk"]
        if self.llvm_major not in majors:
            raise UserError(
                f"--mode sdk works with LLVM {' or '.join(map(str, majors))}, not {self.llvm_major}",
                f"pass --llvm-major {majors[-1]}",
            )
        if self.llvm_source == "deb" and self.llvm_major not in DEBIAN_SOURCE_MAJORS:
            raise UserError(
                f"Debian has no source package of LLVM {self.llvm_major}",
                f"pass --llvm-source git:llvmorg-{self.llvm_major}.X.Y, or the directory of llvm-project",
            )
        fetched = self.llvm_source == "deb" or self.llvm_source.startswith("git:")
        if fetched and (more := set(self.projects) - {"clang", "lld"}):
            raise UserError(
                f"--projects {','.join(sorted(more))}: --llvm-source {self.llvm_source} fetches only LLVM, clang and "
                "lld",
                "pass --llvm-source the directory of llvm-project",
            )
        if fetched and (unknown := [name for name in self.targets.split(",") if name not in _CODE_GENERATORS]):
            raise UserError(
                f"--targets {unknown[0]}: LLVM has no such code generator",
                f"pass native, all, or some of {', '.join(_CODE_GENERATORS[2:])}",
            )
        if fixed := sorted(FIXED_DEFINITIONS.keys() & self.definitions.keys()):
            value = FIXED_DEFINITIONS[fixed[0]]
            raise UserError(f"--define {fixed[0]}: linking our clangs needs {fixed[0]}={value}", "omit it")
        if ENABLE_PROJECTS in self.definitions:
            raise UserError(f"--define {ENABLE_PROJECTS}: clang and lld are needed", "name further ones in --projects")
