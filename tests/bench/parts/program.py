"""Compile and link time of a whole program by the release clang's pipeline, over that by stock full LTO.

The program is a position-independent executable that exports everything of the largest project of the corpus, from
bitcode before any pass: nothing but the compilers is timed, and the front end, which both have, is left out.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from components.core.compiler.clang_programs import clangxx
from components.core.formats.corpus import Module, load_corpus, project_of
from components.core.formats.toolchain import load_toolchain
from components.core.projects.flags.build_variants import find_stock_clang
from components.platform.errors import UserError
from tests.bench.context import BenchContext

VARIANTS = {"program": (), "program_smallest": ("-Wl,-mllvm,-mlgo-keep-smaller",)}


def measure(context: BenchContext) -> dict[str, float]:
    """program_over_stock_lto, program_smallest_over_stock_lto: ratio of wall times on one thread, medians."""
    release = load_toolchain(context.release)
    if context.problem != "inlining":
        return {}
    stock = find_stock_clang(release, None)
    modules = load_corpus(context.corpus).modules
    (largest, _), *_ = Counter(project_of(module.name) for module in modules).most_common(1)
    chosen = [module for module in modules if project_of(module.name) == largest]
    return {
        f"{name}_over_stock_lto": context.ratio(
            partial(_build, release.clang, chosen, context.scratch / "ours", flags),
            partial(_build, stock, chosen, context.scratch / "stock", ()),
        )
        for name, flags in VARIANTS.items()
    }


def _build(clang: Path, modules: Sequence[Module], directory: Path, link_flags: Sequence[str]) -> None:
    directory.mkdir(exist_ok=True)
    objects = [directory / f"{number}.o" for number in range(len(modules))]
    for module, output in zip(modules, objects, strict=True):
        _run(clang, "-Oz", "-flto", "-fPIC", "-w", "-x", "ir", "-c", module.bitcode, "-o", output)
    # Not a shared library: code for executables may access thread-local variables in a way that only those can.
    link = ["-Oz", "-flto", "-fuse-ld=lld", "-pie", "-nostdlib", "-Wl,--threads=1", "-Wl,--export-dynamic"]
    link += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--allow-multiple-definition", *link_flags]
    _run(clangxx(clang), *link, *objects, "-o", directory / "program")


def _run(*command: str | Path) -> None:
    done = subprocess.run([*command], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise UserError(f"{command[0]} fails: {done.stderr.strip()[:600]}", "see the command of the benchmark")
