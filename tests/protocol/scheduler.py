"""Runs actors one at a time, in an order and with a clock that a seed determines.

An actor is a function in a thread of its own. It runs until it calls `World.pause` or `World.sleep`, which every
operation of the simulated store does; then the next one is drawn. Actors of a machine stop and die together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

MAX_STEPS = 6000
"""More mean that an actor waits for ever: an interleaving has a few hundred."""


class Killed(BaseException):
    """The machine of the actor is dead. What the actor does while this passes reaches no store."""


class Stuck(AssertionError):
    """An actor waits for ever."""


@dataclass
class Machine:
    """Where actors run.

    Attributes:
        cache: its directory of mirrors.
        faults: number of its steps -> seconds for which it stops, None if it dies.
        steps: so far.
        wakes_s: time before which it does not run.
    """

    name: str
    cache: Path
    faults: dict[int, float | None] = field(default_factory=dict)
    steps: int = 0
    wakes_s: float = 0.0
    dead: bool = False


class _Actor:
    def __init__(self, world: World, machine: Machine, act: Callable[[], object]) -> None:
        self.machine, self.wakes_s, self.done = machine, world.now_s, False
        self.error: BaseException | None = None
        self.turn = threading.Semaphore(0)
        self._world, self._act = world, act
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self._act()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._world.back.release()


class World:
    """The clock and the actors of an interleaving."""

    def __init__(self, random: Random) -> None:
        self.random, self.now_s = random, 1e9
        self.back = threading.Semaphore(0)
        self.steps = 0
        self._actors: list[_Actor] = []
        self._running: _Actor | None = None
        self._later: list[tuple[float, Callable[[], object]]] = []

    def start(self, machine: Machine, act: Callable[[], object]) -> None:
        """Add an actor; it begins when it is drawn."""
        self._actors.append(_Actor(self, machine, act))

    def later(self, delay_s: float, do: Callable[[], object]) -> None:
        """Do something after a while, whoever is alive then."""
        self._later.append((self.now_s + delay_s, do))

    @property
    def machine(self) -> Machine:
        """The machine of the actor that runs."""
        assert self._running is not None
        return self._running.machine

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let others run, and go on after this time at the earliest."""
        actor = self._running
        assert actor is not None
        actor.wakes_s = self.now_s + seconds
        self.back.release()
        actor.turn.acquire()
        if actor.machine.dead:
            raise Killed

    def pause(self) -> None:
        """Let others run."""
        self.sleep(0.0)

    def run(self) -> None:
        """Run all actors to their ends.

        Raises:
            Stuck: they do not end. Any error of an actor, but that of its death.
        """
        while alive := [actor for actor in self._actors if not actor.done]:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Stuck(f"{len(alive)} actors go on for ever")
            ready = [actor for actor in alive if max(actor.wakes_s, actor.machine.wakes_s) <= self.now_s]
            if not ready:
                self.now_s = min(max(actor.wakes_s, actor.machine.wakes_s) for actor in alive)
                continue
            self.now_s += self.random.random()
            for due in [entry for entry in self._later if entry[0] <= self.now_s]:
                self._later.remove(due)
                due[1]()
            self._step(self.random.choice(ready))

    def _step(self, actor: _Actor) -> None:
        machine = actor.machine
        if not machine.dead:
            machine.steps += 1
            stops_s = machine.faults.get(machine.steps, 0.0)
            if stops_s is None:
                machine.dead = True
            elif stops_s:
                machine.wakes_s = self.now_s + stops_s
                return
        self._running = actor
        os.environ["MLGO_CACHE_DIR"] = str(machine.cache)
        actor.turn.release()
        self.back.acquire()
        self._running = None
        if actor.error is not None:
            raise actor.error


class Lock:
    """Stands in for threading.Lock: other actors run while one waits for it."""

    def __init__(self, world: World) -> None:
        self._world, self._held = world, False

    def __enter__(self) -> None:
        while self._held:
            self._world.pause()
        self._held = True

    def __exit__(self, *_error: object) -> None:
        self._held = False


class Event:
    """Stands in for threading.Event."""

    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def set(self) -> None:
        self._set = True

    def wait(self, timeout_s: float) -> bool:
        self._world.sleep(timeout_s)
        return self._set
