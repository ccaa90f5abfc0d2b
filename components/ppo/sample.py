"""What one module's samples teach, made where the module was compiled.

Four samples of a module come with logs of 400 KB, and finding out what their decisions were worth takes longer than
reading them: on a cluster neither is for the head to do for each of 500 workers. Nor is taking in half a megabyte of
decisions from each: a Sampled is pickled in a twentieth of what it takes in memory. See docs/scale.md.
"""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components import problems
from components.compiler.compile import Compiler, Request, Result, Sample
from components.formats.features import FeatureSpec
from components.policy.observation import finite, observation_shape, observations
from components.ppo.measures import MEASURES


@dataclass(frozen=True)
class Sampled:
    """One module.

    outcomes: per sample, see measures.py. observed float32 [N, *S], action int64 [N], logits float32 [N, A]: of all
    samples' decisions, see agent.Experience; advantage: float64 [N] before scaling. compile_s: see Result.
    """

    module_name: str
    outcomes: tuple[Any, ...]
    observed: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    advantage: NDArray[np.float64]
    compile_s: float

    def __reduce__(self) -> tuple[Any, ...]:
        """Three of four decisions are asked what another was: the samples of a module come to the same callsites."""
        shape = self.observed.shape
        flat = self.observed.reshape(shape[0], math.prod(shape[1:]))
        asked = np.ascontiguousarray(np.concatenate([flat, self.logits], axis=1, dtype=np.float32))
        # As bytes: equal numbers of another representation stay what they are.
        rows = asked.view(np.dtype((np.void, asked.itemsize * asked.shape[1]))).reshape(-1)
        _, first, which = np.unique(rows, return_index=True, return_inverse=True)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        packed = values | {"observed": asked[first], "logits": which.astype(np.int32)}
        # Level 1: what more would save is less than its time.
        return _unpacked, (zlib.compress(pickle.dumps(packed, pickle.HIGHEST_PROTOCOL), 1), shape)


def _unpacked(content: bytes, shape: tuple[int, ...]) -> Sampled:
    values = pickle.loads(zlib.decompress(content))
    asked, which = values["observed"], values["logits"]
    width = math.prod(shape[1:])
    observed = asked[:, :width][which].reshape(shape)
    return Sampled(**values | {"observed": observed, "logits": asked[:, width:][which]})


@dataclass(frozen=True)
class OutcomeOf:
    """Compiles a module once; what comes back is its name and its outcome, not the log that it may be read from."""

    compiler: Compiler

    def __call__(self, request: Request) -> tuple[str, Any]:
        """Raises as Compiler does."""
        measure = MEASURES[problems.get(self.compiler.problem).measure]
        result = self.compiler(request)
        return result.module_name, measure.outcome(result.samples[0])


@dataclass(frozen=True)
class SampleModule:
    """Compiles a module under a sampled policy. features, buckets: of the policy. function_credit, module_weight: see
    measures.py."""

    compiler: Compiler
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    function_credit: bool
    module_weight: float

    def __call__(self, request: Request) -> Sampled:
        """Raises as Compiler does."""
        return self._reduced(self.compiler(request))

    def _reduced(self, result: Result) -> Sampled:
        problem = problems.get(self.compiler.problem)
        measure = MEASURES[problem.measure]
        advantages = measure.advantages(result.samples, self.function_credit, self.module_weight)
        parts = [
            (np.zeros((0, *observation_shape(problem, self.features)), np.float32), np.zeros(0, np.int64),
             np.zeros((0, problem.num_actions), np.float32), np.zeros(0)),
        ]  # fmt: skip
        for sample, advantage in zip(result.samples, advantages, strict=True):
            if len(advantage) == 0 or sample.log is None:
                continue
            columns = log_columns(sample)
            parts.append(
                (
                    observations(problem, self.features, self.buckets, columns),
                    columns[problem.decision].reshape(-1),
                    finite(columns[problem.logits].reshape(-1, problem.num_actions)),
                    advantage,
                )
            )
        seen, action, logits, advantage = (np.concatenate(column) for column in zip(*parts, strict=True))
        outcomes = tuple(measure.outcome(sample) for sample in result.samples)
        return Sampled(result.module_name, outcomes, seen, action, logits, advantage, result.compile_s)


def log_columns(sample: Sample) -> dict[str, NDArray[Any]]:
    """The log's columns, of all contexts one after the other."""
    assert sample.log is not None
    contexts = [context for context in sample.log.contexts if len(context)]
    if len(contexts) == 1:
        return contexts[0].columns
    return {name: np.concatenate([context.columns[name] for context in contexts]) for name in contexts[0].columns}
