"""What a place where work runs must offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class WorkerPool(Protocol):
    """Runs a function over items, several at a time.

    size: how many run at the same time.
    """

    @property
    def size(self) -> int: ...

    def map_unordered(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[int, R | Exception]]:
        """Yields (index of the item, fn(item) or the exception that it raised) as they are done.

        `items` is read a bounded number ahead of what is running. `fn` and the items must pickle where the workers are
        other processes. When the iterator is closed, or an exception such as Ctrl-C ends it, what still runs is given
        up and killed before control returns. An item whose worker dies is run again, and yielded once.
        """
        ...

    def share(self, directory: Path, names: Sequence[str]) -> None:
        """Has the workers find these files of `directory` as they are now, when `fn` or an item names the directory.

        For what exists on this machine only and changes, such as a policy between two iterations.
        """
        ...

    def close(self) -> None:
        """Ends the workers. The pool cannot be used afterwards."""
        ...
