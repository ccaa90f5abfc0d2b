"""What compiles say of their calls and functions, and weights of policies, without a compile or a training."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.logs.callsites import Callsites
from components.core.compiler.objects.function_sizes import FunctionSizes

Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]


def make_callsites(
    calls: Sequence[tuple[Any, ...]], discardable: Container[str] = (), names: Sequence[str] = ()
) -> Callsites:
    """calls: caller, callee, True if inlined; names: by default those of the calls, sorted."""
    table = list(names) or sorted({name for call in calls for name in call[:2]})
    caller, callee = (np.array([table.index(call[i]) for call in calls], np.int32) for i in (0, 1))
    inlined = np.array([True in call for call in calls], bool)
    return Callsites(caller, callee, inlined, table, np.array([name in discardable for name in table], bool))


def make_sizes(functions: Mapping[str, int]) -> FunctionSizes:
    """Return the sizes of an object that has these functions (name -> bytes) and nothing else."""
    instructions = np.array(list(functions.values()), np.int64)
    none, text = np.zeros_like(instructions), int(instructions.sum())
    sections = {".text": text, ".rodata": 0, ".eh_frame": 0, ".gcc_except_table": 0}
    weak, entry = np.zeros(len(functions), bool), np.arange(len(functions), dtype=np.int32)
    return FunctionSizes(list(functions), weak, entry, instructions, none, none, none, {}, sections, text)


def random_layers(units: Sequence[int], seed: int | np.random.Generator = 0, scaled: bool = False) -> Layers:
    """Return dense layers between these numbers of units, with normal weights and biases of 0.

    Args:
        scaled: Whether the variance is 2 / inputs, so that logits are small; else it is 1.
    """
    random = np.random.default_rng(seed)
    return tuple(
        (random.normal(0, (2 / a) ** 0.5 if scaled else 1, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(units)
    )
