"""The search over all modules: rounds on those that may still become smaller, until the time limit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Module, project_of
from components.core.objectives.size import bytes_kept, import_bytes
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.workers import WorkerPool
from components.platform.workers.local_pool import LocalPool
from components.tune.climb import Climb, ClimbRequest, Round, objective_bytes
from components.tune.config import TuneConfig
from components.tune.state import ModuleState, SearchDirectory

MIN_SIZE_SAVING = 1e-3
"""A module is finished when a trial of all its decisions has saved less than this fraction of its size."""


@dataclass(frozen=True)
class Workbench:
    """What compiles the modules of a search.

    Attributes:
        compiler: the training clang.
        policy: in the form that this clang loads.
        quarantine: receives the modules that do not compile.
    """

    compiler: Compiler
    policy: Path
    pool: WorkerPool
    quarantine: Quarantine


def _survey_module(compiler: Compiler, request: Request) -> tuple[int, int, dict[str, int]]:
    """Return a module's text size and imports in bytes, and the sizes of functions of which the linker keeps one."""
    (sample,) = compiler(request).samples
    assert sample.function_sizes is not None
    sizes = sample.function_sizes
    weak = set(compress(sizes.names, sizes.weak.tolist()))
    imports = import_bytes(sizes.undefined) if request.module.is_program() else 0
    return sample.text_size_bytes, imports, {name: n for name, n in sizes.by_name().items() if name in weak}


def search(
    config: TuneConfig, bench: Workbench, modules: Sequence[Module], directory: SearchDirectory
) -> dict[str, ModuleState]:
    """Search until `config.minutes` are over or nothing improves. UserError if too many modules do not compile.

    Returns:
        The state of each module, without those that do not compile. Modules that were not reached have no rounds, and
        the sizes of the start as the result. Empty if no module was reached.
    """
    deadline_s = time.monotonic() + config.minutes * 60
    quarantine = bench.quarantine
    states, definition_counts = _survey(config, bench, modules, directory)
    # A Ray worker has one processor.
    jobs = max(1, bench.pool.size // len(modules)) if isinstance(bench.pool, LocalPool) else 1
    climb = Climb(bench.compiler, config.flip_compiles, config.seed, definition_counts, jobs)
    advisor = Advisor("policy", policy=bench.policy, log=True)
    by_name = {module.name: module for module in modules}
    with Progress("searching: rounds") as progress:
        while wave := [name for name, state in states.items() if not state.finished and name not in quarantine]:
            wave.sort(key=lambda name: -states[name].heuristic_bytes)  # longest first, so that workers finish together
            requests = [
                ClimbRequest(
                    by_name[name],
                    advisor,
                    changed=states[name].changed,
                    tried=states[name].tried,
                    number=states[name].rounds,
                )
                for name in wave
            ]
            with closing(compile_all(bench.pool, climb, requests, quarantine)) as rounds:
                for _request, done in rounds:
                    _update(states[done.module], done)
                    directory.save(done.module, states[done.module])
                    started = [state for state in states.values() if state.rounds]
                    progress.advance(
                        modules=f"{sum(state.finished for state in started)} of {len(states)} finished",
                        saved_percent=100
                        * (
                            1
                            - sum(s.linked_bytes for s in started) / max(1, sum(s.start_linked_bytes for s in started))
                        ),
                    )
                    if time.monotonic() > deadline_s:
                        break
            if time.monotonic() > deadline_s:
                break
    if not any(state.rounds for name, state in states.items() if name not in quarantine):
        return {}
    unreached = [by_name[name] for name, state in states.items() if not state.rounds and name not in quarantine]
    _measure_policy(bench, unreached, states, definition_counts)
    return {name: state for name, state in states.items() if name not in quarantine}


def _measure_module(
    compiler: Compiler, definition_counts: Mapping[str, Mapping[str, int]], request: Request
) -> tuple[int, float]:
    """Return a module's text size and the objective, in bytes."""
    (sample,) = compiler(request).samples
    counts = definition_counts.get(request.module.project, {})
    return sample.text_size_bytes, objective_bytes(sample, request.module.is_program(), counts)


def _measure_policy(
    bench: Workbench,
    modules: Sequence[Module],
    states: Mapping[str, ModuleState],
    definition_counts: Mapping[str, Mapping[str, int]],
) -> None:
    """Set the sizes of modules that keep the start's decisions, so that totals are those of the program."""
    if not modules:
        return
    requests = [Request(module, Advisor("policy", policy=bench.policy), want_functions=True) for module in modules]
    measure = partial(_measure_module, bench.compiler, definition_counts)
    with Progress("compiling modules that were not reached, under the policy", len(requests)) as progress:
        for request, (size, linked) in compile_all(bench.pool, measure, requests, bench.quarantine, progress):
            state = states[request.module.name]
            state.policy_bytes, state.policy_linked_bytes = size, linked
            state.size_bytes, state.linked_bytes = state.start_bytes, state.start_linked_bytes


def _update(state: ModuleState, done: Round) -> None:
    """Add the result of a round to the state of its module."""
    if not state.rounds:
        state.source = done.source
        state.policy_bytes, state.policy_linked_bytes = done.policy_bytes, done.policy_linked_bytes
    state.rounds += 1
    state.size_bytes, state.linked_bytes = done.size_bytes, done.linked_bytes
    state.changed, state.tried = done.changed, done.tried
    state.gained_bytes += done.base_linked_bytes - done.linked_bytes
    if done.exhausted:
        # Flips that saved nothing may do so after later changes, so all of them are tried again.
        state.finished = state.gained_bytes <= MIN_SIZE_SAVING * done.size_bytes
        state.gained_bytes, state.tried = 0.0, frozenset()


def _survey(
    config: TuneConfig, bench: Workbench, modules: Sequence[Module], directory: SearchDirectory
) -> tuple[dict[str, ModuleState], dict[str, dict[str, int]]]:
    """Return the state of every module and, by project, the number of modules with each weak function, if several."""
    weak: dict[str, Counter[str]] = {}
    surveyed: dict[str, tuple[int, int, dict[str, int]]] = {}
    requests = [Request(module, Advisor("default"), want_functions=True) for module in modules]
    requests.sort(key=lambda request: -request.module.bitcode.stat().st_size)
    survey = partial(_survey_module, bench.compiler)
    with Progress("compiling with LLVM's heuristic", len(modules)) as progress:
        for request, (size, imports, functions) in compile_all(
            bench.pool, survey, requests, bench.quarantine, progress
        ):
            name = request.module.name
            surveyed[name] = size, imports, functions
            weak.setdefault(project_of(name), Counter()).update(functions.keys())
    if not surveyed:
        raise UserError("no module of the corpus compiles", "check that the corpus was made for this clang")
    definition_counts: dict[str, dict[str, int]] = {}
    if config.size_of == "linked":
        definition_counts = {
            project: {name: n for name, n in counts.items() if n > 1} for project, counts in weak.items()
        }
    is_program = {module.name: module.is_program() for module in modules}
    states: dict[str, ModuleState] = {}
    for name, (size, imports, functions) in surveyed.items():
        linked = imports + bytes_kept(size, functions, definition_counts.get(project_of(name), {}))
        states[name] = directory.load(name) or ModuleState(
            size, heuristic_linked_bytes=linked, is_program=is_program[name]
        )
    return states, definition_counts
