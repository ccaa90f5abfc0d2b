"""Sampled credit for size: the part of each decision in a module's size.

A module has hundreds of decisions and one size, so its size says little about any of them. But the training clang logs
callers and callees, and the object has the size of each function's instructions and tables. The advantage of a decision
in one of K samples of a module is the sum of

    - (size of its caller - the caller's mean over the K samples),
    - (size of its callee - the callee's mean) / (number of calls of it that were decided on), if the callee's
      definition is dropped when nothing uses it any more,
    - w * (size of the module - its mean) / sqrt(number of decisions)

A caller that some sample does not have was inlined into its own callers, and its size is part of theirs: it is
judged by the sum over itself and them, and so on upwards. A dropped callee has size 0. Both linkonce_odr and local
functions are dropped when unused; leaving the former out makes code larger than -Oz.

A callee is dropped only when all its calls are inlined, so each call gets a part of the saving. If each call got all
of it, inlining a large function everywhere would look right from every call, however often its size is paid for.
The caller term is 0 for a caller that was inlined into more than MAX_INLINED_INTO functions, or by mandatory inlining
only, which is not a decision and not logged.

The mean over the samples of the same function is the baseline, so no value function is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.logs.callsites import Callsites
from components.core.compiler.sample import Sample

MAX_INLINED_INTO = 32
"""Maximum number of functions that judge a decision in a function that some sample does not have."""

Float64 = NDArray[np.float64]


def module_advantages(samples: Sequence[Sample]) -> list[Float64]:
    """Return for each sample float64 [decisions], all equal: the samples' mean size - the module's size, in bytes."""
    sizes = np.array([s.text_size_bytes for s in samples], np.float64)
    return [np.full(_count_decisions(s), sizes.mean() - size) for s, size in zip(samples, sizes, strict=True)]


def function_advantages(samples: Sequence[Sample], module_weight: float) -> list[Float64]:
    """Return the advantages above for each sample: float64 [decisions], in bytes, positive is smaller.

    Args:
        samples: at least two samples of one module, with callsites and function sizes.
        module_weight: w.
    """
    ids: dict[str, int] = {}
    rows = [np.array([ids.setdefault(name, len(ids)) for name in _callsites(s).names], np.int64) for s in samples]
    sizes, exists = _sizes(samples, ids)
    stays = exists.all(axis=0)
    saved = sizes.mean(axis=0) - sizes
    inlined_into = _find_inlined_into(samples, rows, stays)
    saved_as_caller = np.where(stays, saved, 0.0)
    for function, into in inlined_into.items():
        saved_as_caller[:, function] = saved[:, sorted(into)].sum(axis=1)
    result = []
    for k, (sample, row, whole) in enumerate(zip(samples, rows, module_advantages(samples), strict=True)):
        calls = _callsites(sample)
        caller, callee = row[calls.caller], row[calls.callee]
        split = saved[k, callee] / np.bincount(callee, minlength=len(ids))[callee]
        as_callee = np.where(calls.discardable[calls.callee], split, 0.0)
        # Count each change once, also for recursive calls and cycles.
        twice = [d == c or d in inlined_into.get(c, ()) for c, d in zip(caller.tolist(), callee.tolist(), strict=True)]
        advantage = saved_as_caller[k, caller] + np.where(twice, 0.0, as_callee)
        result.append(advantage + module_weight * whole / np.sqrt(max(1, len(whole))))
    return result


def _sizes(samples: Sequence[Sample], ids: dict[str, int]) -> tuple[Float64, NDArray[np.bool_]]:
    """Return the bytes of each function, float64 [samples, functions], 0 if missing, and bool whether it exists."""
    sizes = np.zeros((len(samples), len(ids)))
    exists = np.zeros((len(samples), len(ids)), bool)
    for k, sample in enumerate(samples):
        functions = sample.function_sizes.by_name() if sample.function_sizes else {}
        for name, column in ids.items():
            if name in functions:
                sizes[k, column] = functions[name]
                exists[k, column] = True
    return sizes, exists


def _find_inlined_into(
    samples: Sequence[Sample], rows: list[NDArray[np.int64]], stays: NDArray[np.bool_]
) -> dict[int, set[int]]:
    """Return function -> itself and the functions that it was inlined into, if some sample does not have it.

    Includes callers in any sample and, if these do not stay themselves, their callers. Functions with more than
    MAX_INLINED_INTO are left out, because the changes of so many functions hide the effect of one decision.
    """
    into: dict[int, set[int]] = {}
    for sample, row in zip(samples, rows, strict=True):
        calls = _callsites(sample)
        pairs = np.unique(np.stack([row[calls.callee[calls.inlined]], row[calls.caller[calls.inlined]]], 1), axis=0)
        for callee, caller in pairs.tolist():
            if not stays[callee]:
                into.setdefault(callee, set()).add(caller)
    inlined_into = {}
    for function in into:
        containing, pending = {function}, [function]
        while pending and len(containing) <= MAX_INLINED_INTO:
            for caller in into.get(pending.pop(), ()):
                if caller not in containing:
                    containing.add(caller)
                    pending.append(caller)
        if len(containing) <= MAX_INLINED_INTO:
            inlined_into[function] = containing
    return inlined_into


def _callsites(sample: Sample) -> Callsites:
    if sample.callsites is None:
        raise ValueError("credit needs the callsites of every sample")
    return sample.callsites


def _count_decisions(sample: Sample) -> int:
    if sample.callsites is None and sample.log is not None:
        return sample.log.decisions
    return len(_callsites(sample).caller)
