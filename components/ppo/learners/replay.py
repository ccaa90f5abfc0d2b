"""Replay buffer of measured flips. It keeps the newest measurements of each module.

The measurements of an iteration are a segment, which never changes: checkpoints refer to segments without copying, and
each is written once (checkpoint.py). Rows are drawn by index, so the work of an iteration depends on what it measures
and draws, not on the size of the buffer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_LIVE_FRACTION = 0.5
"""When fewer of a segment's flips are in use, they move to the newest segment, and the segment is dropped."""


@dataclass(frozen=True)
class ReplayRows:
    """n measured flips of several modules, as arrays for learning.

    Attributes:
        observed: float32 [n, *S], see core/policy/tf/observation.py.
        logits: float32 [n, A], finite logits of the base's policy.
        action, alternative: int64 [n], action of the base and the action that replaced it.
        gain: float64 [n], reduction of the objective (bytes, or log score) by the alternative.
    """

    observed: NDArray[np.float32]
    logits: NDArray[np.float32]
    action: NDArray[np.int64]
    alternative: NDArray[np.int64]
    gain: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gain)

    def take(self, rows: NDArray[np.intp]) -> ReplayRows:
        """Return some rows, in the given order."""
        return ReplayRows(**{name: column[rows] for name, column in vars(self).items()})

    @staticmethod
    def concatenate(parts: Sequence[ReplayRows]) -> ReplayRows:
        """Join at least one part."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(ReplayRows)}
        return ReplayRows(**{name: np.concatenate(column) for name, column in columns.items()})


@dataclass(frozen=True)
class Segment:
    """Measurements of k modules.

    Attributes:
        number: number of the segment in its training, which identifies its content.
        modules: names of the modules.
        serials: number of each measurement in its training; a newer one has a larger number.
        rows: rows of each module.
    """

    number: int
    modules: tuple[str, ...]
    serials: tuple[int, ...]
    rows: tuple[ReplayRows, ...]

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the segment without its number, for a file."""
        # Exact float32 values: a resumed training must see the same data to the last bit.
        names = np.array([name.encode("utf-8", "surrogateescape") for name in self.modules], np.bytes_)
        lengths, serials = np.array([len(part) for part in self.rows], np.int64), np.array(self.serials, np.int64)
        # "ages" is the name in files of earlier versions; the largest is the newest.
        return {"modules": names, "lengths": lengths, "ages": serials, **vars(ReplayRows.concatenate(self.rows))}

    @staticmethod
    def of(number: int, arrays: dict[str, NDArray[Any]]) -> Segment:
        """Return the segment from the result of `arrays`."""
        names = tuple(name.decode("utf-8", "surrogateescape") for name in arrays["modules"].tolist())
        ends = np.cumsum(arrays["lengths"])[:-1]
        columns = {field.name: np.split(arrays[field.name], ends) for field in fields(ReplayRows)}
        rows = tuple(ReplayRows(*part) for part in zip(*columns.values(), strict=True))
        return Segment(number, names, tuple(arrays["ages"].tolist()), rows)


class ReplayBuffer:
    """The flips of the newest `measurements` measurements of each module.

    Attributes:
        segments: the whole state.
    """

    def __init__(self, measurements: int) -> None:
        self._measurements = measurements
        self.segments: tuple[Segment, ...] = ()
        self._parts: list[ReplayRows] = []  # those in use
        self._ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def add(self, modules: Sequence[str], rows: Sequence[ReplayRows]) -> None:
        """Add a measurement of each module, and drop the oldest one if there are too many."""
        if not modules:
            return
        number = 1 + max((segment.number for segment in self.segments), default=-1)
        serial = 1 + max((max(segment.serials) for segment in self.segments), default=-1)
        new = Segment(number, tuple(modules), tuple(range(serial, serial + len(modules))), tuple(rows))
        remaining: list[Segment] = []
        moved: list[tuple[str, int, ReplayRows]] = []
        for segment, live in self._list_live((*self.segments, new)):
            if segment is not new and sum(len(part) for _, _, part in live) > MIN_LIVE_FRACTION * len(segment):
                remaining.append(segment)
            else:
                moved += live
        names, serials, parts = zip(*moved, strict=True)
        self.restore((*remaining, Segment(number, names, serials, parts)))

    def restore(self, segments: Sequence[Segment]) -> None:
        """Replace the content by the segments of another buffer."""
        self.segments = tuple(segments)
        self._parts = [part for _, live in self._list_live(self.segments) for _, _, part in live]
        self._ends = np.cumsum([len(part) for part in self._parts], dtype=np.int64)

    def snapshot(self) -> ReplayBuffer:
        """Return a buffer with the present flips, which another thread may read while this one grows."""
        return copy.copy(self)  # `restore` replaces the attributes and does not change them

    def take(self, rows: NDArray[np.integer[Any]]) -> ReplayRows:
        """Return at least one flip by index, 0 <= index < len(self), in the given order."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        bounds = np.searchsorted(ordered, [0, *self._ends.tolist()]).tolist()
        parts = [
            part.take(ordered[first:last] - (end - len(part)))
            for part, end, first, last in zip(self._parts, self._ends.tolist(), bounds[:-1], bounds[1:], strict=True)
            if first < last
        ]
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return ReplayRows.concatenate(parts).take(inverse)

    def _list_live(self, segments: Sequence[Segment]) -> list[tuple[Segment, list[tuple[str, int, ReplayRows]]]]:
        """Return each segment with those of its measurements that are among the newest of their modules."""
        serials_of: dict[str, list[int]] = {}
        for segment in segments:
            for name, serial in zip(segment.modules, segment.serials, strict=True):
                serials_of.setdefault(name, []).append(serial)
        first_live = {name: sorted(serials)[-self._measurements :][0] for name, serials in serials_of.items()}
        return [
            (s, [part for part in zip(s.modules, s.serials, s.rows, strict=True) if part[1] >= first_live[part[0]]])
            for s in segments
        ]
