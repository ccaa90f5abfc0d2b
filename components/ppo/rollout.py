"""Compiles modules under a policy and turns what comes out into decisions with advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request, Result
from components.compiler.quarantine import Quarantine, compile_all
from components.formats.corpus import Module
from components.policy.dense import DensePolicy
from components.ppo.credit import function_advantages, module_advantages
from components.problems import Problem
from components.workers import WorkerPool


@dataclass(frozen=True)
class Rollout:
    """Samples of some modules, in the order in which the modules were asked for, whatever order they came in.

    rewards: per module and sample, 1 - size / baseline size. quantiles, action, logits: see agent.Experience;
    advantage_bytes: float64 [N] before scaling. compile_s: sum over the modules' compiles.
    """

    modules: tuple[str, ...]
    rewards: NDArray[np.float64]
    quantiles: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    advantage_bytes: NDArray[np.float64]
    compile_s: float


@dataclass(frozen=True)
class Roller:
    """What stays the same between rollouts. baselines: module name -> bytes under the heuristic."""

    compiler: Compiler
    pool: WorkerPool
    problem: Problem
    baselines: dict[str, int]
    function_credit: bool
    module_weight: float

    def sample(
        self,
        modules: Sequence[Module],
        policy: Path,
        dense: DensePolicy,
        samples: int,
        seed: int,
        quarantine: Quarantine,
    ) -> Rollout:
        """Compiles each module `samples` times under the sampled policy; module i has seeds from seed + i * samples."""
        requests = [
            Request(
                module,
                Advisor("policy", policy=policy, seed=seed + i * samples, samples=samples, log=True),
                want_functions=self.function_credit,
            )
            for i, module in enumerate(modules)
        ]
        order = {module.name: i for i, module in enumerate(modules)}
        # The longest first, so that the workers end together: a long one that begins last has them wait for it.
        requests.sort(key=lambda request: self.baselines[request.module.name], reverse=True)
        done = list(compile_all(self.pool, self.compiler, requests, quarantine))
        done.sort(key=lambda pair: order[pair[0].module.name])
        return self._collect([result for _, result in done], dense)

    def _collect(self, results: Sequence[Result], dense: DensePolicy) -> Rollout:
        names, rewards, parts = [], [], []
        for result in results:
            baseline = self.baselines[result.module_name]
            names.append(result.module_name)
            rewards.append([1 - s.text_size_bytes / baseline for s in result.samples])
            if self.function_credit:
                advantages = function_advantages(result.samples, self.module_weight)
            else:
                advantages = module_advantages(result.samples)
            for sample, advantage in zip(result.samples, advantages, strict=True):
                if len(advantage) == 0 or sample.log is None:
                    continue
                columns = sample.log.contexts[0].columns
                parts.append(
                    (
                        dense.quantiles(columns),
                        columns[self.problem.decision].reshape(-1),
                        columns[self.problem.logits].reshape(-1, self.problem.num_actions),
                        advantage,
                    )
                )
        empty = (
            np.zeros((0, len(dense.features)), np.float32),
            np.zeros(0, np.int64),
            np.zeros((0, self.problem.num_actions), np.float32),
            np.zeros(0),
        )
        quantiles, action, logits, advantage = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
        compile_s = sum(result.compile_s for result in results)
        return Rollout(tuple(names), np.array(rewards), quantiles, action, logits, advantage, compile_s)

    def greedy_sizes(self, modules: Sequence[Module], policy: Path, quarantine: Quarantine) -> dict[str, int]:
        """Bytes of each module under the most probable decisions; modules in quarantine are left out."""
        requests = [Request(module, Advisor("policy", policy=policy)) for module in modules]
        done = compile_all(self.pool, self.compiler, requests, quarantine)
        return {request.module.name: result.samples[0].text_size_bytes for request, result in done}
