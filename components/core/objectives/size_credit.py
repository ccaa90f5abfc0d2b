"""Which decision gets which share of the size that came out.

A module has hundreds of decisions and one size, so its size says little about any of them. But the training clang logs
who calls whom, and the object has each function's whole size, that of its instructions and tables. So the advantage of
a decision in one of K samples of a module is made of

    - (size of its caller - the caller's mean over the K samples),
    - (size of its callee - the callee's mean) / (number of calls of it that were decided on), where the callee's
      definition goes when nothing uses it any more,
    - w * (size of the module - its mean) / sqrt(number of decisions)

A caller that some sample does not have was inlined into its own callers, and its size has become theirs: what it is
judged by is the sum over itself and them, and so on upwards. A callee that is gone has size 0. Being dropped when
unused holds for linkonce_odr as for local functions; leaving the former out makes code larger than -Oz (ARCHITECTURE,
fact 4).

A callee goes only when all its calls are inlined, so each has its share of what that saves. Were all of it credited to
each, to inline a large function everywhere would look right from every single call, however often its size is paid for.
What says nothing counts as nothing: a caller that went into more than MOST_HOSTS functions, or by mandatory inlining
only, which is no decision and not logged.

The mean over the samples of the same function is the baseline, so no value function is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.callsites import Callsites
from components.core.compiler.compile import Sample

MOST_HOSTS = 32
"""Of how many functions together a decision in a function that is not in all samples is judged, at most."""

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
    sizes, exists = _sizes(samples, ids)
    stays = exists.all(axis=0)
    saved = sizes.mean(axis=0) - sizes
    hosts = _hosts(samples, rows, stays)
    saved_as_caller = np.where(stays, saved, 0.0)
    for function, into in hosts.items():
        saved_as_caller[:, function] = saved[:, sorted(into)].sum(axis=1)
    result = []
    for k, (sample, row, whole) in enumerate(zip(samples, rows, module_advantages(samples), strict=True)):
        calls = _callsites(sample)
        caller, callee = row[calls.caller], row[calls.callee]
        share = saved[k, callee] / np.bincount(callee, minlength=len(ids))[callee]
        as_callee = np.where(calls.discardable[calls.callee], share, 0.0)
        # Nothing is one function's change and another's at once: not a recursive call's, nor a cycle's.
        twice = [d == c or d in hosts.get(c, ()) for c, d in zip(caller.tolist(), callee.tolist(), strict=True)]
        advantage = saved_as_caller[k, caller] + np.where(twice, 0.0, as_callee)
        result.append(advantage + module_weight * whole / np.sqrt(max(1, len(whole))))
    return result


def _sizes(samples: Sequence[Sample], ids: dict[str, int]) -> tuple[Float64, NDArray[np.bool_]]:
    """float64 and bool [samples, functions]: bytes of each function, 0 where it is not, and whether it is there."""
    sizes = np.zeros((len(samples), len(ids)))
    exists = np.zeros((len(samples), len(ids)), bool)
    for k, sample in enumerate(samples):
        functions = sample.function_sizes.by_name() if sample.function_sizes else {}
        for name, column in ids.items():
            if name in functions:
                sizes[k, column] = functions[name]
                exists[k, column] = True
    return sizes, exists


def _hosts(samples: Sequence[Sample], rows: list[NDArray[np.int64]], stays: NDArray[np.bool_]) -> dict[int, set[int]]:
    """Of each function that some sample does not have: itself and the functions that its code has gone to.

    Those it was inlined into in any sample, and those that these were inlined into if they do not stay themselves.
    Functions with more than MOST_HOSTS are left out: what one decision does drowns in what happens to so many.
    """
    into: dict[int, set[int]] = {}
    for sample, row in zip(samples, rows, strict=True):
        calls = _callsites(sample)
        pairs = np.unique(np.stack([row[calls.callee[calls.inlined]], row[calls.caller[calls.inlined]]], 1), axis=0)
        for callee, caller in pairs.tolist():
            if not stays[callee]:
                into.setdefault(callee, set()).add(caller)
    hosts = {}
    for function in into:
        found, left = {function}, [function]
        while left and len(found) <= MOST_HOSTS:
            for caller in into.get(left.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    left.append(caller)
        if len(found) <= MOST_HOSTS:
            hosts[function] = found
    return hosts


def normalize_advantages(advantages: Float64, scale: float, clip: float = 4.0) -> NDArray[np.float32]:
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
