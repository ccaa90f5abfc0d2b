"""The toolchain artifact: an install tree of clang and what it says of itself in toolchain.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from components.console import UserError
from components.formats.features import FeatureSpec
from components.storage.input_files import MissingFile, expect_shape, read_json

FILE_NAME = "toolchain.json"
Mode = Literal["training", "release"]


@dataclass(frozen=True)
class Toolchain:
    """A clang that this project made.

    Invariant: `features` holds, per problem, what a probe compile of this very compiler logged; a release clang, which
    logs nothing, has the features of the policy that it carries.

    Attributes:
        upstream_features: of a training clang, per problem the names of those features that upstream LLVM has as well.
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
        """The compiler driver, which is cc1 as well."""
        return self.directory / "bin" / "clang"

    def to_json(self) -> dict[str, Any]:
        """What toolchain.json holds."""
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
        """This toolchain, if it is of that mode.

        Raises:
            UserError: it is of the other one.
        """
        if self.mode != mode:
            raise UserError(
                f"{self.directory} is a {self.mode} toolchain, and a {mode} one is needed here",
                f"make one with: python -m components.toolchain --mode {mode}",
            )
        return self


def load_toolchain(directory: Path) -> Toolchain:
    """Reads DIR/toolchain.json.

    Raises:
        UserError: there is none, it is broken, or the compiler beside it is missing.
    """
    directory = directory.absolute()  # compiles run in other directories
    path = directory / FILE_NAME
    remedy = "name `training` or `release` of a run, or make one: mlgo toolchain --help"
    try:
        value = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"{directory} holds no toolchain: {FILE_NAME} is missing", remedy) from None
    with expect_shape(path, "a toolchain description", remedy):
        features = {
            name: tuple(FeatureSpec.from_json(spec) for spec in specs) for name, specs in value["features"].items()
        }
        upstream = {name: tuple(names) for name, names in value.get("upstream_features", {}).items()}
        toolchain = Toolchain(
            directory, value["mode"], value["llvm_version"], value["triple"], features, value["built"], upstream
        )
        if not all(isinstance(text, str) for text in (toolchain.mode, toolchain.llvm_version, toolchain.triple)):
            raise ValueError("mode, llvm_version or triple is no text")
    if not toolchain.clang.exists():
        raise UserError(f"{directory} holds no compiler: bin/clang is missing", remedy)
    return toolchain
