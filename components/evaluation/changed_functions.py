"""The functions that changed most in the held-out modules that grew and shrank most, and the decisions behind them."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from components.core.compiler.advisor import TRAINED_RANGES
from components.core.compiler.clang_programs import llvm_binutils
from components.core.compiler.compile import CompileError, Request
from components.core.compiler.objects.function_names import demangle
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.core.counterfactual.explain import Effect, Explanation, explain_functions
from components.core.formats.corpus import Corpus, Module, load_corpus
from components.core.formats.policy import require_policy
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.policy.dense import WEIGHTS_FILE
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.metrics_types import FunctionChange, FunctionDecision
from components.evaluation.projects.function_changes import compare_functions, largest_changes
from components.evaluation.report.changed_functions import by_direction
from components.evaluation.variants import Variant
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes.output import capture
from components.platform.workers.factory import make_pool
from components.platform.workers.pool import WorkerPool, WorkersDied

MODULES = 3
"""Modules of each direction whose functions are compared."""
FUNCTIONS = 10
"""Functions of each direction that are listed."""
EXPLAINED = 5
"""Functions of each direction whose decisions are measured, a few seconds for each module."""
MEASURED = 6
"""Measurements for a function."""
LISTED = 2
"""Decisions that are listed for a function."""
_POLICIES = ("release_policy", "policy")
"""Folders of a run with the policy of its release clang."""


def changed_functions(
    pool: WorkerPool,
    config: EvaluationConfig,
    measured: Measurements,
    modules: Sequence[Module],
    variants: Sequence[Variant],
    training: Toolchain,
) -> list[FunctionChange]:
    """Return the functions with the largest changes in the modules that grew most and in those that shrank most.

    Those that grew come first. The largest ones have the decisions behind them, where the training clang can measure
    these: it takes the policy as a shared object, and forced decisions.

    Args:
        measured: sizes of the held-out modules. [] for another objective.
        variants: of the evaluation; the baseline's and the policy's compile again.
    """
    if not measured.cases_are_modules or POLICY not in measured.values:
        return []
    by_name = {module.name: module for module in modules}
    chosen = [by_name[name] for name in _extreme_modules(measured) if name in by_name]
    compared = [variant for name in (BASELINE, POLICY) for variant in variants if variant.name == name]
    if not chosen or len(compared) < 2:
        return []
    baseline, policy = compared
    compare = partial(_compare_module, config, baseline, policy)
    changes: list[FunctionChange] = []
    with Progress("comparing functions", len(chosen)) as progress:
        for _, result in pool.map_unordered(compare, chosen):
            if not isinstance(result, Exception):
                changes += result
            elif not isinstance(result, (CompileError, WorkersDied)):
                raise result
            progress.advance()
    listed = largest_changes(changes, FUNCTIONS)
    if (
        config.problem == "inlining"
        and "forced_decisions" in training.capabilities
        and all((config.policy / name).is_file() for name in (SHARED_OBJECT, WEIGHTS_FILE))
    ):
        by_module: dict[str, list[FunctionChange]] = {}
        for change in _most_of_each_direction(listed):
            by_module.setdefault(change.binary, []).append(change)
        _explain(pool, [(by_name[name], of_module) for name, of_module in by_module.items()], config.policy, training)
    return listed


def explain_builds(changes: Sequence[FunctionChange], run: Path) -> None:
    """Add the decisions behind the largest changes between two builds, from the modules of a run that define them.

    Args:
        changes: of the builds; modified.
        run: output of `mlgo run` for inlining, whose release clang made the new build.

    Raises:
        UserError: the run is incomplete, or its training clang cannot measure decisions.
    """
    corpus, training = load_corpus(run / "corpus"), load_toolchain(run / "training").require_mode("training")
    policy = next((path for name in _POLICIES if (path := run / name).is_dir()), run / _POLICIES[-1])
    require_policy(policy)
    if "forced_decisions" not in training.capabilities or not (policy / SHARED_OBJECT).is_file():
        raise UserError(
            f"the training clang in {training.directory} does not measure decisions of {policy}",
            "leave --run out, and pass a module to mlgo policy explain",
        )
    chosen = {change.symbol: change for change in _most_of_each_direction(changes)}
    by_module: dict[str, list[FunctionChange]] = {}
    for symbol, module in _defining_modules(corpus, set(chosen), training).items():
        by_module.setdefault(module, []).append(chosen[symbol])
    modules = [module for module in corpus if module.name in by_module]
    with closing(make_pool("local")) as pool:
        _explain(pool, [(module, by_module[module.name]) for module in modules], policy, training)


def _explain(
    pool: WorkerPool, items: Sequence[tuple[Module, list[FunctionChange]]], policy: Path, training: Toolchain
) -> None:
    """Add the decisions behind the changes of functions in modules to the changes, measured by the training clang."""
    ranges = TRAINED_RANGES if "trained_ranges" in training.capabilities else ()
    symbols = {module.name: [change.symbol for change in changes] for module, changes in items}
    explain = partial(_explain_module, policy, training.clang, symbols, ranges)
    with Progress("measuring decisions behind the largest changes", len(items)) as progress:
        for index, result in pool.map_unordered(explain, [module for module, _ in items]):
            module, changes = items[index]
            if isinstance(result, UserError):
                say(f"no decisions of {module.name} are listed: {result.problem}")
            elif isinstance(result, Exception):
                raise result
            else:
                for change in changes:
                    _add_decisions(change, *result)
            progress.advance()


def _defining_modules(corpus: Corpus, symbols: Collection[str], training: Toolchain) -> dict[str, str]:
    """Return the first module that defines each symbol; symbols that no module defines are missing."""
    major = training.llvm_version.partition(".")[0]
    own, installed = llvm_binutils(training.clang).get("nm"), shutil.which(f"llvm-nm-{major}")
    program = own or installed
    if program is None:
        raise UserError(f"llvm-nm-{major} is not installed", f"install the package llvm-{major}, or leave --run out")
    found: dict[str, str] = {}
    for module in corpus:
        command = [program, "--defined-only", "--format=just-symbols", module.bitcode]
        done = capture(command, errors="surrogateescape")
        for symbol in set(symbols) & set(done.stdout.splitlines()):
            found.setdefault(symbol, module.name)
    return found


def _compare_module(
    config: EvaluationConfig, baseline: Variant, policy: Variant, module: Module
) -> list[FunctionChange]:
    """Compare the functions of a module under two variants, on a worker."""
    sizes = []
    for variant in (baseline, policy):
        compiler = variant.compiler(variant.clang, config.problem, config.timeout_s, config.allowed_options)
        request = Request(module, variant.advisor, want_functions=True, extra_flags=variant.extra_flags)
        compiled = compiler(request).samples[0].function_sizes
        assert compiled is not None
        sizes.append(_function_bytes(compiled))
    return compare_functions(module.name, *sizes)


def _explain_module(
    policy: Path, clang: Path, symbols: Mapping[str, Sequence[str]], extra_flags: tuple[str, ...], module: Module
) -> tuple[Explanation, dict[str, list[Effect]]]:
    return explain_functions(policy, module, clang, symbols[module.name], MEASURED, extra_flags)


def _extreme_modules(measured: Measurements) -> list[str]:
    """Return the modules that grew most bytes, then those that shrank most."""
    change = measured.values[POLICY] - measured.values[BASELINE]
    order = np.argsort(-change, kind="stable").tolist()
    grown = [i for i in order[:MODULES] if change[i] > 0]
    shrunk = [i for i in order[::-1][:MODULES] if change[i] < 0]
    return [measured.modules[i] for i in (*grown, *shrunk)]


def _function_bytes(sizes: FunctionSizes) -> dict[str, int]:
    """Return the whole bytes of each function, by one of its names: of a constructor, that of its code (C2)."""
    names: dict[int, str] = {}
    for name, entry in zip(sizes.names, sizes.entry.tolist(), strict=True):
        names[entry] = max(names.get(entry, ""), name)
    bytes_of: dict[str, int] = {}
    for entry, name in names.items():
        bytes_of[name] = bytes_of.get(name, 0) + int(sizes.whole[entry])
    return bytes_of


def _most_of_each_direction(changes: Sequence[FunctionChange]) -> list[FunctionChange]:
    return [change for _, chosen in by_direction(changes) for change in chosen[:EXPLAINED]]


def _add_decisions(change: FunctionChange, explanation: Explanation, effects: Mapping[str, list[Effect]]) -> None:
    """Set the decisions of a change: those without which the function has the most different size come first."""
    found = effects[change.symbol]
    # Decisions that do not change the function belong to one that is dropped, or only look like its cause.
    kept = [effect for effect in found if effect.function_growth]
    kept.sort(key=lambda effect: -abs(effect.function_growth or 0))
    listed = kept[:LISTED]
    calls = [effect.decisions[0] for effect in listed]
    callers, callees = (demangle([names[i] for i in calls]) for names in (explanation.callers, explanation.callees))
    change.decisions = [
        FunctionDecision(
            caller=caller,
            callee=callee,
            calls=len(effect.decisions),
            inlines=bool(explanation.action[effect.decisions[0]]),
            saved_bytes=effect.saved_bytes,
            function_bytes=max(change.new + (effect.function_growth or 0), 0),
        )
        for effect, caller, callee in zip(listed, callers, callees, strict=True)
    ]
    change.more_decisions = sum(len(effect.decisions) for effect in found) - sum(len(e.decisions) for e in listed)
