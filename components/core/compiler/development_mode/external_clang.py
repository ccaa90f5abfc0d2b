"""Inspects a training clang that others built: it must be one of LLVM's development mode."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from components.core import problems
from components.core.compiler import probe
from components.core.compiler.clang_programs import clang_version
from components.core.formats.features import FeatureSpec
from components.core.formats.strategy import EXTERNAL, SUPPORTED_LLVM_MAJORS
from components.platform.errors import UserError

_HOW = (
    "pass a clang of an LLVM that was configured with TensorFlow Lite (LLVM_HAVE_TFLITE, "
    "https://llvm.org/docs/MLGO.html), or use --strategy sdk or plugin, which need none"
)


@dataclass(frozen=True)
class ExternalClang:
    """A clang in LLVM's development mode: its version, target and features.

    Attributes:
        clang: absolute path.
        features: problem -> features that it logs, for the problems that it logs.
        upstream_features: problem -> features that it passes to another process in LLVM's interactive mode.
    """

    clang: Path
    version: str
    triple: str
    features: dict[str, tuple[FeatureSpec, ...]]
    upstream_features: dict[str, tuple[FeatureSpec, ...]]


def inspect_clang(name_or_path: str, llvm_major: int, problem: str = "") -> ExternalClang:
    """Compile a few lines with the clang at a path, or of a name on the PATH.

    Args:
        llvm_major: major version that it must have.
        problem: name of the problem that it must log; "": any.

    Raises:
        UserError: it is not a clang of this version, not one of the development mode, or logs no decisions.
    """
    program = shutil.which(name_or_path)
    if program is None:
        raise UserError(f"--clang {name_or_path} is not a program that can be executed", "check the path")
    clang = Path(program).absolute()
    major, *rest = clang_version(clang, "pass the path of a clang of LLVM's development mode")
    version = ".".join(map(str, (major, *rest)))
    if major != llvm_major:
        majors = SUPPORTED_LLVM_MAJORS[EXTERNAL]
        remedy = f"pass --llvm-major {major}" if major in majors else f"pass a clang of {' or '.join(map(str, majors))}"
        raise UserError(f"{clang} is clang {version}, but LLVM {llvm_major} was requested", remedy)
    features, refusals = {}, {}
    for name in problems.names():
        try:
            features[name] = probe.read_logged_features(clang, name)
        except UserError as error:
            refusals[name] = _refusal(clang, name, error)
    if refusal := refusals.get(problem) or (None if features else next(iter(refusals.values()))):
        raise refusal
    upstream_features = {name: probe.read_supported_features(clang, name) for name in features}
    for name, specs in features.items():
        if not set(specs) <= set(upstream_features[name]):
            raise UserError(
                f"{clang} logs features of {name} that LLVM does not have: it is a training clang of this project",
                "pass the toolchain that it is part of, or a clang of LLVM's own development mode",
            )
    return ExternalClang(clang, version, probe.read_triple(clang), features, upstream_features)


def _refusal(clang: Path, problem: str, error: UserError) -> UserError:
    llvm = problems.get(problem).llvm
    if not isinstance(error, probe.ProbeError):
        return UserError(f"{clang} logs no decisions of {problem}: {error.problem}", _HOW)
    if llvm.log_option in error.problem and "Unknown command line argument" in error.problem:
        what = f"it has no option {llvm.log_option}"
    else:
        what = error.problem
    return UserError(f"{clang} is not a clang of LLVM's development mode for {problem}: {what}", _HOW)
