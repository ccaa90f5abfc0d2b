"""Workers on a Ray cluster: actors of Ray Core, each with up to SLOTS processors of a node.

Ray finds nodes, starts actors on them, transports items and results, and reports deaths. This file bounds the number of
items at each actor, so that no slot waits and little is lost when an actor dies. An item whose actor died is sent to
another actor and yielded once, even if the first answer still arrives.

An actor dies of what it processes (memory, a crash), or of what happens to its node (preemption, scale-down). Only the
former is held against items: a death counts while its node is in the cluster, which is asked again at each death. The
second death that counts makes every item of that actor a suspect, which from then on runs alone on an actor: innocent
items succeed, and the one that actors die of is identified.

An actor that cannot be used (other sources than the trainer's, a failed download of the compiler) is left out, with its
node, for a while. The pool fails only if that is so on all nodes; if object storage has answered them before, it waits.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import pickle
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import STORAGE_PATIENCE_S, StorageError
from components.platform.workers.pool import WorkersDied
from components.platform.workers.ray_cluster import Cluster, connect, may_be_due_to_items
from components.platform.workers.serialization import dumps
from components.platform.workers.source_digest import ROOT, source_digest

T = TypeVar("T")
R = TypeVar("R")

SLOTS = 16
"""Maximum slots of an actor: Python reads what compilers wrote, one thread of a process at a time."""
_AHEAD = 0.5
"""Items at an actor beyond its slots, as a fraction of them (at least one), so that no slot waits for the head."""
_MAX_EXCHANGES = 2
"""Concurrent calls of one actor; the second ends the first."""
_NODES_REFRESH_S = 1.0
_START_TIMEOUT_S = 900.0
"""How long to wait for the first actor: an autoscaler starts machines for it."""
_REPORT_INTERVAL_S = 30.0
_CANCEL_TIMEOUT_S = 10.0
_SHUTDOWN_TIMEOUT_S = 5.0
_SUSPECT_DEATHS = 2
"""Deaths of its actors after which an item may be their cause; it then runs alone on an actor."""
_MAX_DEATHS = 4
_MAX_LOSSES = 16
"""Lost actors, whatever the reason, after which an item is given up: it may be what nodes die of, or takes longer than
nodes live."""
_EXCLUDED_S = 60.0
"""How long no actor is started on a node after one could not be used; doubled each time, but for object storage."""
_MAX_EXCLUDED_S = 1800.0
_MAX_SHARED = 256
"""Shared directories: one policy per iteration and validation, or with evolution strategies one per perturbation."""


@dataclass
class _Worker:
    """An actor on a node.

    Attributes:
        handle: Ray's handle of the actor.
        node: Ray's ID of the node.
        prepared: number of the function that it has; -2 - number while that function is being sent.
        items: items that it has or will be sent next, by key.
        unsent: keys and pickles of those that will be sent next.
        exchanges: number of running calls.
        alone: it has a suspect item, see _SUSPECT_DEATHS.
    """

    handle: Any
    node: str
    slots: int
    ready: bool = False
    prepared: int = -1
    items: dict[int, _Item] = field(default_factory=dict)
    unsent: list[tuple[int, bytes]] = field(default_factory=list)
    exchanges: int = 0
    alone: bool = False

    @property
    def free(self) -> int:
        """Number of items that it can be sent; 0 while it has a suspect item."""
        if (self.items and self.alone) or self.exchanges >= _MAX_EXCHANGES:
            return 0
        return self.slots + max(1, int(self.slots * _AHEAD)) - len(self.items)

    @property
    def load(self) -> float:
        """Items per slot."""
        return len(self.items) / self.slots


@dataclass
class _Item:
    """An item.

    Attributes:
        died_on: nodes of its actors that died and of whose deaths it may be the cause.
        losses: number of its actors that died for any reason.
        suspect: it runs alone on an actor.
    """

    index: int
    pickled: bytes
    died_on: list[str] = field(default_factory=list)
    losses: int = 0
    suspect: bool = False


@dataclass
class _Exclusion:
    """A node on which an actor could not be used.

    Attributes:
        error: the newest reason.
        times: how often in succession.
        since_s: the first time of these.
        until_s: when an actor is started there again.
    """

    error: Exception
    times: int
    since_s: float
    until_s: float


class RayPool:
    """A WorkerPool; also a context manager that closes it.

    Args:
        address: HOST:PORT of a cluster's head, or "auto" for the cluster that this machine belongs to; "" starts Ray
            on this machine alone, for the lifetime of this pool.
        slots: slots of a Ray that is started; by default one per processor.
        slots_per_worker: maximum slots of an actor.

    Attributes:
        lost: number of items that were sent again because their actor died.
    """

    def __init__(self, address: str = "", slots: int | None = None, slots_per_worker: int = SLOTS) -> None:
        self._cluster: Cluster = connect(address, slots)
        self._slots_per_worker = slots_per_worker
        self._workers: list[_Worker] = []
        self._numbers = itertools.count()
        self._keys = itertools.count()
        self._events: queue.SimpleQueue[tuple[str, _Worker, int, Any]] = queue.SimpleQueue()
        self._refreshed_s = 0.0
        self._shared: dict[Path, tuple[str, Any]] = {}
        self._digests: dict[Path, str] = {}
        self._source = source_digest()
        self._excluded: dict[str, _Exclusion] = {}
        self._was_prepared = False
        """Whether any actor could ever be used."""
        self.lost = 0

    @property
    def size(self) -> int:
        """Slots of the present actors; waits for the first one."""
        self._cluster.request_cpus(1)  # without a request an autoscaler starts nothing
        self._await_workers()
        return sum(worker.slots for worker in self._workers if worker.ready)

    def share(self, directory: Path, names: Sequence[str]) -> None:
        """See WorkerPool. Equal content is put into the object store once."""
        from components.platform.workers.ray_worker import content_digest

        files = {name: (directory / name).read_bytes() for name in names}
        content = content_digest(files)
        if self._shared.get(directory, ("", None))[0] == content:
            self._shared[directory] = self._shared.pop(directory)  # the newest are kept
            return
        references = {digest: reference for digest, reference in self._shared.values()}
        self._shared.pop(directory, None)
        self._shared[directory] = (content, references.get(content) or self._cluster.put(files))
        for old in list(self._shared)[:-_MAX_SHARED]:
            del self._shared[old]

    def map_unordered(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[int, R | Exception]]:
        """See WorkerPool. One iteration at a time."""
        number = next(self._numbers)
        function = self._cluster.put(self._dumps(fn))
        self._cluster.request_cpus(len(items) if isinstance(items, Sized) else 0)
        source = enumerate(items)
        retries: deque[_Item] = deque()
        exhausted = False
        try:
            while True:
                self._refresh_nodes()
                self._prepare(number, function)
                exhausted = self._fill(number, source, retries) or exhausted
                if exhausted and not retries and not any(worker.items for worker in self._workers):
                    return
                yield from self._next_events(retries)
        finally:
            self._cancel(number)

    def close(self) -> None:
        """End the actors, and Ray if this pool started it."""
        self._cluster.request_cpus(0)
        if ending := [worker.handle.shutdown.remote() for worker in self._workers if worker.ready]:
            self._cluster.wait(ending, _SHUTDOWN_TIMEOUT_S)
        for worker in self._workers:
            self._cluster.kill(worker.handle)
        self._workers.clear()
        self._shared.clear()
        self._cluster.close()

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dumps(self, value: object) -> bytes:
        return dumps(value, {directory: content for directory, (content, _) in self._shared.items()}, self._digests)

    def _refresh_nodes(self) -> None:
        """Start actors on nodes that have free processors."""
        if time.monotonic() - self._refreshed_s < _NODES_REFRESH_S:
            return
        self._refreshed_s = time.monotonic()
        self._cluster.update_request()
        nodes = self._cluster.nodes()
        self._excluded = {node: excluded for node, excluded in self._excluded.items() if node in nodes}
        for node, cpus in nodes.items():
            if self._is_excluded(node):
                continue
            missing = cpus - sum(worker.slots for worker in self._workers if worker.node == node)
            while missing > 0:
                slots = math.ceil(missing / math.ceil(missing / self._slots_per_worker))
                worker = _Worker(self._cluster.start_worker(node, slots), node, slots)
                self._workers.append(worker)
                self._await(worker.handle.ping.remote(), "ping", worker, 0)
                missing -= slots

    def _await_workers(self) -> None:
        began_s = reported_s = time.monotonic()
        while not any(worker.ready for worker in self._workers):
            self._refresh_nodes()
            self._require_usable_node()
            for _outcome in self._next_events(deque()):
                pass
            now_s = time.monotonic()
            if now_s - began_s > _START_TIMEOUT_S:
                raise UserError(
                    f"no processor for {_START_TIMEOUT_S / 60:.0f} minutes: {self._cluster.description()}",
                    "see `ray status`: are there nodes with processors, and does another training use them?",
                )
            if now_s - reported_s > _REPORT_INTERVAL_S:
                reported_s = now_s
                say(f"waiting for workers: {self._cluster.description()}")

    def _is_excluded(self, node: str) -> bool:
        return node in self._excluded and time.monotonic() < self._excluded[node].until_s

    def _require_usable_node(self) -> None:
        """Raise the reason if there is no actor, and no node on which one may be started now or soon."""
        if self._workers or not self._excluded:
            return
        nodes = self._cluster.nodes()
        if not nodes or not all(map(self._is_excluded, nodes)):
            return
        exclusions = [self._excluded[node] for node in nodes]
        earliest_s = time.monotonic() - STORAGE_PATIENCE_S
        if self._was_prepared and any(isinstance(e.error, StorageError) and e.since_s > earliest_s for e in exclusions):
            return  # it may answer again
        error = exclusions[0].error
        if isinstance(error, UserError):
            raise UserError(f"no worker of the Ray cluster can be used: {error.problem}", error.remedy)
        raise error

    def _fill(self, number: int, source: Iterator[tuple[int, Any]], retries: deque[_Item]) -> bool:
        """Send items to actors with room, the least loaded first; return whether `source` is exhausted."""
        prepared = [worker for worker in self._workers if worker.prepared == number]
        others, exhausted = prepared, False
        if prepared and (suspect := next((item for item in retries if item.suspect), None)):
            # Alone, so that its actor's death affects no other item and identifies the cause.
            alone = min(prepared, key=lambda worker: len(worker.items))
            others = [worker for worker in prepared if worker is not alone]
            if not alone.items:
                retries.remove(suspect)
                self._assign(alone, suspect)
        candidates = [(worker.load, i, worker) for i, worker in enumerate(others) if worker.free > 0]
        heapq.heapify(candidates)
        while candidates and not exhausted:
            _, i, worker = heapq.heappop(candidates)
            item = next((item for item in retries if not item.suspect), None)
            if item is not None:
                retries.remove(item)
            elif (next_item := next(source, None)) is not None:
                item = _Item(next_item[0], self._dumps(next_item[1]))
            else:
                exhausted = True
                break
            self._assign(worker, item)
            if worker.free > 0:
                heapq.heappush(candidates, (worker.load, i, worker))
        for worker in prepared:
            if worker.unsent or (worker.items and not worker.exchanges):
                self._exchange(worker, number)
        return exhausted

    def _assign(self, worker: _Worker, item: _Item) -> None:
        key = next(self._keys)
        worker.items[key] = item
        worker.unsent.append((key, item.pickled))
        worker.alone = item.suspect

    def _exchange(self, worker: _Worker, number: int) -> None:
        self._await(worker.handle.exchange.remote(number, worker.unsent), "done", worker, number)
        worker.unsent = []
        worker.exchanges += 1

    def _prepare(self, number: int, function: Any) -> None:
        self._await_workers()
        for worker in self._workers:
            if worker.ready and worker.prepared != number and worker.prepared != -2 - number:
                worker.prepared = -2 - number  # being sent
                references = dict(self._shared.values())
                self._await(worker.handle.prepare.remote(number, function, references), "prepared", worker, number)

    def _await(self, reference: Any, kind: str, worker: _Worker, number: int) -> None:
        reference.future().add_done_callback(lambda future: self._events.put((kind, worker, number, future)))

    def _next_events(self, retries: deque[_Item]) -> Iterator[tuple[int, Any]]:
        """Handle all events that have arrived; wait for the first one for at most the interval of node refreshes."""
        try:
            event = self._events.get(timeout=_NODES_REFRESH_S)
        except queue.Empty:
            return
        while True:
            yield from self._handle(*event, retries)
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return

    def _handle(
        self, kind: str, worker: _Worker, number: int, future: Any, retries: deque[_Item]
    ) -> Iterator[tuple[int, Any]]:
        error = future.exception()
        if error is not None:
            if worker in self._workers:
                if worker.ready:  # otherwise its node may be leaving: do not replace it at once
                    self._refreshed_s = 0.0
                    say(f"a worker with {worker.slots} slots died; its modules are compiled again elsewhere")
                for lost in self._remove(worker):
                    yield from self._lost(lost, worker.node, error, retries)
        elif worker not in self._workers:
            return  # excluded, or dead
        elif kind == "ping":
            host, source = future.result()
            if source == self._source:
                worker.ready = True
            else:
                retries.extend(self._exclude(worker, _other_source(host, source, self._source)))
        elif kind == "prepared":
            if worker.prepared != -2 - number:
                return  # a later function is being sent
            if failure := future.result():
                retries.extend(self._exclude(worker, failure))
            else:
                worker.prepared = number
                self._was_prepared = True
                self._excluded.pop(worker.node, None)
        else:
            worker.exchanges -= 1
            for key, content in future.result():
                # None for an item of a cancelled iteration.
                if item := worker.items.pop(key, None):
                    _succeeded, result = pickle.loads(content)
                    yield item.index, result

    def _remove(self, worker: _Worker) -> list[_Item]:
        """Kill an actor, and return the items that it had."""
        items, worker.items = list(worker.items.values()), {}
        self._workers.remove(worker)
        self._cluster.kill(worker.handle)
        return items

    def _exclude(self, worker: _Worker, error: Exception) -> list[_Item]:
        """Kill an actor that cannot be used, and start none on its node for a while; return the items that it had."""
        before = self._excluded.get(worker.node)
        times = before.times + 1 if before else 1
        passing = isinstance(error, StorageError)
        pause_s = _EXCLUDED_S if passing else min(_EXCLUDED_S * 2 ** (times - 1), _MAX_EXCLUDED_S)
        now_s = time.monotonic()
        self._excluded[worker.node] = _Exclusion(error, times, before.since_s if before else now_s, now_s + pause_s)
        if before is None or str(before.error) != str(error):
            remedy = f"; {error.remedy}" if isinstance(error, UserError) and error.remedy else ""
            say(f"warning: a worker with {worker.slots} slots is left out: {_problem(error, worker.node)}{remedy}")
        return self._remove(worker)

    def _lost(self, item: _Item, node: str, error: Exception, retries: deque[_Item]) -> Iterator[tuple[int, Any]]:
        """Have an item processed again whose actor died, or yield an error if it is the likely cause."""
        self.lost += 1
        item.losses += 1
        if may_be_due_to_items(error):
            item.died_on.append(node)
        present = self._cluster.nodes()
        deaths = sum(node in present for node in item.died_on)
        item.suspect = deaths >= _SUSPECT_DEATHS or item.losses >= _MAX_LOSSES // 2
        if deaths < _MAX_DEATHS and item.losses < _MAX_LOSSES:
            retries.append(item)
            return
        yield (
            item.index,
            WorkersDied(
                f"{item.losses} workers died processing the same item: {_cause(error)}",
                "give the workers more memory, or take the module out of the corpus (Ray's log has the cause)",
            ),
        )

    def _cancel(self, number: int) -> None:
        """Kill what still runs of this function, and wait for that."""
        busy = [worker for worker in self._workers if worker.items]
        pending = [worker.handle.cancel.remote(number) for worker in busy]
        if pending:
            self._cluster.wait(pending, _CANCEL_TIMEOUT_S)
        for worker in busy:
            worker.items, worker.unsent = {}, []
        # Drop answers to items that are no longer known.
        with contextlib.suppress(queue.Empty):
            while True:
                for _outcome in self._handle(*self._events.get_nowait(), deque()):
                    pass


def _problem(error: Exception, node: str) -> str:
    """Return what is wrong, in one line; a UserError names the worker itself."""
    if isinstance(error, UserError):
        return error.problem
    return f"on the node {node}: {type(error).__name__}: {(str(error).splitlines() or ['no message'])[0][:300]}"


def _cause(error: Exception) -> str:
    """Return the line of Ray's message that says why an actor died."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if lines[0].startswith("The actor died") else 0][:300]


def _other_source(host: str, worker: str, trainer: str) -> UserError:
    return UserError(
        f"on the worker {host}: its code of this project is not the trainer's (digests {worker[:12]} and "
        f"{trainer[:12]})",
        f"install the trainer's version in {ROOT} on every node, or start all of them from one image",
    )
