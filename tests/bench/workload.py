"""What the iterations of a training send to its workers, how long those take, and what they send back."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components import problems
from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request
from components.formats.corpus import Module, load_corpus
from components.formats.toolchain import load_toolchain
from components.formats.trace import read_columns, read_modules
from components.policy.dense import DensePolicy, read_dense
from components.ppo.config import PpoConfig
from components.ppo.sample import Sampled, SampleModule
from components.ppo.sampler import Sampler, worth
from tests.bench.asleep import Asleep

PROBLEM = problems.get("inlining")
"""Whose trainings are simulated: their modules are judged by sizes."""
SAMPLES = PROBLEM.samples
MODULE_WEIGHT = PpoConfig.module_weight
CALLS = 4
"""Decisions of a function, which share an advantage, or nearly so."""


@dataclass(frozen=True)
class Workload:
    """The training modules of a run, and how long SAMPLES samples of each take: SAMPLES times its compile in the trace.

    modules, weights: by name; a weight is how often the sampler takes the module. asleep: what stands in for compiles.
    """

    modules: Mapping[str, Module]
    weights: Mapping[str, float]
    dense: DensePolicy
    clang: Path
    asleep: Asleep

    def names(self, count: int, seed: int = 0) -> list[str]:
        """The modules of the next iterations of a training, `count` in all."""
        sampler, batch = Sampler(self.weights, seed), PROBLEM.modules
        return [name for _ in range(-(-count // batch)) for name in sampler.take(batch)][:count]

    def requests(self, names: Sequence[str], policy: Path) -> list[Request]:
        """As RolloutCollector.sample makes them."""
        return [
            Request(self.modules[name], Advisor("policy", policy=policy, seed=i, samples=SAMPLES, log=True), True)
            for i, name in enumerate(names)
        ]

    def longest_first(self, count: int, seed: int) -> list[str]:
        """The modules of one iteration, in the order in which they are sent."""
        return sorted(self.names(count, seed), key=self.asleep.compile_s.__getitem__, reverse=True)


def read_workload(run: Path, scratch: Path) -> Workload:
    """The training of a finished run. What its workers will answer is written to `scratch`, a file for each module."""
    table = read_modules(run / "trace")
    modules = {module.name: module for module in load_corpus(run / "corpus").split("train")}
    known = np.isin(table["module"], list(modules)) & (table["decisions"] > 0) & (table["text_size_bytes"] > 0)
    names, compile_s = table["module"][known].tolist(), table["compile_s"][known]
    weights = worth(table["decisions"][known], compile_s).tolist()
    dense, clang = read_dense(run / "warmstart"), load_toolchain(run / "training").clang
    _write_answers(run / "trace", names, dense, scratch)
    sample = SampleModule(
        Compiler(clang, dense.problem), dense.features, dense.buckets, function_credit=True, module_weight=MODULE_WEIGHT
    )
    seconds = dict(zip(names, (SAMPLES * compile_s).tolist(), strict=True))
    asleep = Asleep(sample, seconds, scratch, {name: i for i, name in enumerate(names)})
    return Workload(modules, dict(zip(names, weights, strict=True)), dense, clang, asleep)


def _write_answers(trace: Path, names: Sequence[str], dense: DensePolicy, directory: Path) -> None:
    """A Sampled of each module: SAMPLES times its decisions in the trace.

    Actions and advantages are drawn, so that they do not pack better than real ones. Advantages are few and repeat,
    for credit belongs to functions.
    """
    random = np.random.default_rng(0)
    columns = read_columns(trace, ["module", *(feature.name for feature in dense.features)])
    rows = {name: np.flatnonzero(columns["module"] == name) for name in names}
    quantiles = dense.inputs(columns)
    for number, name in enumerate(names):
        taken = np.tile(quantiles[rows[name]], (SAMPLES, 1))
        count = len(taken)
        advantages = np.repeat(random.normal(size=-(-count // CALLS)), CALLS)[:count]
        sizes_bytes, action = tuple(random.integers(1000, 100_000, SAMPLES).tolist()), random.integers(0, 2, count)
        sampled = Sampled(name, sizes_bytes, taken, action, dense.logits_of_inputs(taken), advantages, 1.0)
        (directory / str(number)).write_bytes(pickle.dumps(sampled, pickle.HIGHEST_PROTOCOL))
