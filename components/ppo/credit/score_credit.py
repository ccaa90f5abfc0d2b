"""Sampled credit for problems in which each function has its own score.

The advantage of a decision in one of K samples is

    mean over the K samples of log(score of its function + FLOOR) - log(this sample's)

The samples' mean is the function's baseline under the current policy. A moving average over iterations would be a
baseline of older policies, because one of a thousand modules is rarely compiled; it suits a single sample per
iteration, but K is at least 2. A function's score does not depend on other functions, so that a term for the whole
module, as inlining has one, would be noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from components.core.compiler.sample import Sample
from components.core.formats.names import replace_invalid_utf8
from components.core.objectives.geometric_mean import Float64, log_scores


def function_advantages(samples: Sequence[Sample]) -> list[Float64]:
    """Return the advantages above for each sample of one module, float64 [decisions] in the order of its log.

    0 for decisions in a function that some sample does not have.
    """
    changed = _compare_with_mean(samples)
    by_function = [{name: float(saved[k]) for name, saved in changed.items()} for k in range(len(samples))]
    return [_spread(sample, differences) for sample, differences in zip(samples, by_function, strict=True)]


def module_advantages(samples: Sequence[Sample]) -> list[Float64]:
    """Return for each sample float64 [decisions], all equal: the mean of its functions' differences."""
    changed = _compare_with_mean(samples)
    means = np.mean(list(changed.values()), axis=0) if changed else np.zeros(len(samples))
    return [
        _spread(sample, dict.fromkeys(sample.readable_scores(), float(mean)))
        for sample, mean in zip(samples, means, strict=True)
    ]


def _compare_with_mean(samples: Sequence[Sample]) -> dict[str, Float64]:
    """Return function -> float64 [samples], mean - each sample's log score, for functions that all samples have."""
    scores = [sample.readable_scores() for sample in samples]
    common = [name for name in scores[0] if all(name in of_sample for of_sample in scores)]
    by_function = {name: log_scores([of_sample[name] for of_sample in scores]) for name in common}
    return {name: values.mean() - values for name, values in by_function.items()}


def _spread(sample: Sample, by_function: Mapping[str, float]) -> Float64:
    contexts = sample.log.contexts if sample.log else ()
    return np.repeat([by_function.get(replace_invalid_utf8(c.name), 0.0) for c in contexts], [len(c) for c in contexts])
