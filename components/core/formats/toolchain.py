"""The toolchain artifact: an install tree of clang, described by toolchain.json."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from msgspec import UNSET, Struct, UnsetType

from components.core.formats.features import FeatureSpec, TensorSpec
from components.core.formats.strategy import EXTERNAL
from components.platform.errors import UserError
from components.platform.processes.output import capture
from components.platform.storage.input_files import MissingFile, read_document, typed

FILE_NAME = "toolchain.json"
PLUGIN = "mlgo-inliner.so"
"""Pass plugin in lib/ of an install tree; bin/clang runs the installed clang with it."""
_VERSION = 1
_LDD_TIMEOUT_S = 60.0
_VERSION_TIMEOUT_S = 60.0
Mode = Literal["training", "release"]
Capability = Literal["callsites", "samples", "forced_decisions", "trained_ranges", "program_decisions"]
"""What training clangs of ours can do, and those of LLVM's own development mode cannot: name the callers and callees of
decisions, sample from a policy and fork after the common passes, take given decisions instead of the policy's, leave
the decisions outside of a policy's ranges to the heuristic, log and take the decisions of both times that a whole
program goes through the inliner. Plugins lack the last: the clang that loads them has no pipeline for programs."""
CAPABILITIES: frozenset[Capability] = frozenset(get_args(Capability))
_LATER_CAPABILITIES: frozenset[Capability] = frozenset({"trained_ranges", "program_decisions"})
"""Those that no clang had before they were recorded."""
_EarlierCapability = Literal["forced decisions", "trained ranges"]
"""Two of them as earlier versions wrote them."""


@dataclass(frozen=True)
class Toolchain:
    """A clang built by this project.

    Invariant: `features` holds, per problem, what a probe compile of this compiler logged; a release clang, which logs
    nothing, has the features of its embedded policy.

    Attributes:
        upstream_features: for a training clang, per problem the names of the features that upstream LLVM also has.
        capabilities: of a training clang.
    """

    directory: Path
    mode: Mode
    llvm_version: str
    triple: str
    features: dict[str, tuple[FeatureSpec, ...]]
    built: dict[str, Any]
    upstream_features: dict[str, tuple[str, ...]] = field(default_factory=dict)
    capabilities: frozenset[Capability] = CAPABILITIES

    @property
    def clang(self) -> Path:
        """The compiler driver, which also runs as cc1."""
        return self.directory / "bin" / "clang"

    @property
    def clang_version(self) -> str:
        """What `clang --version` of its LLVM prints first, which has a package's revision; "" if earlier versions of
        this project built it."""
        return str(self.built.get("clang_version", ""))

    def to_json(self) -> dict[str, Any]:
        """Return the content of toolchain.json."""
        return {
            "version": _VERSION,
            "mode": self.mode,
            "llvm_version": self.llvm_version,
            "triple": self.triple,
            "features": {name: [spec.to_json() for spec in specs] for name, specs in self.features.items()},
            "upstream_features": {name: list(names) for name, names in self.upstream_features.items()},
            "capabilities": sorted(self.capabilities),
            "built": self.built,
        }

    def require_capability(self, capability: Capability, user: str) -> None:
        """Raise UserError unless the training clang has a capability that `user`, the subject of a sentence, needs."""
        if capability not in self.capabilities:
            ability = capability.replace("_", " ")
            raise UserError(
                f"{user} needs {ability}, which the clang in {self.directory}, built by others, does not have",
                "use a training clang of --strategy sdk or plugin",
            )

    def require_mode(self, mode: Mode) -> Toolchain:
        """Return this toolchain if it has the given mode. UserError if it has the other mode."""
        if self.mode != mode:
            raise UserError(
                f"{self.directory} is a {self.mode} toolchain, but a {mode} toolchain is needed here",
                f"make one with: mlgo toolchain --mode {mode}",
            )
        return self


class _Document(Struct):
    """toolchain.json."""

    mode: Mode
    llvm_version: str
    triple: str
    features: dict[str, tuple[TensorSpec, ...]]
    built: dict[str, Any]
    upstream_features: dict[str, tuple[str, ...]] = {}
    capabilities: frozenset[Capability | _EarlierCapability] | UnsetType = UNSET


class _External(Struct):
    """The key "built" of toolchain.json of a clang that others built."""

    clang: str
    clang_sha256: str


def load_toolchain(directory: Path) -> Toolchain:
    """Read DIR/toolchain.json. UserError if it is missing or invalid, or the compiler next to it is missing."""
    directory = directory.absolute()  # compiles run in other working directories
    path = directory / FILE_NAME
    remedy = "pass `training` or `release` of a run, or make one: mlgo toolchain --help"
    try:
        read = read_document(path, _Document, "a toolchain description", remedy, _VERSION)
    except MissingFile:
        raise UserError(f"{directory} is not a toolchain: it has no {FILE_NAME}", remedy) from None
    features = {name: tuple(spec.feature for spec in specs) for name, specs in read.features.items()}
    toolchain = Toolchain(
        directory,
        read.mode,
        read.llvm_version,
        read.triple,
        features,
        read.built,
        read.upstream_features,
        CAPABILITIES - _LATER_CAPABILITIES
        if read.capabilities is UNSET
        else frozenset(cast(Capability, capability.replace(" ", "_")) for capability in read.capabilities),
    )
    if not toolchain.clang.exists():
        raise UserError(f"{directory} has no compiler: bin/clang is missing", remedy)
    if toolchain.built.get("strategy") == EXTERNAL:
        built = typed(toolchain.built, _External, path, "a toolchain description", remedy)
        external = Path(built.clang)
        if not external.exists():
            raise UserError(f"the clang of {directory} is gone: {external}", remedy)
        if digest_of_clang(external) != built.clang_sha256:
            problem = f"{external} has changed since {directory} was made from it, and may decide otherwise"
            raise UserError(problem, "make the toolchain again, and what was made with it")
    return toolchain


def read_clang_version(clang: Path | str) -> str:
    """Return the first line of `clang --version`, such as "Debian clang version 19.1.7 (3~deb12u1)"."""
    return capture([clang, "--version"], _VERSION_TIMEOUT_S).stdout.partition("\n")[0]


def digest_of_clang(clang: Path) -> str:
    """Return the SHA-256 of a program and of LLVM's, clang's and TensorFlow's shared libraries that it loads, in 0.2
    s."""
    listed = capture(["/usr/bin/ldd", clang], _LDD_TIMEOUT_S)
    libraries = re.findall(r"=> (\S*/lib(?:LLVM|clang|tensorflow)\S*) \(", listed.stdout)
    content = hashlib.sha256()
    for path in (clang, *map(Path, sorted(set(libraries)))):
        with open(path, "rb") as stream:
            content.update(hashlib.file_digest(stream, "sha256").digest())
    return content.hexdigest()
