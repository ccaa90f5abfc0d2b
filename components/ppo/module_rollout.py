"""Decisions and advantages of one module, extracted on the worker that compiled it.

Four samples of a module have logs of 400 KB, and computing their advantages takes longer than reading them. On a
cluster the head must do neither for each of 500 workers, nor receive half a megabyte of decisions from each: a pickled
ModuleRollout has a twentieth of its size in memory. See docs/performance.md.
"""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.compile import Compiler, Request, Result
from components.core.compiler.sample import Sample
from components.core.formats.features import FeatureSpec
from components.core.objectives import OBJECTIVES
from components.core.objectives.objective import Outcome
from components.core.objectives.size import MODULE, linked_bytes
from components.core.policy.tf.observation import finite_logits, observation_shape, observations
from components.ppo.credit import score_credit, size_credit


@dataclass(frozen=True)
class ModuleRollout:
    """The rollout of one module: N decisions of all its samples.

    Attributes:
        outcomes: per sample, see Objective.outcome.
        observed, action, logits: float32 [N, *S], int64 [N], float32 [N, A], see learners.ppo.Experience.
        advantage: float64 [N], before scaling.
    """

    module_name: str
    outcomes: tuple[Outcome, ...]
    observed: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    advantage: NDArray[np.float64]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle distinct observations once: samples of a module reach the same callsites, so 3 of 4 are duplicates."""
        shape = self.observed.shape
        flat = self.observed.reshape(shape[0], math.prod(shape[1:]))
        inputs = np.ascontiguousarray(np.concatenate([flat, self.logits], axis=1, dtype=np.float32))
        # Compared as bytes, so that 0.0 and -0.0 stay distinct.
        rows = inputs.view(np.dtype((np.void, inputs.itemsize * inputs.shape[1]))).reshape(-1)
        _, first, which = np.unique(rows, return_index=True, return_inverse=True)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        packed = values | {"observed": inputs[first], "logits": which.astype(np.int32)}
        # Higher levels cost more time than they save.
        return _unpack, (zlib.compress(pickle.dumps(packed, pickle.HIGHEST_PROTOCOL), 1), shape)


def _unpack(content: bytes, shape: tuple[int, ...]) -> ModuleRollout:
    values = pickle.loads(zlib.decompress(content))
    inputs, which = values["observed"], values["logits"]
    width = math.prod(shape[1:])
    observed = inputs[:, :width][which].reshape(shape)
    return ModuleRollout(**values | {"observed": observed, "logits": inputs[:, width:][which]})


@dataclass(frozen=True)
class OutcomeOf:
    """Compiles a module once and returns its name and outcome, without the log.

    Attributes:
        definition_counts: project -> function -> number of the project's objects that define it; the outcome is then
            the bytes that a link keeps, see `linked_bytes`, and a request needs function sizes. Empty: the problem's
            outcome.
    """

    compiler: Compiler
    definition_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __call__(self, request: Request) -> tuple[str, Outcome]:
        """Return name and outcome. Raises as Compiler."""
        objective = OBJECTIVES[problems.get(self.compiler.problem).objective]
        result = self.compiler(request)
        (sample,) = result.samples
        if self.definition_counts:
            counts = self.definition_counts.get(request.module.project, {})
            outcome: Outcome = {MODULE: linked_bytes(sample, counts)}
        else:
            outcome = objective.outcome(sample)
        return result.module_name, outcome


@dataclass(frozen=True)
class SampleModule:
    """Compiles a module under a sampled policy.

    Attributes:
        features, buckets: of the policy.
        function_credit: attribute to functions, otherwise to the whole module.
        module_weight: weight of the whole module's change next to that of functions, for sizes.
    """

    compiler: Compiler
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    function_credit: bool
    module_weight: float

    def __call__(self, request: Request) -> ModuleRollout:
        """Return the module's rollout. Raises as Compiler."""
        return self._extract(self.compiler(request))

    def _extract(self, result: Result) -> ModuleRollout:
        problem = problems.get(self.compiler.problem)
        objective = OBJECTIVES[problem.objective]
        advantages = self._assign_credit(result.samples)
        observed = np.zeros((0, *observation_shape(problem, self.features)), np.float32)
        logits = np.zeros((0, problem.policy.num_actions), np.float32)
        parts = [(observed, np.zeros(0, np.int64), logits, np.zeros(0))]
        for sample, advantage in zip(result.samples, advantages, strict=True):
            if len(advantage) == 0 or sample.log is None:
                continue
            columns = concatenate_contexts(sample)
            observed = observations(problem, self.features, self.buckets, columns)
            logits = finite_logits(columns[problem.policy.logits].reshape(-1, problem.policy.num_actions))
            parts.append((observed, columns[problem.policy.decision].reshape(-1), logits, advantage))
        observed, action, logits, advantage = (np.concatenate(column) for column in zip(*parts, strict=True))
        outcomes = tuple(objective.outcome(sample) for sample in result.samples)
        return ModuleRollout(result.module_name, outcomes, observed, action, logits, advantage)

    def _assign_credit(self, samples: Sequence[Sample]) -> list[NDArray[np.float64]]:
        """Return for each sample of a module float64 [decisions], positive is better."""
        of_sizes = OBJECTIVES[problems.get(self.compiler.problem).objective].uses_function_sizes
        if not self.function_credit:
            return (size_credit if of_sizes else score_credit).module_advantages(samples)
        if of_sizes:
            return size_credit.function_advantages(samples, self.module_weight)
        return score_credit.function_advantages(samples)


def concatenate_contexts(sample: Sample) -> dict[str, NDArray[Any]]:
    """Return the columns of a log, with all contexts concatenated."""
    assert sample.log is not None
    contexts = [context for context in sample.log.contexts if len(context)]
    if len(contexts) == 1:
        return contexts[0].columns
    return {name: np.concatenate([context.columns[name] for context in contexts]) for name in contexts[0].columns}
