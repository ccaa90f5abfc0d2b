"""The heuristic's decisions as training data, with their observations and the held-out modules."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import Trace, load_trace, read_columns
from components.core.formats.vocab import bucket_files, is_foreign, load_vocab
from components.core.policy.tf.observation import network_features, observations, vocab_features
from components.core.policy.trained_limits import trained_limits, trained_ranges
from components.core.problems import Problem
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.uri import display_path


@dataclass(frozen=True)
class Decisions:
    """N decisions of the heuristic.

    Attributes:
        observed: float32 [N, *S], see observation.py.
        action: int32 [N].
        heldout: bool [N], whether the decision is of a module of the trace that cloning does not learn from, so that
            its agreement is reported. These are no held-out modules of the corpus, of which the trace has none.
        limits, ranges: see trained_limits.py; of the decisions that are not held out.
    """

    trace: Trace
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    observed: NDArray[np.float32]
    action: NDArray[np.int32]
    heldout: NDArray[np.bool_]
    limits: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]


def load_decisions(
    trace_directory: Path,
    vocab_directory: Path,
    heldout_fraction: float,
    seed: int,
    only: Collection[str] | None = None,
) -> Decisions:
    """Read a trace, normalized by a vocab. UserError if an artifact is incomplete, or there are too few decisions.

    Args:
        only: names of the features to use, None for all.
    """
    trace, buckets = load_trace(trace_directory), load_vocab(vocab_directory)
    problem = problems.get(trace.problem)
    features = tuple(
        f for f in trace.features if f.name not in problem.policy.excluded_features and (only is None or f.name in only)
    )
    if is_foreign(vocab_directory):
        features = _keep_known(features, buckets, problem, vocab_directory)
    seen = network_features(problem, features)
    _require_features(buckets, seen, vocab_directory, trace_directory)
    columns = read_columns(trace_directory, ["module", "action", *(f.name for f in features)])
    modules, module_index = np.unique(columns["module"].astype(str), return_inverse=True)
    names = heldout_modules(modules.tolist(), heldout_fraction, seed)
    heldout = np.isin(modules, list(names))[module_index] if len(module_index) else np.zeros(0, bool)
    if heldout.all():  # also true for a trace without decisions
        raise UserError(
            f"{trace_directory} has {len(module_index)} decisions of {len(modules)} modules, none of them for training",
            "trace more modules, or hold out a smaller fraction",
        )
    trained_on = {f.name: columns[f.name][~heldout] for f in features}
    return Decisions(
        trace,
        features,
        {f.name: buckets[f.name] for f in seen},
        observations(problem, features, buckets, columns),
        columns["action"].astype(np.int32),
        heldout,
        trained_limits(problem, features, trained_on, module_index[~heldout]),
        trained_ranges(problem, features, trained_on),
    )


def _keep_known(
    features: Sequence[FeatureSpec], buckets: Mapping[str, object], problem: Problem, vocab_directory: Path
) -> tuple[FeatureSpec, ...]:
    """Return the features without those that a vocab of ml-compiler-opt, which is for fewer, has no quantiles of.

    Raises:
        UserError: it has none of them.
    """
    unknown = [feature.name for feature in network_features(problem, features) if feature.name not in buckets]
    usable = tuple(feature for feature in features if feature.name not in unknown)
    if not network_features(problem, usable):
        raise UserError(
            f"the vocab in {vocab_directory} has quantiles of no feature for {problem.name}",
            "pass a vocab for this problem",
        )
    if unknown:
        say(
            f"{display_path(vocab_directory)} has no quantiles of {len(unknown)} features, which the policy will not "
            f"read: {', '.join(unknown)}"
        )
    return usable


def require_no_remains(trace: Trace, vocab_directory: Path, upstream: Collection[str] | None) -> None:
    """Raise UserError for an incomplete copy of a vocab of ours, which looks like one of ml-compiler-opt.

    One that has all features of the trace is used: ml-compiler-opt makes such a vocab from logs of our training clang.

    Args:
        upstream: names of the features that LLVM has without this project; None if they are not known.
    """
    if upstream is None or not is_foreign(vocab_directory):
        return
    files = bucket_files(vocab_directory)
    whole = all(feature.name in files for feature in vocab_features(problems.get(trace.problem), trace.features))
    if not whole and (ours := sorted(files.keys() - {*upstream})):
        raise UserError(
            f"{display_path(vocab_directory)} is not a finished vocab: without {MANIFEST}, but with quantiles of "
            f"{ours[0]}, which only compilers of this project log",
            "copy it again, or make it with `mlgo vocab`",
        )


def require_vocab(trace_directory: Path, vocab_directory: Path) -> None:
    """Raise UserError unless `vocab_directory` is a vocab of ml-compiler-opt, or one with the features of the trace."""
    trace, buckets = load_trace(trace_directory), load_vocab(vocab_directory)
    problem = problems.get(trace.problem)
    if is_foreign(vocab_directory):
        _keep_known(trace.features, buckets, problem, vocab_directory)
    else:
        seen = vocab_features(problem, trace.features)
        _require_features(buckets, seen, vocab_directory, trace_directory)


def _require_features(
    buckets: Mapping[str, object], features: Iterable[FeatureSpec], vocab_directory: Path, trace_directory: Path
) -> None:
    if without := [feature.name for feature in features if feature.name not in buckets]:
        raise UserError(
            f"the vocab in {vocab_directory} lacks features of the trace: {', '.join(without)}",
            f"make the vocab from this trace: mlgo vocab --trace {trace_directory} --output DIR",
        )


def heldout_modules(modules: Iterable[str], fraction: float, seed: int) -> frozenset[str]:
    """Return the first modules in the order of a seeded hash; at least one if `fraction` > 0 and there are two.

    With a hash, the order of two modules does not depend on the other modules of the trace.
    """
    ordered = sorted(set(modules), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    count = round(fraction * len(ordered))
    if fraction > 0 and len(ordered) > 1:
        count = min(max(count, 1), len(ordered) - 1)
    return frozenset(ordered[:count])
