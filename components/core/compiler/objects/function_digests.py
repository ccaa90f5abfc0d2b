"""Which functions the modules of a trace define: digests of their names and of their instructions.

    functions.npy          uint64 [2, F], of each distinct function a digest of its name and instructions, and one
                           of its instructions alone; sorted by the first

It is in the trace of a size problem, beside the tables of trace.py, which evaluations cannot read: their image has no
pyarrow. Held-out functions that training compiled, too, such as inline functions of a header, are no unseen code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.function_sizes import FunctionSizes, digest64, find_sorted
from components.platform.errors import UserError
from components.platform.storage.manifest import require_artifact

FILE = "functions.npy"
LEAST_BYTES = 24
"""Shorter functions often have the same instructions by chance."""

Digests = NDArray[np.uint64]


@dataclass
class FunctionDigests:
    """Distinct functions, in the order of their digests after `merge`.

    Attributes:
        functions, bodies: uint64 [F].
    """

    functions: Digests = field(default_factory=lambda: np.zeros(0, np.uint64))
    bodies: Digests = field(default_factory=lambda: np.zeros(0, np.uint64))
    _parts: list[tuple[Digests, Digests]] = field(default_factory=list)

    def add(self, sizes: FunctionSizes) -> None:
        """Add the functions of an object, unless it is no ELF, whose bodies are unknown."""
        if sizes.bodies is None:
            return
        names = name_bodies(sizes)
        bodies = sizes.bodies[sizes.entry]
        self._parts.append((names[bodies != 0], bodies[bodies != 0]))

    def merge(self) -> FunctionDigests:
        """Return all functions that were added, each once."""
        parts = [(self.functions, self.bodies), *self._parts]
        functions, first = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
        return FunctionDigests(functions, np.concatenate([part[1] for part in parts])[first])

    def known(self, sizes: FunctionSizes) -> NDArray[np.bool_]:
        """Return which of an object's functions [M] are among these, by one of their names and by instructions."""
        known = np.zeros(len(sizes.instructions), bool)
        known[sizes.entry[find_sorted(self.functions, name_bodies(sizes))[1]]] = True
        return known

    def known_bodies(self, sizes: FunctionSizes) -> NDArray[np.bool_]:
        """Return which of an object's functions [M] of LEAST_BYTES have the instructions of one of these."""
        assert sizes.bodies is not None
        return find_sorted(self._sorted_bodies, sizes.bodies)[1] & (sizes.instructions >= LEAST_BYTES)

    @cached_property
    def _sorted_bodies(self) -> Digests:
        return np.sort(self.bodies)

    def write(self, directory: Path) -> None:
        """Write FILE into the directory of a trace."""
        merged = self.merge()
        np.save(directory / FILE, np.stack([merged.functions, merged.bodies]), allow_pickle=False)


def read_function_digests(trace: Path) -> FunctionDigests | None:
    """Read the functions of a trace; None if it has none: a trace of scores, or of an earlier version.

    Raises:
        UserError: it is no trace, or the file is damaged.
    """
    require_artifact(trace, "trace")
    path = trace / FILE
    if not path.exists():
        return None
    try:
        functions, bodies = np.load(path, allow_pickle=False)
        if functions.dtype != np.uint64:
            raise ValueError(f"numbers of the type {functions.dtype}")
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} does not have the functions of a trace: {error}", "make the trace again") from None
    return FunctionDigests(functions, bodies)


def name_bodies(sizes: FunctionSizes) -> Digests:
    """Return a digest of each symbol's name and of its instructions, uint64 [N]; 0 without instructions."""
    assert sizes.bodies is not None
    bodies = sizes.bodies[sizes.entry]
    # Multiplied by an odd number, so that a function whose name has the digest of its instructions does not become 0.
    return np.where(bodies != 0, name_digests(sizes) * np.uint64(0x9E3779B97F4A7C15) ^ bodies, 0)


def name_digests(sizes: FunctionSizes) -> Digests:
    """Return a digest of each symbol's name, uint64 [N]."""
    return np.array([digest64(name.encode("utf-8", "surrogateescape")) for name in sizes.names], np.uint64)
