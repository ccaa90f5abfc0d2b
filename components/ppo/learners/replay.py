"""Measured flips that are learned from again, until their module is measured anew often enough.

What an iteration measured is a segment, which never changes: a checkpoint refers to segments without copying them, and
one that was written once is not written again (checkpoint.py). Rows are drawn by number, so that an iteration's work
depends on what it measures and draws, not on how much there is to draw from.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_LIVE = 0.5
"""Share of a segment's flips: with fewer left the rest moves to the newest segment, and the segment goes."""


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
        return Flips(self.observed[rows], self.logits[rows], self.action[rows], self.alternative[rows], self.gain[rows])

    @staticmethod
    def concatenate(parts: Sequence[Flips]) -> Flips:
        """Join at least one part."""
        return Flips(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Flips)})


@dataclass(frozen=True)
class Segment:
    """Measurements of k modules.

    Attributes:
        number: of the segment in its training; the same number is the same content.
        modules: name of each.
        ages: number of each measurement in its training.
        flips: of each.
    """

    number: int
    modules: tuple[str, ...]
    ages: tuple[int, ...]
    flips: tuple[Flips, ...]

    def __len__(self) -> int:
        return sum(map(len, self.flips))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it but its number, for a file."""
        # Quantiles and magnitudes compress well, and half of the digits of a float32 say nothing here; but a training
        # that goes on must see what it saw, to the last bit.
        names = np.array([name.encode("utf-8", "surrogateescape") for name in self.modules], np.bytes_)
        lengths, ages = np.array([len(part) for part in self.flips], np.int64), np.array(self.ages, np.int64)
        return {"modules": names, "lengths": lengths, "ages": ages, **vars(Flips.concatenate(self.flips))}

    @staticmethod
    def of(number: int, arrays: dict[str, NDArray[Any]]) -> Segment:
        """The reverse of `arrays`."""
        names = tuple(name.decode("utf-8", "surrogateescape") for name in arrays["modules"].tolist())
        ends = np.cumsum(arrays["lengths"])[:-1]
        columns = {field.name: np.split(arrays[field.name], ends) for field in fields(Flips)}
        flips = tuple(Flips(*part) for part in zip(*columns.values(), strict=True))
        return Segment(number, names, tuple(arrays["ages"].tolist()), flips)


class ReplayBuffer:
    """The flips of the newest `measurements` times that each module was measured.

    Attributes:
        segments: all of its state.
    """

    def __init__(self, measurements: int) -> None:
        self._measurements = measurements
        self.segments: tuple[Segment, ...] = ()
        self._parts: list[Flips] = []  # that are learned from
        self._ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def add(self, modules: Sequence[str], flips: Sequence[Flips]) -> None:
        """Add the newest measurement of each module, and drop its oldest one if that is one too many."""
        if not modules:
            return
        number = 1 + max((segment.number for segment in self.segments), default=-1)
        age = 1 + max((max(segment.ages) for segment in self.segments), default=-1)
        new = Segment(number, tuple(modules), tuple(range(age, age + len(modules))), tuple(flips))
        left: list[Segment] = []
        moved: list[tuple[str, int, Flips]] = []
        for segment, kept in self._kept((*self.segments, new)):
            if segment is not new and sum(len(part) for _, _, part in kept) > LEAST_LIVE * len(segment):
                left.append(segment)
            else:
                moved += kept
        names, ages, parts = zip(*moved, strict=True)
        self.restore((*left, Segment(number, names, ages, parts)))

    def restore(self, segments: Sequence[Segment]) -> None:
        """Take over the segments of a buffer."""
        self.segments = tuple(segments)
        self._parts = [part for _, kept in self._kept(self.segments) for _, _, part in kept]
        self._ends = np.cumsum([len(part) for part in self._parts], dtype=np.int64)

    def snapshot(self) -> ReplayBuffer:
        """Return a buffer of the flips that there are now, which another thread may read while this one grows."""
        return copy.copy(self)  # `restore` replaces what a buffer consists of, and changes none of it

    def take(self, rows: NDArray[np.integer[Any]]) -> Flips:
        """Return flips by their numbers, 0 <= number < len(self), in the given order; at least one."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        bounds = np.searchsorted(ordered, [0, *self._ends.tolist()]).tolist()
        found = [
            part.take(ordered[first:last] - (end - len(part)))
            for part, end, first, last in zip(self._parts, self._ends.tolist(), bounds[:-1], bounds[1:], strict=True)
            if first < last
        ]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return Flips.concatenate(found).take(places)

    def _kept(self, segments: Sequence[Segment]) -> list[tuple[Segment, list[tuple[str, int, Flips]]]]:
        """Each segment with those of its measurements that are among the newest of their modules."""
        newest: dict[str, list[int]] = {}
        for segment in segments:
            for name, age in zip(segment.modules, segment.ages, strict=True):
                newest.setdefault(name, []).append(age)
        oldest = {name: sorted(ages)[-self._measurements :][0] for name, ages in newest.items()}
        return [
            (s, [part for part in zip(s.modules, s.ages, s.flips, strict=True) if part[1] >= oldest[part[0]]])
            for s in segments
        ]
