"""The interface of worker pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from components.platform.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


class WorkersDied(UserError):
    """Several workers died processing the same item, which is the likely cause."""


class WorkerPool(Protocol):
    """Applies a function to items in parallel.

    Attributes:
        size: number of items that are processed at the same time.
    """

    @property
    def size(self) -> int: ...

    def map_unordered(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[int, R | Exception]]:
        """Yield (index of the item, fn(item) or the exception that it raised) in the order of completion.

        `items` is read only a bounded number ahead. `fn` and the items must be picklable if the workers are other
        processes. When the iterator is closed, or an exception such as Ctrl-C ends it, running work is killed before
        control returns. An item whose worker dies is processed again, and yielded once; an item that workers die of is
        yielded with `WorkersDied`.
        """
        ...

    def share(self, directory: Path, names: Sequence[str]) -> None:
        """Give workers the present content of these files, for functions and items that name `directory`.

        For directories that exist only on this machine and change, such as the policy of an iteration.
        """
        ...

    def close(self) -> None:
        """End the workers. The pool cannot be used afterwards."""
        ...
