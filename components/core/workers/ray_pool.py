"""Workers on a Ray cluster: Ray Core's actors, one for up to SLOTS slots of each node that has processors to give.

Ray finds nodes, starts agents on them, carries items and results, and tells what died. What is ours: a bounded number
of items is at each agent, so that a slot never waits and what an agent takes with it when it dies is little; an item
whose agent died is sent to another, and counted once, whatever becomes of the answer to the first.
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

from components.core.console import UserError, say
from components.core.workers.ray_cluster import Cluster, connect
from components.core.workers.serialization import dumps

T = TypeVar("T")
R = TypeVar("R")

SLOTS = 16
"""Of one agent, at most: reading what compilers wrote is Python, which one process does one thread at a time."""
_AHEAD = 0.5
"""Items at an agent beyond its slots, as a fraction of them (one at least), so that no slot waits for the head."""
_EXCHANGES = 2
"""With one agent at a time; the second ends the first."""
_LOOK_S = 1.0
_WAIT_S = 900.0
"""How long to wait for a first agent: a cluster that scales starts machines for it."""
_TELL_S = 30.0
_GIVE_UP_S = 10.0
_END_S = 5.0
_SUSPECT = 2
"""An item at whose side so many agents died may be what kills them, and is run alone from then on."""
_MOST_DEATHS = 4
_SHARED_KEPT = 8


@dataclass
class _Agent:
    """handle: Ray's. prepared: number of the function it has. items: those that it has or is about to be sent, by
    number; unsent: of these, with what is sent. exchanges: how many there are now. alone: has a suspect."""

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
        """Items that it can be sent; none beside a suspect."""
        if (self.items and self.alone) or self.exchanges >= _EXCHANGES:
            return 0
        return self.slots + max(1, int(self.slots * _AHEAD)) - len(self.items)

    @property
    def load(self) -> float:
        """Items to a slot."""
        return len(self.items) / self.slots


@dataclass
class _Item:
    index: int
    pickled: bytes
    deaths: int = 0


class RayPool:
    """A WorkerPool; also a context manager that closes it.

    Args:
        address: of a cluster's head, HOST:PORT or "auto" for the cluster that this machine is part of; "" starts Ray
            on this machine alone, for as long as this pool lives.
        slots: of this machine, where Ray is started; by default a slot for each of its processors.
        slots_per_agent: at most.
    """

    def __init__(self, address: str = "", slots: int | None = None, slots_per_agent: int = SLOTS) -> None:
        self._cluster: Cluster = connect(address, slots)
        self._slots_per_agent = slots_per_agent
        self._agents: list[_Agent] = []
        self._numbers = itertools.count()
        self._keys = itertools.count()
        self._events: queue.SimpleQueue[tuple[str, _Agent, int, Any]] = queue.SimpleQueue()
        self._looked_s = 0.0
        self._shared: dict[Path, tuple[str, Any]] = {}
        self._digests: dict[Path, str] = {}
        self.lost = 0
        """Items that were sent again because their agent died."""

    @property
    def size(self) -> int:
        """Slots of the agents that are there now; waits for the first."""
        self._cluster.request_cpus(1)  # without work an autoscaler starts nothing
        self._await_agents()
        return sum(agent.slots for agent in self._agents if agent.ready)

    def share(self, directory: Path, names: Sequence[str]) -> None:
        """See WorkerPool. The content is put into the object store once, whoever asks for it again."""
        from components.core.workers.ray_worker import content_digest

        files = {name: (directory / name).read_bytes() for name in names}
        content = content_digest(files)
        if self._shared.get(directory, ("", None))[0] == content:
            return
        known = {digest: reference for digest, reference in self._shared.values()}
        self._shared.pop(directory, None)
        self._shared[directory] = (content, known.get(content) or self._cluster.put(files))
        for old in list(self._shared)[:-_SHARED_KEPT]:
            del self._shared[old]

    def map_unordered(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[int, R | Exception]]:
        """See WorkerPool. One iteration at a time."""
        number = next(self._numbers)
        function = self._cluster.put(self._dumps(fn))
        self._cluster.request_cpus(len(items) if isinstance(items, Sized) else 0)
        source = enumerate(items)
        again: deque[_Item] = deque()
        exhausted = False
        try:
            while True:
                self._look()
                self._prepare(number, function)
                exhausted = self._fill(number, source, again) or exhausted
                if exhausted and not again and not any(agent.items for agent in self._agents):
                    return
                yield from self._next_events(again)
        finally:
            self._give_up(number)

    def close(self) -> None:
        """Ends the agents, and Ray where it was started here."""
        self._cluster.request_cpus(0)
        if ending := [agent.handle.end.remote() for agent in self._agents if agent.ready]:
            self._cluster.wait(ending, _END_S)
        for agent in self._agents:
            self._cluster.kill(agent.handle)
        self._agents.clear()
        self._shared.clear()
        self._cluster.close()

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dumps(self, thing: object) -> bytes:
        return dumps(thing, {directory: content for directory, (content, _) in self._shared.items()}, self._digests)

    def _look(self) -> None:
        """Starts agents on nodes that have none, forgets those of nodes that are gone."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        for node, cpus in self._cluster.nodes().items():
            missing = cpus - sum(agent.slots for agent in self._agents if agent.node == node)
            while missing > 0:
                slots = math.ceil(missing / math.ceil(missing / self._slots_per_agent))
                agent = _Agent(self._cluster.start_agent(node, slots), node, slots)
                self._agents.append(agent)
                self._await(agent.handle.ping.remote(), "ping", agent, 0)
                missing -= slots

    def _await_agents(self) -> None:
        began_s = told_s = time.monotonic()
        while not any(agent.ready for agent in self._agents):
            self._look()
            for _outcome in self._next_events(deque()):
                pass
            now_s = time.monotonic()
            if now_s - began_s > _WAIT_S:
                raise UserError(
                    f"in {_WAIT_S / 60:.0f} minutes the Ray cluster gave no processor",
                    "see `ray status`: are there nodes with processors, and is another training using them?",
                )
            if now_s - told_s > _TELL_S:
                told_s = now_s
                say(f"waiting for workers: {self._cluster.described()}")

    def _fill(self, number: int, source: Iterator[tuple[int, Any]], again: deque[_Item]) -> bool:
        """Sends what agents have room for, the least loaded first; True if `source` has nothing more."""
        able = [agent for agent in self._agents if agent.prepared == number]
        others, exhausted = able, False
        if able and (suspect := next((item for item in again if item.deaths >= _SUSPECT), None)):
            # Alone, so that it takes nobody along, and its end says who it was.
            alone = min(able, key=lambda agent: len(agent.items))
            others = [agent for agent in able if agent is not alone]
            if not alone.items:
                again.remove(suspect)
                self._assign(alone, suspect)
        open_ = [(agent.load, i, agent) for i, agent in enumerate(others) if agent.free > 0]
        heapq.heapify(open_)
        while open_ and not exhausted:
            _, i, agent = heapq.heappop(open_)
            item = next((item for item in again if item.deaths < _SUSPECT), None)
            if item is not None:
                again.remove(item)
            elif (found := next(source, None)) is not None:
                item = _Item(found[0], self._dumps(found[1]))
            else:
                exhausted = True
                break
            self._assign(agent, item)
            if agent.free > 0:
                heapq.heappush(open_, (agent.load, i, agent))
        for agent in able:
            if agent.unsent or (agent.items and not agent.exchanges):
                self._exchange(agent, number)
        return exhausted

    def _assign(self, agent: _Agent, item: _Item) -> None:
        key = next(self._keys)
        agent.items[key] = item
        agent.unsent.append((key, item.pickled))
        agent.alone = item.deaths >= _SUSPECT

    def _exchange(self, agent: _Agent, number: int) -> None:
        self._await(agent.handle.exchange.remote(number, agent.unsent), "done", agent, number)
        agent.unsent = []
        agent.exchanges += 1

    def _prepare(self, number: int, function: Any) -> None:
        self._await_agents()
        for agent in self._agents:
            if agent.ready and agent.prepared != number and agent.prepared != -2 - number:
                agent.prepared = -2 - number  # on its way
                references = dict(self._shared.values())
                self._await(agent.handle.prepare.remote(number, function, references), "prepared", agent, number)

    def _await(self, reference: Any, kind: str, agent: _Agent, number: int) -> None:
        reference.future().add_done_callback(lambda future: self._events.put((kind, agent, number, future)))

    def _next_events(self, again: deque[_Item]) -> Iterator[tuple[int, Any]]:
        """Handles what has come, waiting for something at most until it is time to look at the nodes again."""
        try:
            event = self._events.get(timeout=_LOOK_S)
        except queue.Empty:
            return
        while True:
            yield from self._handle(*event, again)
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return

    def _handle(
        self, kind: str, agent: _Agent, number: int, future: Any, again: deque[_Item]
    ) -> Iterator[tuple[int, Any]]:
        error = future.exception()
        if error is not None:
            items, agent.items = agent.items, {}
            if agent in self._agents:
                self._agents.remove(agent)
                self._cluster.kill(agent.handle)
                if agent.ready:  # one that never was may be on a node that is going: not again at once
                    self._looked_s = 0.0
                    say(f"a worker with {agent.slots} slots is gone; what it had is compiled again elsewhere")
            for lost in items.values():
                yield from self._lost(lost, error, again)
        elif kind == "ping":
            agent.ready = True
        elif kind == "prepared":
            if (failure := future.result()) and agent.prepared == -2 - number:
                raise failure
            if agent.prepared == -2 - number:
                agent.prepared = number
        else:
            agent.exchanges -= 1
            for key, content in future.result():
                # None: it is of an iteration that was given up.
                if item := agent.items.pop(key, None):
                    _succeeded, result = pickle.loads(content)
                    yield item.index, result

    def _lost(self, item: _Item, error: Exception, again: deque[_Item]) -> Iterator[tuple[int, Any]]:
        item.deaths += 1
        self.lost += 1
        if item.deaths < _MOST_DEATHS:
            again.append(item)
            return
        yield (
            item.index,
            UserError(
                f"{item.deaths} workers died over the same work: {str(error).splitlines()[0]}",
                "give the workers more memory, or take the module out of the corpus (Ray's log names the worker's end)",
            ),
        )

    def _give_up(self, number: int) -> None:
        """Kills what still runs of this function, and waits for that."""
        busy = [agent for agent in self._agents if agent.items]
        pending = [agent.handle.give_up.remote(number) for agent in busy]
        if pending:
            self._cluster.wait(pending, _GIVE_UP_S)
        for agent in busy:
            agent.items, agent.unsent = {}, []
        # Answers that are on their way are to items that nobody knows any more.
        with contextlib.suppress(queue.Empty):
            while True:
                for _outcome in self._handle(*self._events.get_nowait(), deque()):
                    pass
