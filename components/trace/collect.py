"""Compiles every module under the default heuristic and writes what was decided.

The compilers are the cost; everything here is kept off their cores. Per module it is the parsing of one log by numpy,
and now and then a shard of Parquet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components import problems
from components.compiler.advisor import Advisor
from components.compiler.command_line import require_replayable
from components.compiler.compile import Compiler, Request, Result
from components.compiler.quarantine import Quarantine, compile_all
from components.console import Progress, UserError
from components.formats.corpus import Corpus, Module, load_corpus
from components.formats.features import FeatureSpec
from components.formats.splits import FILE as SPLITS_FILE
from components.formats.toolchain import Toolchain, load_toolchain
from components.formats.trace import REPORT, ModuleTrace, TraceWriter
from components.storage.manifest import MANIFEST, digest
from components.storage.publish import publish
from components.trace.config import Part, TraceConfig
from components.workers import WorkerPool, make_pool

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Collected:
    """What a run did. quarantined: modules left out. wall_s: compiling and writing, start-up not."""

    modules: int
    decisions: int
    quarantined: int
    wall_s: float


def collect(config: TraceConfig) -> Collected:
    """Makes the trace artifact `config.output`. UserError for whatever is wrong with the inputs."""
    toolchain = load_toolchain(config.toolchain).require_mode("training")
    features = logged_features(toolchain, config.problem)
    corpus = load_corpus(config.corpus)
    modules = traced_modules(corpus, config.part)
    require_replayable(modules, config.allowed_options)
    pool = make_pool(config.workers)
    try:
        with publish(config.output) as directory, Progress("tracing modules", len(modules)) as progress:
            writer = TraceWriter(directory, config.problem, problems.get(config.problem).decision, features)
            quarantine = Quarantine(config.max_failed_fraction, len(modules))
            compiler = Compiler(toolchain.clang, config.problem, config.timeout_s, config.allowed_options)
            started_s = time.perf_counter()
            write_decisions(pool, compiler, modules, features, writer, quarantine, progress)
            writer.close(_digest(config.corpus), _digest(config.toolchain))
            wall_s = time.perf_counter() - started_s
            collected = Collected(len(modules) - len(quarantine), writer.decisions, len(quarantine), wall_s)
            _write_report(directory, collected, quarantine)
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
) -> None:
    """Compiles `modules` with the heuristic's decisions logged and adds them to `writer`, in the given order."""
    by_size = problems.get(compiler.problem).measure == "size"
    requests = [Request(module, Advisor("log"), want_functions=by_size) for module in modules]
    for result in _in_order(compile_all(pool, compiler, requests, quarantine, progress), modules, quarantine):
        writer.add(module_trace(result, compiler.problem, features))


def module_trace(result: Result, problem_name: str, features: Sequence[FeatureSpec]) -> ModuleTrace:
    """The rows of one compiled module. UserError if the compiler logged other features than `features`."""
    problem = problems.get(problem_name)
    sample = result.samples[0]
    callsites, sizes = sample.callsites, sample.function_sizes
    assert sample.log is not None
    logged = [spec for spec in sample.log.features if spec.name not in problem.decisions]
    if logged != list(features):
        raise _other_features(result.module_name, logged, features)
    contexts = sample.log.contexts

    def joined(name: str) -> Array:
        parts = [context.columns[name] for context in contexts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty((0, 1), np.int64)

    lengths = [len(context) for context in contexts]
    reward: float | Array = 0.0
    if sample.scores is not None:
        scores = [sample.scores[context.name] for context in contexts]
        reward = np.repeat(np.asarray(scores, np.float32), lengths)
    return ModuleTrace(
        module=result.module_name,
        text_size_bytes=sample.text_size_bytes if problem.measure == "size" else None,
        compile_s=result.compile_s,
        contexts=[context.name for context in contexts],
        context=np.repeat(np.arange(len(contexts), dtype=np.int32), lengths),
        step=np.concatenate([np.arange(n, dtype=np.int32) for n in [0, *lengths]]),
        names=callsites.names if callsites else [],
        caller=callsites.caller if callsites else None,
        callee=callsites.callee if callsites else None,
        columns={spec.name: joined(spec.name) for spec in features},
        action=joined(problem.decision).reshape(-1),
        reward=reward,
        weak_functions=list(compress(sizes.names, sizes.weak.tolist())) if sizes else None,
    )


def logged_features(toolchain: Toolchain, problem_name: str) -> tuple[FeatureSpec, ...]:
    """The features that this training clang logs, decisions left out. UserError if it logs none for the problem."""
    problem = problems.get(problem_name)
    features = toolchain.features.get(problem_name, ())
    features = tuple(spec for spec in features if spec.name not in problem.decisions)
    if not features:
        known = ", ".join(sorted(toolchain.features)) or "none"
        raise UserError(
            f"the clang in {toolchain.directory} logs no features for the problem {problem_name} (but for: {known})",
            "make it again with: python -m components.toolchain --mode training --output DIR",
        )
    return features


def traced_modules(corpus: Corpus, part: Part) -> tuple[Module, ...]:
    """The modules of `part`, the largest bitcode first: a large one that starts last would run alone at the end."""
    if part != "learning":
        modules = corpus.split(part)
    elif (corpus.directory / SPLITS_FILE).exists():
        modules = corpus.split("train") + corpus.split("validation")
    else:
        modules = corpus.modules
    if not modules:
        raise UserError(f"the corpus in {corpus.directory} has no modules in part {part!r}", "choose another --part")
    return tuple(sorted(modules, key=lambda module: (-module.bitcode.stat().st_size, module.name)))


def _in_order(
    done: Iterable[tuple[Request, Result]], modules: Sequence[Module], quarantine: Quarantine
) -> Iterator[Result]:
    """The results in the order of `modules`, so that the same corpus gives the same rows whatever worker was faster.

    Results wait in memory for earlier modules; a module that failed once holds up the rest until it was tried again.
    """
    waiting: dict[str, Result] = {}
    at = 0
    for request, result in done:
        waiting[request.module.name] = result
        while at < len(modules) and (modules[at].name in waiting or modules[at].name in quarantine):
            if modules[at].name in waiting:
                yield waiting.pop(modules[at].name)
            at += 1
    for module in modules[at:]:
        if module.name in waiting:
            yield waiting.pop(module.name)


def _other_features(module: str, logged: Sequence[FeatureSpec], listed: Sequence[FeatureSpec]) -> UserError:
    extra = sorted({spec.name for spec in logged} - {spec.name for spec in listed})
    missing = sorted({spec.name for spec in listed} - {spec.name for spec in logged})
    differences = [f"not listed: {', '.join(extra)}"] if extra else []
    differences += [f"not logged: {', '.join(missing)}"] if missing else []
    return UserError(
        f"compiling {module} logged other features than the toolchain's toolchain.json lists "
        f"({'; '.join(differences) or 'other types, shapes or order'})",
        "make the toolchain again, so that its description fits its compiler",
    )


def _digest(directory: Path) -> str:
    """The artifact's digest; "" for a corpus that another tool made, without a manifest."""
    return digest(directory) if (directory / MANIFEST).exists() else ""


def _write_report(directory: Path, collected: Collected, quarantine: Quarantine) -> None:
    document = {"version": 1, **asdict(collected), "quarantine": quarantine.to_json()}
    (directory / REPORT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
