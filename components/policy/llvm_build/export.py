"""Exports policies for an LLVM that the user builds with its own CMake files, with or without TensorFlow.

LLVM takes a model as a header and an object (LLVM_OVERRIDE_MODEL_* in llvm/cmake/modules/TensorFlowCompile.cmake) where
TENSORFLOW_AOT_PATH is set, from which it builds TensorFlow's runtime. Our header and object need no runtime, so the
export has a directory that stands for TensorFlow's and builds an empty library. With TensorFlow's own directory LLVM
compiles SavedModels itself.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from components.core import problems
from components.core.formats.policy import SAVED_MODEL, PolicyInfo, check_upstream_features, load_policy_info
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import write_source
from components.core.policy.generated.codegen import POLICY_HEADER, POLICY_SOURCE
from components.core.policy.generated.shared_object import COMPILE_FLAGS, COMPILE_TIMEOUT_S
from components.core.policy.optional_features import fix_features
from components.platform.errors import UserError
from components.platform.processes.output import capture
from components.policy.llvm_build.tosa import tosa_module

CACHE_FILE = "mlgo.cmake"
TENSORFLOW_CACHE_FILE = "mlgo-tensorflow.cmake"
MODELS = "models"
TOSA_SUFFIX = "-tosa.mlir"
STAND_IN = "tensorflow-aot"
"""Directory for TENSORFLOW_AOT_PATH."""

_RUNTIME = """\
# Stands for TensorFlow's AOT runtime, which the policies of this directory do not need. LLVM names these two targets.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp "")
add_library(tf_xla_runtime_objects OBJECT ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
add_library(tf_xla_runtime STATIC ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
"""
_MODEL_PATHS = {"inlining": "LLVM_INLINER_MODEL_PATH", "regalloc": "LLVM_RAEVICT_MODEL_PATH"}
"""Problem -> CMake variable that LLVM reads where there is no override; "none" is a build without a model.

LLVM generates a mock model for a problem whose variable is not set, so the cache files set all of them.
"""


def export_for_llvm(
    policies: Mapping[str, Path],
    upstream_features: Mapping[str, Collection[str]],
    directory: Path,
    clang: Path,
    triple: str = "",
    saved_models: bool = False,
) -> None:
    """Write headers, objects, MLIR, SavedModels, CMake cache files and instructions into `directory`.

    Args:
        policies: problem -> policy directory.
        upstream_features: problem -> names of the features that LLVM itself has.
        triple: target of the LLVM that is built, "" for that of `clang`.
        saved_models: write the SavedModels of policies that have none, which requires TensorFlow.

    Raises:
        UserError: a policy uses features that LLVM does not have, or `clang` does not compile for the target.
    """
    dense: dict[str, DensePolicy] = {}
    info = {problem: load_policy_info(policy) for problem, policy in policies.items()}
    for problem, policy in policies.items():
        optional, upstream = info[problem].optional_features, upstream_features[problem]
        missing = {name: value for name, value in optional.items() if name not in upstream}
        dense[problem] = fix_features(read_dense(policy), missing) if missing else read_dense(policy)
        check_upstream_features(policy, dense[problem].features, upstream)
    models = directory / MODELS
    models.mkdir()
    for problem, policy in policies.items():
        name = problems.get(problem).llvm.model_class
        with TemporaryDirectory(prefix="mlgo-export-") as scratch:
            write_source(dense[problem], Path(scratch), info[problem].optional_features)
            shutil.copyfile(Path(scratch, POLICY_HEADER), models / f"{name}.h")
            _compile(Path(scratch), models / f"{name}.o", clang, triple)
        if dense[problem].mask is None:
            (models / f"{name}{TOSA_SUFFIX}").write_text(tosa_module(dense[problem]))
        if saved_models or (policy / SAVED_MODEL).is_dir():
            _copy_saved_model(policy, dense[problem], info[problem], directory / SAVED_MODEL / problem)
    stand_in = directory / STAND_IN
    (stand_in / "include").mkdir(parents=True)
    (stand_in / "include" / "README").write_text("Empty: the policies need no header of TensorFlow.\n")
    (stand_in / "xla_aot_runtime_src").mkdir()
    (stand_in / "xla_aot_runtime_src" / "CMakeLists.txt").write_text(_RUNTIME)
    (directory / CACHE_FILE).write_text(_cache_file(policies, ()))
    compiled_by_llvm = {problem for problem in policies if (directory / SAVED_MODEL / problem).is_dir()}
    if compiled_by_llvm:
        (directory / TENSORFLOW_CACHE_FILE).write_text(_cache_file(policies, compiled_by_llvm))
    page = Template(
        resources.files("components.policy.llvm_build").joinpath("llvm_build.md").read_text(encoding="utf-8")
    )
    flags = " and ".join(
        f"`-mllvm {option}`" for problem in policies for option in problems.get(problem).llvm.release_options
    )
    (directory / "README.md").write_text(page.substitute(flags=flags, triple=triple or "this machine"))


def _copy_saved_model(policy: Path, dense: DensePolicy, info: PolicyInfo, into: Path) -> None:
    """Copy the SavedModel of a policy, or write that of `dense` if there is none or it has other features."""
    if dense.features == info.features and (policy / SAVED_MODEL).is_dir():
        shutil.copytree(policy / SAVED_MODEL, into)
        return
    from components.core.policy.tf.saved_model import write_saved_model  # imports TensorFlow

    with TemporaryDirectory(prefix="mlgo-export-") as scratch:
        shutil.copytree(write_saved_model(dense, Path(scratch)), into)


def _compile(source: Path, output: Path, clang: Path, triple: str) -> None:
    # The source needs integer types only, which every clang has, so that no headers of the target are needed.
    headers = source / "headers"
    headers.mkdir()
    (headers / "cstdint").write_text("#include <stdint.h>\n")
    target = [f"--target={triple}"] if triple else []
    flags = ["-x", "c++", *target, *COMPILE_FLAGS, "-ffreestanding", "-nostdinc++", "-isystem", str(headers)]
    try:
        done = capture([clang, *flags, "-c", source / POLICY_SOURCE, "-o", output], COMPILE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{clang} does not run: {error}", "pass another --clang") from None
    if done.returncode != 0:
        raise UserError(
            f"{clang} does not compile for {triple or 'its own target'}:\n{done.stderr[-2000:]}",
            "pass a triple that this clang has a code generator for (clang --print-targets), or another --clang",
        )


def _cache_file(policies: Collection[str], compiled_by_llvm: Collection[str]) -> str:
    """Return a file for cmake -C that settles every problem.

    Args:
        policies: problems with a policy.
        compiled_by_llvm: those whose SavedModel LLVM compiles with TensorFlow. Without any, the build needs none.
    """
    if compiled_by_llvm:
        lines = [
            "# For cmake -C: LLVM that compiles the SavedModels of this directory with TensorFlow.",
            "# Requires -DTENSORFLOW_AOT_PATH=DIR, the directory of the Python package tensorflow.",
        ]
    else:
        lines = [
            "# For cmake -C: LLVM with the policies of this directory, without TensorFlow.",
            f'set(TENSORFLOW_AOT_PATH "${{CMAKE_CURRENT_LIST_DIR}}/{STAND_IN}" CACHE PATH "")',
        ]
    for problem in problems.names():
        if problem in compiled_by_llvm:
            lines.append(_set_model_path(problem, f"${{CMAKE_CURRENT_LIST_DIR}}/{SAVED_MODEL}/{problem}"))
        else:
            lines += _use_object(problem) if problem in policies else [_set_model_path(problem, "none")]
    return "\n".join(lines) + "\n"


def _set_model_path(problem: str, value: str) -> str:
    return f'set({_MODEL_PATHS[problem]} "{value}" CACHE STRING "")'


def _use_object(problem: str) -> list[str]:
    name = problems.get(problem).llvm.model_class
    return [
        f"set(LLVM_OVERRIDE_MODEL_{kind}_{name.upper()} "
        f'"${{CMAKE_CURRENT_LIST_DIR}}/{MODELS}/{name}.{suffix}" CACHE FILEPATH "")'
        for kind, suffix in (("HEADER", "h"), ("OBJECT", "o"))
    ]
