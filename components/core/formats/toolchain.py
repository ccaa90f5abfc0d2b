"""The toolchain artifact: an install tree of clang, described by toolchain.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from components.core.console import UserError
from components.core.formats.features import FeatureSpec
from components.core.storage.input_files import MissingFile, expect_shape, read_json

FILE_NAME = "toolchain.json"
Mode = Literal["training", "release"]


@dataclass(frozen=True)
class Toolchain:
    """A clang built by this project.

    Invariant: `features` holds, per problem, what a probe compile of this compiler logged; a release clang, which logs
    nothing, has the features of its embedded policy.

    Attributes:
        upstream_features: for a training clang, per problem the names of the features that upstream LLVM also has.
    """

    directory: Path
    mode: Mode
    llvm_version: str
    triple: str
    features: dict[str, tuple[FeatureSpec, ...]]
    built: dict[str, Any]
    upstream_features: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def clang(self) -> Path:
        """The compiler driver, which also runs as cc1."""
        return self.directory / "bin" / "clang"

    def to_json(self) -> dict[str, Any]:
        """Return the content of toolchain.json."""
        return {
            "version": 1,
            "mode": self.mode,
            "llvm_version": self.llvm_version,
            "triple": self.triple,
            "features": {name: [spec.to_json() for spec in specs] for name, specs in self.features.items()},
            "upstream_features": {name: list(names) for name, names in self.upstream_features.items()},
            "built": self.built,
        }

    def require_mode(self, mode: Mode) -> Toolchain:
        """Return this toolchain if it has the given mode.

        Raises:
            UserError: it has the other mode.
        """
        if self.mode != mode:
            raise UserError(
                f"{self.directory} is a {self.mode} toolchain, but a {mode} toolchain is needed here",
                f"make one with: mlgo toolchain --mode {mode}",
            )
        return self


def load_toolchain(directory: Path) -> Toolchain:
    """Read DIR/toolchain.json.

    Raises:
        UserError: it is missing or invalid, or the compiler next to it is missing.
    """
    directory = directory.absolute()  # compiles run in other working directories
    path = directory / FILE_NAME
    remedy = "pass `training` or `release` of a run, or make one: mlgo toolchain --help"
    try:
        value = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"{directory} is not a toolchain: it has no {FILE_NAME}", remedy) from None
    with expect_shape(path, "a toolchain description", remedy):
        features = {
            name: tuple(FeatureSpec.from_json(spec) for spec in specs) for name, specs in value["features"].items()
        }
        upstream = {name: tuple(names) for name, names in value.get("upstream_features", {}).items()}
        toolchain = Toolchain(
            directory, value["mode"], value["llvm_version"], value["triple"], features, value["built"], upstream
        )
        if not all(isinstance(text, str) for text in (toolchain.mode, toolchain.llvm_version, toolchain.triple)):
            raise ValueError("mode, llvm_version or triple is not a string")
    if not toolchain.clang.exists():
        raise UserError(f"{directory} has no compiler: bin/clang is missing", remedy)
    return toolchain
