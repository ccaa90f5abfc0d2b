"""Measured flips that are learned from again, until their module is measured anew often enough."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Flips:
    """n measured flips of several modules.

    Attributes:
        observed: float32 [n, *S], see policy/observation.py.
        logits: float32 [n, A] of the policy that the base was compiled with, finite.
        action, alternative: int64 [n], what the base did and what was tried instead.
        gain: float64 [n], by how much the objective is smaller (bytes, or log score) with the alternative.
    """

    observed: NDArray[np.float32]
    logits: NDArray[np.float32]
    action: NDArray[np.int64]
    alternative: NDArray[np.int64]
    gain: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gain)

    def take(self, rows: NDArray[np.intp]) -> Flips:
        """Return some rows, in the given order."""
        return Flips(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @staticmethod
    def concatenate(parts: list[Flips]) -> Flips:
        """Join at least one part."""
        return Flips(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Flips)})


class ReplayBuffer:
    """The flips of the newest `measurements` times that each module was measured.

    Which part is of which module and how old it is survives a checkpoint; all its state is in `state`.
    """

    def __init__(self, measurements: int) -> None:
        self._measurements = measurements
        self._parts: list[tuple[str, Flips]] = []  # the oldest first

    def __len__(self) -> int:
        return sum(len(flips) for _, flips in self._parts)

    def add(self, module: str, flips: Flips) -> None:
        """Add what a module's newest measurement found, and drop its oldest one if that is one too many."""
        self._parts.append((module, flips))
        own = [i for i, (name, _) in enumerate(self._parts) if name == module]
        if len(own) > self._measurements:
            del self._parts[own[0]]

    def all(self) -> Flips | None:
        """Return all flips, the oldest measurement first; None if there is none."""
        return Flips.concatenate([flips for _, flips in self._parts]) if self._parts else None

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a checkpoint, by names that begin with "replay/"."""
        flips = self.all()
        if flips is None:
            return {}
        arrays = {f"replay/{field.name}": getattr(flips, field.name) for field in fields(flips)}
        # Quantiles and magnitudes compress well, and half of the digits of a float32 say nothing here; but a training
        # that goes on must see what it saw, to the last bit.
        arrays["replay/lengths"] = np.array([len(part) for _, part in self._parts], np.int64)
        arrays["replay/modules"] = np.array([name.encode("utf-8", "surrogateescape") for name, _ in self._parts])
        return arrays

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what `state` returned."""
        self._parts = []
        if "replay/lengths" not in state:
            return
        flips = Flips(**{field.name: state[f"replay/{field.name}"] for field in fields(Flips)})
        ends = np.cumsum(state["replay/lengths"])
        for name, length, end in zip(state["replay/modules"].tolist(), state["replay/lengths"], ends, strict=True):
            rows = np.arange(end - length, end)
            self._parts.append((name.decode("utf-8", "surrogateescape"), flips.take(rows)))
