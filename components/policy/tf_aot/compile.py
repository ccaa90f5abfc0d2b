"""The ahead-of-time form: the SavedModel compiled by TensorFlow's own compiler, for `--embed tf-aot`.

    aot/InlinerSizeModel.h, .o   the class and its code, from saved_model_cli aot_compile_cpu
    aot/libtf_xla_runtime.a      the part of XLA's runtime that this object and class need, from the sources that
                                 TensorFlow ships for this (tensorflow/xla_aot_runtime_src)
    aot/include/                 the headers that the class includes, so that a release build needs no TensorFlow

LLVM's own build of a release clang does the same (docs/MLGO.rst, "ReleaseModeModelRunner"; TensorFlowCompile.cmake).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from components.core import problems
from components.core.formats.policy import SAVED_MODEL
from components.core.policy.tf.saved_model import SIGNATURE
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.output import capture
from components.platform.processes.supervision import signal_name

AOT = "aot"
RUNTIME = "libtf_xla_runtime.a"
TARGET_TRIPLE = "x86_64-pc-linux-gnu"
TIMEOUT_S = 600.0
REMEDY = "use --embed cpp"

_CORE_SOURCES = (
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
    "xla/cpu_function_runtime.cc",
    "xla/executable_run_options.cc",
    "xla/service/custom_call_status.cc",
)
"""Sources that every compiled class needs; the others are kernels, selected by the object's undefined symbols."""

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-w", "-ftemplate-backtrace-limit=0")


def compile_aot(directory: Path, problem_name: str, clang: Path, remedy: str = REMEDY) -> Path:
    """Add aot/ to a policy directory that has saved_model/. UserError, with the reason, if any part fails.

    TensorFlow runs a part of the SavedModel's operations, confined: see components/platform/processes/sandbox.py.

    Args:
        clang: C++ compiler of the runtime (takes a minute or less).
        triple: target of the release clang that embeds the policy.
        remedy: for the error of a SavedModel that TensorFlow cannot compile.
    """
    problem = problems.get(problem_name)
    aot = directory / AOT
    aot.mkdir()
    header, model = aot / f"{problem.llvm.model_class}.h", aot / f"{problem.llvm.model_class}.o"
    # In a separate process, because it switches TensorFlow to graph mode permanently.
    with tempfile.TemporaryDirectory(prefix="mlgo-aot-") as scratch:
        prefix = Path(scratch, problem.llvm.model_class)
        arguments = {
            "multithreading": "false",
            "tag_set": "serve",
            "signature_def_key": SIGNATURE,
            "dir": str((directory / SAVED_MODEL).absolute()),
            "output_prefix": str(prefix),
            "cpp_class": f"llvm::{problem.llvm.model_class}",
            "target_triple": TARGET_TRIPLE,
        }
        _run_tensorflow(arguments, Path(scratch), remedy)
        # The other files are a makefile with this machine's paths, and an object with metadata that nothing reads.
        for path in (header, model):
            shutil.move(Path(scratch, path.name), path)
    root = tensorflow_root()
    build_runtime(model, aot / RUNTIME, root, clang)
    copy_headers(header, aot / "include", root, clang)
    return aot


def tensorflow_root() -> Path:
    """Return TensorFlow's directory, which has the runtime's sources. UserError if this TensorFlow has none."""
    import tensorflow as tf

    root = Path(tf.__file__).parent
    if not (root / "xla_aot_runtime_src").is_dir():
        raise UserError(
            f"the TensorFlow in {root} has no sources of XLA's runtime",
            "install tensorflow-cpu 2.15.1 from its wheel, or use --embed cpp",
        )
    return root


def runtime_sources(model: Path, sources: Path) -> list[Path]:
    """Return the runtime's sources that an object needs: the core, and files that name one of its undefined symbols."""
    undefined = _run_command(["nm", "--undefined-only", "--format=just-symbols", str(model)], "nm").split()
    selected = [sources / name for name in _CORE_SOURCES]
    for source in sorted(sources.rglob("*.cc")):
        text = source.read_text(encoding="utf-8", errors="replace")
        if source not in selected and any(re.search(rf"\b{re.escape(symbol)}\b", text) for symbol in undefined):
            selected.append(source)
    return selected


def build_runtime(model: Path, archive: Path, root: Path, clang: Path) -> None:
    """Compile the part of the runtime that `model` needs into a static archive."""
    sources = runtime_sources(model, root / "xla_aot_runtime_src")
    with tempfile.TemporaryDirectory() as scratch, Progress("XLA runtime, files", len(sources)) as progress:

        def build(source: Path) -> str:
            output = str(Path(scratch, source.stem + ".o"))
            includes = [f"-I{root / 'include'}", f"-I{root / 'xla_aot_runtime_src'}"]
            command = [str(clang), "-x", "c++", *_FLAGS, *includes, "-c", str(source), "-o", output]
            _run_command(command, f"compiling {source.name}")
            progress.advance()
            return output

        with ThreadPoolExecutor(max_workers=2) as pool:
            objects = list(pool.map(build, sources))
        _run_command(["ar", "rcsD", str(archive), *objects], "ar")


def copy_headers(header: Path, include: Path, root: Path, clang: Path) -> None:
    """Copy every header of TensorFlow that `header` includes, directly or not, to `include`."""
    dependencies = _run_command(
        [str(clang), "-x", "c++", "-std=c++17", "-w", f"-I{root / 'include'}", "-M", str(header)], "listing the headers"
    )
    for word in dependencies.replace("\\\n", " ").split():
        path = Path(word)
        if path.is_relative_to(root / "include"):
            target = include / path.relative_to(root / "include")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _run_tensorflow(arguments: Mapping[str, str], scratch: Path, remedy: str) -> None:
    """Run TensorFlow's AOT compiler in a child that can write only to `scratch`. UserError with the reason."""
    module = [sys.executable, "-P", "-W", "ignore", "-m", "tensorflow.python.tools.saved_model_cli", "aot_compile_cpu"]
    environment = [f"TMPDIR={scratch}", f"TEST_TMPDIR={scratch}/tensorflow"]
    options = [text for name, value in arguments.items() for text in (f"--{name}", value)]
    task = f"TensorFlow's AOT compiler, for {arguments['dir']}"
    try:
        done = supervision.run(["/usr/bin/env", *environment, *module, *options], TIMEOUT_S, writable=scratch)
    except supervision.ProcessTimeout:
        raise UserError(f"{task}, took more than {TIMEOUT_S:.0f} s", "try again on a less busy machine") from None
    done.require_disk_space(scratch)
    if done.returncode < 0:
        raise UserError(f"{task}, ended by {signal_name(-done.returncode)}", remedy)
    if done.returncode != 0:
        raise UserError(f"{task}: {done.reason:.300}", remedy)


def _run_command(command: Sequence[str], task: str) -> str:
    try:
        result = capture(command, TIMEOUT_S)
    except FileNotFoundError:
        raise UserError(f"{task}: {command[0]} not found", "apt-get install binutils clang-19") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{task} took more than {TIMEOUT_S:.0f} s", "try again on a less busy machine") from None
    if result.returncode != 0:
        raise UserError(f"{task} failed (status {result.returncode}):\n{result.stderr[-2000:]}", REMEDY)
    return result.stdout
