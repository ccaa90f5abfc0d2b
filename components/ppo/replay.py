"""Measured flips that are learned from again, until their module is measured anew often enough.

What an iteration measured is a segment, which never changes: a checkpoint refers to segments without copying them, and
one that was written once is not written again (checkpoint.py). Rows are drawn by number, so that an iteration's work
depends on what it measures and draws, not on how much there is to draw from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
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
        return Flips(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @staticmethod
    def concatenate(parts: Sequence[Flips]) -> Flips:
        """Join at least one part."""
        return Flips(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Flips)})


@dataclass(frozen=True)
class Segment:
    """Measurements of k modules, the flips of each one after the other.

    Attributes:
        number: of the segment in its training; the same number is the same content.
        modules: names.
        lengths: int64 [k], flips of each.
        ages: int64 [k], number of each measurement in its training.
        flips: of all.
    """

    number: int
    modules: tuple[str, ...]
    lengths: NDArray[np.int64]
    ages: NDArray[np.int64]
    flips: Flips

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it but its number, for a file."""
        # Quantiles and magnitudes compress well, and half of the digits of a float32 say nothing here; but a training
        # that goes on must see what it saw, to the last bit.
        names = np.array([name.encode("utf-8", "surrogateescape") for name in self.modules], np.bytes_)
        columns = {field.name: getattr(self.flips, field.name) for field in fields(Flips)}
        return {"modules": names, "lengths": self.lengths, "ages": self.ages, **columns}

    def only(self, kept: NDArray[np.bool_]) -> Segment:
        """Return some of the measurements, bool [k]; its number is not its own."""
        if kept.all():
            return self
        names = tuple(name for name, keep in zip(self.modules, kept.tolist(), strict=True) if keep)
        rows = np.flatnonzero(np.repeat(kept, self.lengths))
        return Segment(self.number, names, self.lengths[kept], self.ages[kept], self.flips.take(rows))

    @staticmethod
    def join(number: int, segments: Sequence[Segment]) -> Segment:
        """Return all measurements of at least one segment."""
        if len(segments) == 1:
            return replace(segments[0], number=number)
        return Segment(
            number,
            tuple(name for segment in segments for name in segment.modules),
            np.concatenate([segment.lengths for segment in segments]),
            np.concatenate([segment.ages for segment in segments]),
            Flips.concatenate([segment.flips for segment in segments]),
        )

    @staticmethod
    def of(number: int, arrays: dict[str, NDArray[Any]]) -> Segment:
        """The reverse of `arrays`."""
        names = tuple(name.decode("utf-8", "surrogateescape") for name in arrays["modules"].tolist())
        flips = Flips(**{field.name: arrays[field.name] for field in fields(Flips)})
        return Segment(number, names, arrays["lengths"], arrays["ages"], flips)


class ReplayBuffer:
    """The flips of the newest `measurements` times that each module was measured.

    Attributes:
        segments: all of its state.
    """

    def __init__(self, measurements: int) -> None:
        self._measurements = measurements
        self.segments: tuple[Segment, ...] = ()
        self._live: list[NDArray[np.intp]] = []  # of each segment the rows that are learned from
        self._ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def add(self, modules: Sequence[str], flips: Sequence[Flips]) -> None:
        """Add the newest measurement of each module, and drop its oldest one if that is one too many."""
        if not modules:
            return
        number = 1 + max((segment.number for segment in self.segments), default=-1)
        age = 1 + max((int(segment.ages.max()) for segment in self.segments), default=-1)
        lengths = np.array([len(part) for part in flips], np.int64)
        ages = np.arange(age, age + len(modules), dtype=np.int64)
        newest = Segment(number, tuple(modules), lengths, ages, Flips.concatenate(flips))
        left: list[Segment] = []
        moved: list[Segment] = []
        *older, (newest, keep) = self._measurements_kept((*self.segments, newest))
        for segment, kept in older:
            full = kept @ segment.lengths > LEAST_LIVE * len(segment.flips)
            (left if full else moved).append(segment if full else segment.only(kept))
        self.restore((*left, Segment.join(number, [*moved, newest.only(keep)])))

    def restore(self, segments: Sequence[Segment]) -> None:
        """Take over the segments of a buffer."""
        self.segments = tuple(segments)
        self._live = [np.flatnonzero(np.repeat(kept, s.lengths)) for s, kept in self._measurements_kept(self.segments)]
        self._ends = np.cumsum([len(rows) for rows in self._live], dtype=np.int64)

    def take(self, rows: NDArray[np.integer[Any]]) -> Flips:
        """Return flips by their numbers, 0 <= number < len(self), in the given order; at least one."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        bounds = np.searchsorted(ordered, [0, *self._ends.tolist()])
        parts = [
            segment.flips.take(live[ordered[first:last] - (end - len(live))])
            for segment, live, end, first, last in zip(
                self.segments, self._live, self._ends, bounds[:-1], bounds[1:], strict=True
            )
            if first < last
        ]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return Flips.concatenate(parts).take(places)

    def _measurements_kept(self, segments: Sequence[Segment]) -> list[tuple[Segment, NDArray[np.bool_]]]:
        """Each segment with bool [k]: whether a measurement is one of the newest of its module."""
        ages = [(age, i, j) for i, segment in enumerate(segments) for j, age in enumerate(segment.ages.tolist())]
        kept = [np.zeros(len(segment.modules), bool) for segment in segments]
        left: dict[str, int] = {}
        for _, i, j in sorted(ages, reverse=True):
            name = segments[i].modules[j]
            left[name] = left.get(name, self._measurements) - 1
            kept[i][j] = left[name] >= 0
        return list(zip(segments, kept, strict=True))
