"""Workload of a training: the requests of its iterations to workers, their compile times, and their answers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler
from components.core.counterfactual.flips import FlipSavings
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import read_columns, read_modules, read_object_counts
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.tf.observation import logits, observations
from components.ppo.credit.measured_flips import FlipJob, FlipResult, MeasureModule
from components.ppo.learners.replay import ReplayRows
from components.ppo.module_sampler import ModuleSampler, sampling_weights
from components.ppo.rollout import divide_modules
from tests.bench.sleeping_compile import SleepingCompile

PROBLEM = problems.get("inlining")
"""The problem whose training is simulated; its objective is size."""
MEASURED_TWICE = 0.1
"""Fraction of the measured decisions that are measured twice."""


@dataclass(frozen=True)
class Workload:
    """The training modules of a run, and the durations of their compiles, from the trace.

    Attributes:
        modules, weights: by name; a weight is how often the sampler picks the module.
        sleeping: replaces compiles.
    """

    modules: Mapping[str, Module]
    weights: Mapping[str, float]
    dense: DensePolicy
    clang: Path
    sleeping: SleepingCompile

    def names(self, count: int, seed: int = 0) -> list[str]:
        """Return the modules of the next iterations of a training, `count` in all."""
        sampler, batch = ModuleSampler(self.weights, seed), PROBLEM.training.modules
        return [name for _ in range(-(-count // batch)) for name in sampler.next_batch(batch)][:count]

    def requests(self, names: Sequence[str], policy: Path, parts: Sequence[int] | None = None) -> list[FlipJob]:
        """Return what RolloutCollector.measure sends. parts: of each module; None divides none."""
        advisor = Advisor("policy", policy=policy, log=True)
        return [
            FlipJob(self.modules[name], advisor, want_functions=True, part=part, parts=count)
            for name, count in zip(names, parts or [1] * len(names), strict=True)
            for part in range(count)
        ]

    def iteration(self, count: int, seed: int, policy: Path, slots: int) -> list[FlipJob]:
        """Return the requests of one iteration, in the order in which they are sent."""
        names = self.names(count, seed)
        seconds = [self.sleeping.compile_s[name] for name in names]
        parts = divide_modules(seconds, self.sleeping.flip_compiles, slots)
        return sorted(self.requests(names, policy, parts), key=self.sleeping.seconds, reverse=True)


def read_workload(run: Path, scratch: Path, flip_compiles: int = 0) -> Workload:
    """Return the workload of a finished run. The answers of workers are written to `scratch`, one file per module.

    flip_compiles: compiles with flips of each module; 0 for the problem's default.
    """
    flip_compiles = flip_compiles or PROBLEM.training.samples
    table = read_modules(run / "trace")
    corpus = load_corpus(run / "corpus")
    modules = {module.name: module for module in corpus.split("train")}
    is_measured = np.isin(table["module"], list(modules)) & (table["decisions"] > 0) & (table["text_size_bytes"] > 0)
    names = table["module"][is_measured].tolist()
    bitcode_bytes = np.array([modules[name].bitcode.stat().st_size for name in names])
    weights = sampling_weights(table["decisions"][is_measured], bitcode_bytes).tolist()
    dense, clang = read_dense(run / "warmstart"), load_toolchain(run / "training").clang
    _write_samples(run / "trace", names, dense, scratch, flip_compiles)
    measure = MeasureModule(
        Compiler(clang, dense.problem),
        dense.features,
        dense.buckets,
        flip_compiles,
        0,
        read_object_counts(run / "trace"),
    )
    seconds = dict(zip(table["module"].tolist(), table["compile_s"].tolist(), strict=True))
    sleeping = SleepingCompile(measure, flip_compiles, seconds, scratch, {name: i for i, name in enumerate(names)})
    return Workload(modules, dict(zip(names, weights, strict=True)), dense, clang, sleeping)


def _write_samples(trace: Path, names: Sequence[str], dense: DensePolicy, directory: Path, flip_compiles: int) -> None:
    random = np.random.default_rng(0)
    columns = read_columns(trace, ["module", *(feature.name for feature in dense.features)])
    order = np.argsort(columns["module"], kind="stable")
    ordered, modules = columns["module"][order], np.array(names)
    first, last = np.searchsorted(ordered, modules), np.searchsorted(ordered, modules, side="right")
    for number, name in enumerate(names):
        rows = order[first[number] : last[number]]
        samples = _sampled(name, rows, columns, dense, random, flip_compiles)
        (directory / str(number)).write_bytes(pickle.dumps(samples, pickle.HIGHEST_PROTOCOL))


def _sampled(
    name: str,
    rows: NDArray[np.intp],
    columns: Mapping[str, NDArray[np.generic]],
    dense: DensePolicy,
    random: np.random.Generator,
    flip_compiles: int,
) -> FlipResult:
    """Return as many measurements as a real module has; observations are from the trace, gains are random."""
    # Fitted to measurements of 192 modules of full.yaml: 53 of 113 decisions, 188 of 551, 1,604 of 8,346.
    decisions = random.permutation(len(rows))[: round(1.25 * len(rows) ** 0.79)]
    again = decisions[: round(MEASURED_TWICE * len(decisions))]
    decision = np.concatenate([decisions, again])
    flip_set = np.concatenate([np.arange(len(decisions)), np.arange(len(again)) + 1]) % flip_compiles
    order = np.lexsort((flip_set, decision))
    decision, flip_set = decision[order], flip_set[order]
    chosen = {name: column[rows[decision]] for name, column in columns.items()}
    observed = observations(PROBLEM, dense.features, dense.buckets, chosen)
    action = random.integers(0, 2, len(decision))
    gain = random.normal(scale=100, size=len(decision))
    savings = FlipSavings(
        flip=np.arange(len(decision)),
        flip_set=flip_set,
        decision=decision,
        alternative=1 - action,
        together=np.ones_like(decision),
        group_size=np.ones_like(decision),
        saved=gain,
        error=10.0,
        attributed=float(np.abs(gain).sum()),
    )
    replay_rows = ReplayRows(observed, logits(dense, observed), action, savings.alternative, gain)
    return FlipResult(name, 0, {"": 1000}, savings, replay_rows, compiles=1 + flip_compiles)
