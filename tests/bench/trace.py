"""What tracing costs: its compiles and its writing of Parquet, over the plain compile of the same modules."""

from __future__ import annotations

import itertools

from components.compiler.compile import Compiler
from components.compiler.measure import plain_compile_all
from components.compiler.quarantine import Quarantine
from components.formats.corpus import load_corpus
from components.formats.toolchain import load_toolchain
from components.formats.trace import TraceWriter
from components.problems import get
from components.trace.collect import logged_features, traced_modules, write_decisions
from components.workers import LocalPool
from tests.bench.context import BenchContext

WORKERS = 2
ONE_OF = 2
"""Every second module is compiled, from the largest on: the ratio is that of all modules, in half of the time."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """trace_over_plain_compile, regalloc_trace_over_plain_compile: one of ONE_OF modules of the corpus with 2 workers,
    same clang, same order, taken in turns."""
    names = {"inlining": "trace_over_plain_compile", "regalloc": "regalloc_trace_over_plain_compile"}
    return {key: trace_over_plain_compile(ctx, problem) for problem, key in names.items()}


def trace_over_plain_compile(ctx: BenchContext, problem: str) -> float:
    """Of the decisions of one problem."""
    toolchain = load_toolchain(ctx.training).require_mode("training")
    features = logged_features(toolchain, problem)
    modules = traced_modules(load_corpus(ctx.corpus), "all")[::ONE_OF]
    compiler = Compiler(toolchain.clang, problem)
    runs = itertools.count()
    with LocalPool(WORKERS) as pool:

        def trace() -> None:
            directory = ctx.scratch / f"{problem}-{next(runs)}"
            directory.mkdir()
            writer = TraceWriter(directory, problem, get(problem).decision, features)
            write_decisions(pool, compiler, modules, features, writer, Quarantine(0.0, len(modules)))
            writer.close("", "")

        return ctx.ratio(trace, lambda: plain_compile_all(pool, compiler, modules))
