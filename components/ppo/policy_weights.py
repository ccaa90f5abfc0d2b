"""Weights of policies between iterations: moving average, entropy, and the form that the training clang loads."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.policy.tf.observation import logits as logits_of
from components.core.policy.tf.saved_model import write_saved_model

MAX_TEMPERATURE = 1000.0
BISECTIONS = 40


def ema_update(average: DensePolicy, latest: DensePolicy, decay: float) -> DensePolicy:
    """Return decay * average + (1 - decay) * latest, for weights of the same network."""

    def update(before: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
        return (decay * before + (1 - decay) * now).astype(np.float32)

    pairs = zip(average.layers, latest.layers, strict=True)
    return dataclasses.replace(latest, layers=tuple((update(w, v), update(b, c)) for (w, b), (v, c) in pairs))


def mean_policy(policies: Sequence[DensePolicy]) -> DensePolicy:
    """Return the mean of the weights of at least one policy, all of the same network.

    It stands for the mean of the policies only if they were trained from the same weights (Wortsman et al. 2022, "Model
    soups", arXiv:2203.05482).
    """

    def mean(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        return np.mean(parts, axis=0, dtype=np.float64).astype(np.float32)

    layers = zip(*(policy.layers for policy in policies), strict=True)
    means = tuple((mean(weights), mean(biases)) for weights, biases in (zip(*layer, strict=True) for layer in layers))
    return dataclasses.replace(policies[-1], layers=means)


def calibrate_entropy(policy: DensePolicy, observed: NDArray[np.float32], entropy: float) -> DensePolicy:
    """Return a policy with the same greedy decisions and a mean entropy of at least `entropy` nats on `observed`.

    A policy that imitates the heuristic is almost deterministic: it would flip one decision in hundreds, and training
    cannot learn from actions that are never tried. Dividing the logits by a temperature raises the entropy, most where
    the policy was least certain. A policy with enough entropy is not changed.

    Args:
        observed: float32 [N, *S].
    """
    logits = logits_of(policy, observed).astype(np.float64)
    low, high = 1.0, MAX_TEMPERATURE
    if _entropy(logits / low) >= entropy:
        return policy
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _entropy(logits / middle) < entropy else (low, middle)
    weights, bias = policy.layers[-1]
    last = ((weights / high).astype(np.float32), (bias / high).astype(np.float32))
    return dataclasses.replace(policy, layers=(*policy.layers[:-1], last))


def _entropy(logits: NDArray[np.float64]) -> float:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-(np.exp(log_probability) * log_probability).sum(axis=-1).mean())


@contextmanager
def compiled_policy(
    policy: DensePolicy, clang: Path, below: Path | None = None, tflite: bool = False
) -> Iterator[Path]:
    """Yield a temporary directory below `below` with the policy in the form that the training clang loads.

    Args:
        tflite: also write model.tflite, for a clang of LLVM's own development mode; takes TensorFlow a second or two.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-policy-", dir=below) as directory:
        export_fast(policy, Path(directory), clang)
        if tflite:
            write_saved_model(policy, Path(directory))
        yield Path(directory)
