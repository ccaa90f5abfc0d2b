"""Speed of extracting bitcode from objects, compared with extract_ir of mlgo-utils; whole commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from components.core.formats.corpus import load_corpus
from tests.bench.context import BenchContext

OBJCOPY = Path("/usr/lib/llvm-19/bin/llvm-objcopy")
CLANG = "/usr/lib/llvm-19/bin/clang"


def measure(ctx: BenchContext) -> dict[str, float]:
    """extract_speedup_over_mlgo_utils: on ctx.objects objects with the corpus' own bitcode, default workers, in turns.

    The demo's build trees no longer exist, so each object is rebuilt from a module: its bitcode and command line, in
    the sections that clang puts them in. Modules are repeated until there are enough objects.
    """
    database = _objects(ctx.scratch / "build", ctx.corpus, ctx.objects)
    ours, theirs = ctx.scratch / "ours", ctx.scratch / "theirs"

    def run(output: Path, *command: str) -> None:
        shutil.rmtree(output, ignore_errors=True)
        subprocess.run(command, check=True, capture_output=True)

    speedup = ctx.ratio(
        lambda: run(
            theirs,
            sys.executable,
            "-m",
            "mlgo.corpus.extract_ir",
            f"--input={database}",
            "--input_type=json",
            f"--output_dir={theirs}",
            f"--llvm_objcopy_path={OBJCOPY}",
        ),
        lambda: run(
            ours,
            sys.executable,
            "-m",
            "components.corpus",
            "extract",
            "--compile-commands",
            str(database),
            "--output",
            str(ours),
        ),
    )
    _require_equal(ours, theirs)
    return {"extract_speedup_over_mlgo_utils": speedup}


def _objects(build: Path, corpus: Path, count: int) -> Path:
    """Create the objects and the compile_commands.json that lists them."""
    build.mkdir()
    empty = build / "empty.o"
    subprocess.run([CLANG, "-c", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    modules, entries = list(load_corpus(corpus)), []
    for i in range(count):
        module, output = modules[i % len(modules)], f"m{i}.o"
        add = [f"--add-section=.llvmbc={module.bitcode}", f"--add-section=.llvmcmd={module.cmd}"]
        subprocess.run([str(OBJCOPY), *add, str(empty), str(build / output)], check=True)
        entries.append({"directory": str(build), "file": f"m{i}.c", "command": f"clang -c m{i}.c -o {output}"})
    database = build / "compile_commands.json"
    database.write_text(json.dumps(entries))
    return database


def _require_equal(ours: Path, theirs: Path) -> None:
    for path in theirs.rglob("*"):
        if path.is_file() and path.read_bytes() != (ours / path.relative_to(theirs)).read_bytes():
            raise AssertionError(f"{path.relative_to(theirs)} differs from mlgo-utils'")
