"""Compiles every module with the default heuristic and writes its decisions.

Compilation dominates the cost, so this process uses as little of the compilers' cores as possible: per module it parses
one log with numpy, and now and then it writes a Parquet shard.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request, Result
from components.core.compiler.development_mode.upstream import compiler_for
from components.core.compiler.objects.function_digests import FunctionDigests
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.compiler.replay.command_line import require_replayable
from components.core.formats.corpus import Corpus, Module, load_corpus
from components.core.formats.features import FeatureSpec
from components.core.formats.splits import FILE as SPLITS_FILE
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.formats.trace import REPORT, ModuleTrace, TraceWriter
from components.core.objectives import OBJECTIVES
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.storage.manifest import MANIFEST, digest
from components.platform.storage.publish import publish
from components.platform.workers import WorkerPool, make_pool
from components.trace.config import Part, TraceConfig

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TraceStatistics:
    """Statistics of a run.

    Attributes:
        quarantined: number of skipped modules.
        wall_s: duration of compiling and writing, without start-up.
    """

    modules: int
    decisions: int
    quarantined: int
    wall_s: float


def collect(config: TraceConfig) -> TraceStatistics:
    """Make the trace artifact `config.output`. UserError if toolchain, corpus or its arguments cannot be used."""
    toolchain = load_toolchain(config.toolchain).require_mode("training")
    features = logged_features(toolchain, config.problem)
    corpus = load_corpus(config.corpus)
    modules = sample_modules(traced_modules(corpus, config.part), config.sampling_rate, config.seed)
    require_replayable(modules, config.allowed_options)
    pool = make_pool(config.workers)
    try:
        with publish(config.output, "trace") as directory, Progress("tracing modules", len(modules)) as progress:
            writer = TraceWriter(directory, config.problem, problems.get(config.problem).policy.decision, features)
            quarantine = Quarantine(config.max_failed_fraction, len(modules))
            compiler = compiler_for(toolchain, config.problem, config.timeout_s, config.allowed_options)
            started_s = time.perf_counter()
            functions = FunctionDigests() if _has_sizes(config.problem) else None
            write_decisions(pool, compiler, modules, features, writer, quarantine, progress, functions)
            writer.close(_digest(config.corpus), _digest(config.toolchain))
            if functions is not None:
                functions.write(directory)
            wall_s = time.perf_counter() - started_s
            failed = len(quarantine.errors)
            collected = TraceStatistics(len(modules) - failed, writer.decisions, failed, wall_s)
            document = {"version": 1, **asdict(collected), "quarantine": quarantine.to_json()}
            (directory / REPORT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    finally:
        pool.close()
    return collected


def write_decisions(
    pool: WorkerPool,
    compiler: Compiler,
    modules: Sequence[Module],
    features: Sequence[FeatureSpec],
    writer: TraceWriter,
    quarantine: Quarantine,
    progress: Progress | None = None,
    functions: FunctionDigests | None = None,
) -> None:
    """Compile `modules`, log the heuristic's decisions and add them to `writer`, in the given order.

    Args:
        functions: gets the functions of the objects; None for a problem without sizes, or if they are not wanted.
    """
    sizes, bodies = _has_sizes(compiler.problem), functions is not None
    requests = [Request(m, Advisor("log"), want_functions=sizes, want_bodies=bodies) for m in modules]
    for result in _in_order(compile_all(pool, compiler, requests, quarantine, progress), modules, quarantine):
        writer.add(module_trace(result, compiler.problem, features))
        if functions is not None and (defined := result.samples[0].function_sizes) is not None:
            functions.add(defined)


def _has_sizes(problem: str) -> bool:
    return OBJECTIVES[problems.get(problem).objective].uses_function_sizes


def module_trace(result: Result, problem_name: str, features: Sequence[FeatureSpec]) -> ModuleTrace:
    """Return the rows of one compiled module. UserError if the compiler logged other features than `features`."""
    problem = problems.get(problem_name)
    sample = result.samples[0]
    callsites, sizes = sample.callsites, sample.function_sizes
    assert sample.log is not None
    logged = [spec for spec in sample.log.features if spec.name not in problem.policy.decisions]
    if logged != list(features):
        raise _feature_mismatch(result.module_name, logged, features)
    contexts = sample.log.contexts

    def concatenate(name: str) -> Array:
        parts = [context.columns[name] for context in contexts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty((0, 1), np.int64)

    lengths = [len(context) for context in contexts]
    reward: float | Array = 0.0
    if sample.scores is not None:
        scores = [sample.scores[context.name] for context in contexts]
        reward = np.repeat(np.asarray(scores, np.float32), lengths)
    return ModuleTrace(
        module=result.module_name,
        text_size_bytes=None if OBJECTIVES[problem.objective].needs_log else sample.text_size_bytes,
        compile_s=result.compile_s,
        contexts=[context.name for context in contexts],
        context=np.repeat(np.arange(len(contexts), dtype=np.int32), lengths),
        step=np.concatenate([np.arange(n, dtype=np.int32) for n in [0, *lengths]]),
        names=callsites.names if callsites else [],
        caller=callsites.caller if callsites else None,
        callee=callsites.callee if callsites else None,
        columns={spec.name: concatenate(spec.name) for spec in features},
        action=concatenate(problem.policy.decision).reshape(-1),
        reward=reward,
        weak_functions=list(compress(sizes.names, sizes.weak.tolist())) if sizes else None,
    )


def logged_features(toolchain: Toolchain, problem_name: str) -> tuple[FeatureSpec, ...]:
    """Return the features that this training clang logs, without the decisions.

    Raises:
        UserError: it logs none for the problem.
    """
    problem = problems.get(problem_name)
    features = toolchain.features.get(problem_name, ())
    features = tuple(spec for spec in features if spec.name not in problem.policy.decisions)
    if not features:
        others = ", ".join(sorted(toolchain.features)) or "none"
        raise UserError(
            f"the clang in {toolchain.directory} logs no features for the problem {problem_name} (but for: {others})",
            "rebuild it with: mlgo toolchain --mode training --output DIR",
        )
    return features


def traced_modules(corpus: Corpus, part: Part) -> tuple[Module, ...]:
    """Return the modules of `part`, largest bitcode first: a large module that starts last would run alone at the end.

    Raises:
        UserError: the part has no modules.
    """
    if part != "learning":
        modules = corpus.split(part)
    elif (corpus.directory / SPLITS_FILE).exists():
        modules = corpus.split("train") + corpus.split("validation")
    else:
        modules = corpus.modules
    if not modules:
        raise UserError(f"the corpus in {corpus.directory} has no modules in part {part!r}", "choose another --part")
    return tuple(sorted(modules, key=lambda module: (-module.bitcode.stat().st_size, module.name)))


def sample_modules(modules: tuple[Module, ...], rate: float, seed: int) -> tuple[Module, ...]:
    """Return a fraction of the modules, at least one, in their order, chosen by names and seed."""
    if rate >= 1:
        return modules
    order = sorted(modules, key=lambda module: hashlib.sha256(f"{seed} {module.name}".encode()).digest())
    chosen = {module.name for module in order[: max(1, round(rate * len(modules)))]}
    return tuple(module for module in modules if module.name in chosen)


def _in_order(
    done: Iterable[tuple[Request, Result]], modules: Sequence[Module], quarantine: Quarantine
) -> Iterator[Result]:
    """Yield the results in the order of `modules`, so that the rows do not depend on which worker is faster.

    Results wait in memory for earlier modules; a module that failed once delays the others until it was retried.
    """
    waiting: dict[str, Result] = {}
    position = 0
    for request, result in done:
        waiting[request.module.name] = result
        while position < len(modules) and (modules[position].name in waiting or modules[position].name in quarantine):
            if modules[position].name in waiting:
                yield waiting.pop(modules[position].name)
            position += 1
    for module in modules[position:]:
        if module.name in waiting:
            yield waiting.pop(module.name)


def _feature_mismatch(module: str, logged: Sequence[FeatureSpec], listed: Sequence[FeatureSpec]) -> UserError:
    extra = sorted({spec.name for spec in logged} - {spec.name for spec in listed})
    missing = sorted({spec.name for spec in listed} - {spec.name for spec in logged})
    differences = [f"not listed: {', '.join(extra)}"] if extra else []
    differences += [f"not logged: {', '.join(missing)}"] if missing else []
    return UserError(
        f"the compile of {module} logged features that differ from the toolchain's toolchain.json "
        f"({'; '.join(differences) or 'other types, shapes or order'})",
        "rebuild the toolchain, so that its description matches its compiler",
    )


def _digest(directory: Path) -> str:
    """Return the artifact's digest, or "" for a corpus of another tool, which has no manifest."""
    return digest(directory) if (directory / MANIFEST).exists() else ""
