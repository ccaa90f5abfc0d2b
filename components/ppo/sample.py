"""What one module's samples teach, made where the module was compiled.

Four samples of a module come with logs of 400 KB, and finding out what their decisions were worth takes longer than
reading them: on a cluster neither is for the head to do for each of 500 workers. Nor is taking in half a megabyte of
decisions from each: a Sampled is pickled in a twentieth of what it takes in memory. See docs/scale.md.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components import problems
from components.compiler.compile import Compiler, Request, Result
from components.formats.features import FeatureSpec
from components.policy.dense import quantiles
from components.ppo.credit import function_advantages, module_advantages


@dataclass(frozen=True)
class Sampled:
    """One module.

    sizes_bytes: int64 [samples]. quantiles float32 [N, F], action int64 [N], logits float32 [N, A]: of all samples'
    decisions, see agent.Experience; advantage_bytes: float64 [N] before scaling. compile_s: see Result.
    """

    module_name: str
    sizes_bytes: NDArray[np.int64]
    quantiles: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    advantage_bytes: NDArray[np.float64]
    compile_s: float

    def __reduce__(self) -> tuple[Any, ...]:
        """Three of four decisions are asked what another was: the samples of a module come to the same callsites."""
        asked = np.ascontiguousarray(np.concatenate([self.quantiles, self.logits], axis=1, dtype=np.float32))
        # As bytes: equal numbers of another representation stay what they are.
        rows = asked.view(np.dtype((np.void, asked.itemsize * asked.shape[1]))).reshape(-1)
        _, first, which = np.unique(rows, return_index=True, return_inverse=True)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        packed = values | {"quantiles": asked[first], "logits": which.astype(np.int32)}
        # Level 1: what more would save is less than its time.
        return _unpacked, (zlib.compress(pickle.dumps(packed, pickle.HIGHEST_PROTOCOL), 1), self.quantiles.shape[1])


def _unpacked(content: bytes, features: int) -> Sampled:
    values = pickle.loads(zlib.decompress(content))
    asked, which = values["quantiles"], values["logits"]
    return Sampled(**values | {"quantiles": asked[:, :features][which], "logits": asked[:, features:][which]})


@dataclass(frozen=True)
class SampleModule:
    """Compiles a module under a sampled policy. features, buckets: of the policy. function_credit, module_weight: see
    credit.py; the requests want functions if the credit is theirs."""

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
        if self.function_credit:
            advantages = function_advantages(result.samples, self.module_weight)
        else:
            advantages = module_advantages(result.samples)
        parts = [
            (np.zeros((0, len(self.features)), np.float32), np.zeros(0, np.int64),
             np.zeros((0, problem.num_actions), np.float32), np.zeros(0)),
        ]  # fmt: skip
        for sample, advantage in zip(result.samples, advantages, strict=True):
            if len(advantage) == 0 or sample.log is None:
                continue
            columns = sample.log.contexts[0].columns
            parts.append(
                (
                    quantiles(self.features, self.buckets, columns),
                    columns[problem.decision].reshape(-1),
                    columns[problem.logits].reshape(-1, problem.num_actions),
                    advantage,
                )
            )
        taken, action, logits, advantage = (np.concatenate(column) for column in zip(*parts, strict=True))
        sizes = np.array([sample.text_size_bytes for sample in result.samples], np.int64)
        return Sampled(result.module_name, sizes, taken, action, logits, advantage, result.compile_s)
