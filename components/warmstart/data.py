"""The heuristic's decisions as training data: what a policy sees of them, and which ones are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.console import UserError
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import Trace, load_trace, read_columns
from components.core.formats.vocab import load_vocab
from components.core.policy.observation import network_features, observations


@dataclass(frozen=True)
class Decisions:
    """N decisions of the heuristic.

    observed: float32 [N, *S] as in observation.py. action: int32 [N]. heldout: bool [N], true for all decisions of a
    held-out module and for no other.
    """

    trace: Trace
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    observed: NDArray[np.float32]
    action: NDArray[np.int32]
    heldout: NDArray[np.bool_]


def load_decisions(
    trace_directory: Path,
    vocab_directory: Path,
    heldout_fraction: float,
    seed: int,
    only: Collection[str] | None = None,
) -> Decisions:
    """Reads a trace through a vocab.

    Args:
        only: the names of the features to take, None for all.

    Raises:
        UserError: either is not whole, or there is too little to learn from.
    """
    trace, buckets = load_trace(trace_directory), load_vocab(vocab_directory)
    problem = problems.get(trace.problem)
    features = tuple(
        f for f in trace.features if f.name not in problem.policy.excluded_features and (only is None or f.name in only)
    )
    seen = network_features(problem, features)
    without = [f.name for f in seen if f.name not in buckets]
    if without:
        raise UserError(
            f"the vocab in {vocab_directory} lacks features of the trace: {', '.join(without)}",
            f"make it from this trace: mlgo vocab --trace {trace_directory} --output DIR",
        )
    columns = read_columns(trace_directory, ["module", "action", *(f.name for f in features)])
    modules, places = np.unique(columns["module"].astype(str), return_inverse=True)
    names = heldout_modules(modules.tolist(), heldout_fraction, seed)
    heldout = np.isin(modules, list(names))[places] if len(places) else np.zeros(0, bool)
    if heldout.all():  # also true of a trace without a decision
        raise UserError(
            f"{trace_directory} has {len(places)} decisions of {len(modules)} modules, none left to learn from",
            "make a trace of more modules, or hold out a smaller fraction",
        )
    return Decisions(
        trace,
        features,
        {f.name: buckets[f.name] for f in seen},
        observations(problem, features, buckets, columns),
        columns["action"].astype(np.int32),
        heldout,
    )


def heldout_modules(modules: Iterable[str], fraction: float, seed: int) -> frozenset[str]:
    """The first modules in the order of a seeded hash; at least one if `fraction` > 0 and there are two.

    A hash, so that a module's place does not depend on the other modules of the trace.
    """
    ordered = sorted(set(modules), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    count = round(fraction * len(ordered))
    if fraction > 0 and len(ordered) > 1:
        count = min(max(count, 1), len(ordered) - 1)
    return frozenset(ordered[:count])
