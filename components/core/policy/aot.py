"""The ahead-of-time form: what TensorFlow's own compiler makes of the SavedModel, for `--embed tf-aot`.

    aot/InlinerSizeModel.h, .o   the class and its code, from saved_model_cli aot_compile_cpu
    aot/libtf_xla_runtime.a      the part of XLA's runtime that this object and class need, from the sources TensorFlow
                                 ships for the purpose (tensorflow/xla_aot_runtime_src)
    aot/include/                 the headers that the class includes, so that a release build needs no TensorFlow

LLVM's own build of a release clang does the same (docs/MLGO.rst, "ReleaseModeModelRunner"; TensorFlowCompile.cmake).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from components.core import problems
from components.core.console import Progress, UserError
from components.core.policy.saved_model import SAVED_MODEL, SIGNATURE

AOT = "aot"
RUNTIME = "libtf_xla_runtime.a"
TARGET_TRIPLE = "x86_64-pc-linux-gnu"
TIMEOUT_S = 600.0

_CORE = (
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
    "xla/cpu_function_runtime.cc",
    "xla/executable_run_options.cc",
    "xla/service/custom_call_status.cc",
)
"""What every compiled class links against; the rest of the runtime is kernels, taken by the symbols an object wants."""

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-w", "-ftemplate-backtrace-limit=0")


def compile_aot(directory: Path, problem_name: str, clang: Path, triple: str = TARGET_TRIPLE) -> Path:
    """Adds aot/ to a policy directory that has saved_model/. UserError, with the compiler's words, if any part fails.

    Args:
        clang: a C++ compiler, for the runtime (a minute or less).
        triple: the target of the release clang that is to embed it.
    """
    problem = problems.get(problem_name)
    aot = directory / AOT
    aot.mkdir()
    header, model = aot / f"{problem.model_class}.h", aot / f"{problem.model_class}.o"
    # In a process of its own: it changes TensorFlow to graph mode, for good.
    _run(
        [
            sys.executable,
            "-m",
            "tensorflow.python.tools.saved_model_cli",
            "aot_compile_cpu",
            "--multithreading",
            "false",
            "--tag_set",
            "serve",
            "--signature_def_key",
            SIGNATURE,
            "--dir",
            str(directory / SAVED_MODEL),
            "--output_prefix",
            str(aot / problem.model_class),
            "--cpp_class",
            f"llvm::{problem.model_class}",
            "--target_triple",
            triple,
        ],
        "TensorFlow's AOT compiler",
    )
    for other in aot.iterdir():
        if other not in (header, model):
            other.unlink()  # a makefile with this machine's paths, an object with metadata that nothing reads
    root = tensorflow_root()
    build_runtime(model, aot / RUNTIME, root, clang)
    copy_headers(header, aot / "include", root, clang)
    return aot


def tensorflow_root() -> Path:
    """Where TensorFlow is installed, with the sources of the runtime. UserError if this TensorFlow has none."""
    import tensorflow as tf

    root = Path(tf.__file__).parent
    if not (root / "xla_aot_runtime_src").is_dir():
        raise UserError(
            f"the TensorFlow in {root} ships no sources of XLA's runtime",
            "install tensorflow-cpu 2.15.1 from its wheel, or use --embed cpp",
        )
    return root


def runtime_sources(model: Path, sources: Path) -> list[Path]:
    """The runtime's sources that an object needs: the core, and each file that names a symbol it leaves undefined."""
    undefined = _run(["nm", "--undefined-only", "--format=just-symbols", str(model)], "nm").split()
    wanted = [sources / name for name in _CORE]
    for source in sorted(sources.rglob("*.cc")):
        text = source.read_text(encoding="utf-8", errors="replace")
        if source not in wanted and any(re.search(rf"\b{re.escape(symbol)}\b", text) for symbol in undefined):
            wanted.append(source)
    return wanted


def build_runtime(model: Path, archive: Path, root: Path, clang: Path) -> None:
    """Compiles what `model` needs of the runtime into a static archive."""
    sources = runtime_sources(model, root / "xla_aot_runtime_src")
    with tempfile.TemporaryDirectory() as scratch, Progress("XLA runtime, files", len(sources)) as progress:

        def build(source: Path) -> str:
            output = str(Path(scratch, source.stem + ".o"))
            includes = [f"-I{root / 'include'}", f"-I{root / 'xla_aot_runtime_src'}"]
            command = [str(clang), "-x", "c++", *_FLAGS, *includes, "-c", str(source), "-o", output]
            _run(command, f"the compile of {source.name}")
            progress.advance()
            return output

        with ThreadPoolExecutor(max_workers=2) as pool:
            objects = list(pool.map(build, sources))
        _run(["ar", "rcsD", str(archive), *objects], "ar")


def copy_headers(header: Path, include: Path, root: Path, clang: Path) -> None:
    """Copies every header of TensorFlow's that `header` includes, directly or not, to `include`."""
    listed = _run(
        [str(clang), "-x", "c++", "-std=c++17", "-w", f"-I{root / 'include'}", "-M", str(header)], "search for headers"
    )
    for word in listed.replace("\\\n", " ").split():
        path = Path(word)
        if path.is_relative_to(root / "include"):
            target = include / path.relative_to(root / "include")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _run(command: Sequence[str], what: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        raise UserError(f"{what}: there is no {command[0]}", "apt-get install binutils clang-19") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{what} took more than {TIMEOUT_S:.0f} s", "try again on a less busy machine") from None
    if result.returncode != 0:
        raise UserError(f"{what} failed (status {result.returncode}):\n{result.stderr[-2000:]}", "use --embed cpp")
    return result.stdout
