"""Overhead of tracing: its compiles and writing of Parquet, compared with plain compiles of the same modules."""

from __future__ import annotations

import itertools

from components.core.compiler.compile import Compiler
from components.core.compiler.quarantine import Quarantine
from components.core.formats.corpus import load_corpus
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import TraceWriter
from components.core.problems import get
from components.platform.workers import LocalPool
from components.trace.collect import logged_features, traced_modules, write_decisions
from tests.bench.context import BenchContext
from tests.bench.plain_compile import time_plain_compiles

WORKERS = 2
ONE_OF = 2
"""Every second module is compiled, starting with the largest: the ratio is that of all modules, in half of the time."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """trace_over_plain_compile, regalloc_trace_over_plain_compile: one of ONE_OF modules of the corpus with 2 workers,
    same clang, same order, taken in turns."""
    names = {"inlining": "trace_over_plain_compile", "regalloc": "regalloc_trace_over_plain_compile"}
    return {key: trace_over_plain_compile(ctx, problem) for problem, key in names.items()}


def trace_over_plain_compile(ctx: BenchContext, problem: str) -> float:
    """Return the ratio for the decisions of one problem."""
    toolchain = load_toolchain(ctx.training).require_mode("training")
    features = logged_features(toolchain, problem)
    modules = traced_modules(load_corpus(ctx.corpus), "all")[::ONE_OF]
    compiler = Compiler(toolchain.clang, problem)
    runs = itertools.count()
    with LocalPool(WORKERS) as pool:

        def trace() -> None:
            directory = ctx.scratch / f"{problem}-{next(runs)}"
            directory.mkdir()
            writer = TraceWriter(directory, problem, get(problem).policy.decision, features)
            write_decisions(pool, compiler, modules, features, writer, Quarantine(0.0, len(modules)))
            writer.close("", "")

        return ctx.ratio(trace, lambda: time_plain_compiles(pool, compiler, modules))
