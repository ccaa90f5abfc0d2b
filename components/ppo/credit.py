"""Which decision gets which share of the size that came out.

A module has hundreds of decisions and one size, so its size says little about any of them. But the training clang logs
who calls whom, and the object's symbol table has each function's size. So the advantage of a decision in one of K
samples of a module is made of

    - (size of its caller - the caller's mean over the K samples),
    - (size of its callee - the callee's mean), where the callee's definition goes when nothing uses it any more,
    - w * (size of the module - its mean) / sqrt(number of decisions)

The first counts only where the caller is there in all K samples: where it is not, it was inlined into its callers, and
its size has become theirs. A callee that is gone has size 0. Being dropped when unused holds for linkonce_odr as for
local functions; leaving the former out makes code larger than -Oz (ARCHITECTURE, fact 4). The mean over the samples of
the same function is the baseline, so no value function is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.compiler.callsites import Callsites
from components.compiler.compile import Sample

FUNCTION_OVERHEAD_BYTES = 32
"""What a function costs beside its instructions: its entry in .eh_frame (24 bytes and what its instructions add)."""

Float64 = NDArray[np.float64]


def module_advantages(samples: Sequence[Sample]) -> list[Float64]:
    """Per sample float64 [decisions], all equal: how many bytes the whole module is below the samples' mean."""
    sizes = np.array([s.text_size_bytes for s in samples], np.float64)
    return [np.full(_decisions(s), sizes.mean() - size) for s, size in zip(samples, sizes, strict=True)]


def function_advantages(samples: Sequence[Sample], module_weight: float) -> list[Float64]:
    """Per sample float64 [decisions], in bytes, positive is smaller: the sum in this module's docstring.

    Args:
        samples: at least two of one module, with callsites and function sizes.
        module_weight: w.
    """
    ids: dict[str, int] = {}
    rows = [np.array([ids.setdefault(name, len(ids)) for name in _callsites(s).names], np.int64) for s in samples]
    sizes = np.zeros((len(samples), len(ids)))
    exists = np.zeros((len(samples), len(ids)), bool)
    for k, sample in enumerate(samples):
        functions = sample.function_sizes or {}
        for name in _callsites(sample).names:
            if name in functions:
                sizes[k, ids[name]] = functions[name] + FUNCTION_OVERHEAD_BYTES
                exists[k, ids[name]] = True
    # A function that one sample had no decision about may still be in its object.
    for k, sample in enumerate(samples):
        functions = sample.function_sizes or {}
        known = set(_callsites(sample).names)
        for name, column in ids.items():
            if name not in known and name in functions:
                sizes[k, column] = functions[name] + FUNCTION_OVERHEAD_BYTES
                exists[k, column] = True
    saved = sizes.mean(axis=0) - sizes
    saved_as_caller = np.where(exists.all(axis=0), saved, 0.0)
    result = []
    for k, (sample, row, whole) in enumerate(zip(samples, rows, module_advantages(samples), strict=True)):
        calls = _callsites(sample)
        as_callee = np.where(calls.discardable, saved[k, row], 0.0)
        advantage = saved_as_caller[k, row][calls.caller] + as_callee[calls.callee]
        # A recursive call is one function's change, not two.
        advantage -= np.where(calls.caller == calls.callee, as_callee[calls.callee], 0.0)
        result.append(advantage + module_weight * whole / np.sqrt(max(1, len(whole))))
    return result


def squash(advantages: Float64, scale: float, clip: float = 4.0) -> NDArray[np.float32]:
    """Signed square root, in units of `scale`, clipped: a few huge functions must not drown all others.

    Args:
        advantages: [N] in bytes. scale: square root of bytes. clip: largest absolute value that comes out.
    """
    rooted = np.sign(advantages) * np.sqrt(np.abs(advantages))
    return np.clip(rooted / max(scale, 1e-6), -clip, clip).astype(np.float32)


def _callsites(sample: Sample) -> Callsites:
    if sample.callsites is None:
        raise ValueError("credit needs the callsites of every sample")
    return sample.callsites


def _decisions(sample: Sample) -> int:
    return len(_callsites(sample).caller)
