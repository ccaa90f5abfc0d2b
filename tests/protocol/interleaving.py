"""One interleaving: trainers of one root directory, a sweeper, promoters and a reader, on machines that stop and die.

The code that runs is the project's own but for the store, the clock, and the content of checkpoints. What must hold in
the end is `Interleaving.check`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.downloads.retry import GaveUp
from components.platform.storage.manifest import MANIFEST, verify
from components.platform.storage.object_storage import remote, shared_write, stores
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.object_storage.sweep import sweep
from components.platform.storage.shared_state import root_lease
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.shared_state.versioned_json import Conflict
from components.platform.storage.uri import ObjectUri, mirror
from components.ppo.checkpointing import checkpoint_manager
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from pipelines.retrain.state import Decision, load_state, save_state
from tests.protocol.scheduler import Event, Lock, Machine, World
from tests.protocol.store import SimulatedStore

ROOT, POLICY = ObjectUri("s3", "bucket", "run/ppo"), ObjectUri("s3", "bucket", "run/policy")
STATE = "s3://bucket/retrain.json"
ITERATIONS, KEPT = 3, 2
DECISIONS = 2
ME = ProcessIdentity.here()


@dataclass
class Interleaving:
    """What is drawn, and what happened.

    Attributes:
        saved: iterations whose checkpoints were saved, as their trainers know.
        holders: trainers in the order in which they got the lease.
        wrong: what must not happen, seen by an actor.
        decided: decisions that their promoters know to be written.
    """

    seed: int
    directory: Path
    saved: list[int] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.world = World(self.random)
        self.store = SimulatedStore(self.world, self.random.choice([0.0, 0.02, 0.1]), self.random.random() < 0.5)

    def run(self) -> None:
        """Run it, and then a trainer without faults on a machine of its own."""
        with _simulated(self.world, self.store):
            for name in ("one", "two", "three"):
                self._start(name, partial(self._train, name), self._draw_faults(), self.random.uniform(0, 300))
            self._start("sweeper", self._sweep, self._draw_faults(), self.random.uniform(0, 300))
            for name in ("promoter", "rival"):
                self._start(name, partial(self._decide, name), self._draw_faults(), 0.0)
            self._start("reader", self._read, {}, 0.0)
            self.world.run()
            self.store.faultless()
            self.world.now_s += 1000.0  # nothing is late any more
            self._start("heir", self._inherit, {}, 0.0)
            self.world.run()
        self._check()

    def _start(self, name: str, act: Callable[[], object], faults: dict[int, float | None], delay_s: float) -> None:
        def begin() -> None:
            self.world.sleep(delay_s)
            act()

        self.world.start(Machine(name, self.directory / name, faults), begin)

    def _draw_faults(self) -> dict[int, float | None]:
        kind = self.random.choice(["none", "dies", "stops", "stops twice"])
        steps = [int(10 ** self.random.uniform(0.5, 2.3)) for _ in range(2)]
        stops_s = [10 ** self.random.uniform(1, 5.2) for _ in range(2)]
        if kind == "none":
            return {}
        if kind == "dies":
            return {steps[0]: None}
        return dict(zip(steps[: 1 + kind.endswith("twice")], stops_s, strict=False))

    def _lease(self, name: str) -> RootLease:
        root = mirror(ROOT)
        root.mkdir(parents=True, exist_ok=True)
        return RootLease(root, "training", replace(ME, boot=name, host=name), results="checkpoints/*/*")

    def _train(self, name: str) -> None:
        try:
            with self._lease(name) as lease:
                self.holders.append(name)
                manager = CheckpointManager(lease, KEPT)
                done = _iteration(manager.newest())
                for iteration in range(done + 1, ITERATIONS + 1):
                    manager.save(SimpleNamespace(iteration=iteration, policy_digest=name))  # type: ignore[arg-type]
                    self.saved.append(iteration)
                before = self.store.content(POLICY / MANIFEST)
                with publish(mirror(POLICY), "policy") as directory:
                    (directory / "policy.json").write_text(json.dumps(name))
                    lease.update()
                if self.store.content(POLICY / MANIFEST) == before:
                    self.wrong.append(f"{name} has published, and the old policy is there")
        except (LeaseLost, StorageError):
            pass
        except UserError as error:
            if "another training is running" not in error.problem:
                raise

    def _inherit(self) -> None:
        with self._lease("heir") as lease:
            newest = _iteration(CheckpointManager(lease, KEPT).newest())
        if newest < max(self.saved, default=0):
            self.wrong.append(f"iteration {max(self.saved)} was saved, and {newest} is the newest")
        if self.store.content(POLICY / MANIFEST):
            fetch(POLICY)

    def _sweep(self) -> None:
        for _time in range(3):
            with suppress(StorageError):
                list(sweep(ObjectUri("s3", "bucket", "run")))
            self.world.sleep(self.random.choice([10.0, remote.ABANDONED_AFTER_S]))

    def _decide(self, name: str) -> None:
        for number in range(DECISIONS):
            reason, tries = f"{name} {number}", 0
            while tries < 20:
                tries += 1
                try:
                    state = load_state(STATE)
                    if any(decision.reason == reason for decision in state.decisions):
                        break  # a write without an answer was executed
                    decision = Decision("not promoted", 1.0, name, reason, "s3://b/p", reason)
                    save_state(STATE, state.decided(decision))
                    self.decided.append(reason)
                    break
                except (Conflict, StorageError):
                    self.world.sleep(self.random.uniform(0, 5))

    def _read(self) -> None:
        seen = -1
        for number in range(6):
            self.world.sleep(self.random.uniform(0, 200))
            published = self._published()
            try:
                name = json.loads((fetch(POLICY, self.directory / "read" / str(number)) / "policy.json").read_text())
            except StorageError:
                continue
            except UserError as error:
                if "not a finished artifact" in error.problem and not published:
                    continue
                if "concurrently" not in error.problem:
                    self.wrong.append(f"a reader: {error.problem}")
                continue
            index = self._published().index(name)
            if index < seen:
                self.wrong.append(f"a reader sees the policy of {name} after a newer one")
            seen = index

    def _published(self) -> list[str]:
        """Return whose policies were published, in their order."""
        path = (POLICY / MANIFEST).path
        documents = [json.loads(content) for written, content in self.store.commits if written == path]
        return [self._owners[document["data"]] for document in documents]

    @property
    def _owners(self) -> dict[str, str]:
        """Folder of files -> who uploaded it."""
        return {
            path.removeprefix(f"{POLICY.path}/").removesuffix("/policy.json"): json.loads(content)
            for path, content in self.store.uploads
            if path.endswith("/policy.json")
        }

    def _check(self) -> None:
        published = self._published()
        if sorted(published, key=self.holders.index) != published:
            self.wrong.append(f"{published} have published, and got the lease in the order {self.holders}")
        document = json.loads(self.store.content(ObjectUri("s3", "bucket", "retrain.json")) or b'{"decisions": []}')
        reasons = [decision["reason"] for decision in document["decisions"]]
        if len(set(reasons)) != len(reasons) or set(self.decided) - set(reasons):
            self.wrong.append(f"{self.decided} were decided, and {reasons} are in the state")
        if self.wrong:
            raise AssertionError(f"seed {self.seed}: {'; '.join(self.wrong)}")


def _iteration(checkpoint: Any) -> int:
    return 0 if checkpoint is None else int(checkpoint)


def _write(directory: Path, state: Any, _before: Path | None = None) -> None:
    with publish(directory, "checkpoint") as made:
        (made / "state.json").write_text(json.dumps(state.iteration))


def _read(directory: Path) -> Any:
    verify(directory)
    return json.loads((directory / "state.json").read_text())


def _retry(request: Callable[[], Any], is_transient: Callable[[Exception], bool], *_pauses: object) -> Any:
    for _attempt in range(3):
        try:
            return request()
        except Exception as error:
            if not is_transient(error):
                raise
            last = error
    raise GaveUp(last)


@contextmanager
def _simulated(world: World, store: SimulatedStore) -> Iterator[None]:
    """Have the project's code use the world's store, clock, threads and locks."""
    threads = SimpleNamespace(
        Lock=lambda: Lock(world),
        Event=lambda: Event(world),
        Thread=lambda target, **_named: SimpleNamespace(start=lambda: world.start(world.machine, target)),
    )
    held: dict[Path, int] = {}  # locks on what was fetched, else until the end of this process
    clock = SimpleNamespace(time=world.time, monotonic=world.time, sleep=world.sleep)
    with (
        mock.patch.object(stores, "S3Store", lambda: store),
        mock.patch.object(shared_write, "retry", _retry),
        mock.patch.object(root_lease, "threading", threads),
        mock.patch.object(root_lease, "time", clock),
        mock.patch.object(checkpoint_manager, "checkpoint", SimpleNamespace(write=_write, read=_read)),
        mock.patch.object(remote, "_kind_at", lambda _uri: None),
        mock.patch(f"{fetch.__module__}._held", held),
    ):
        try:
            yield
        finally:
            for descriptor in held.values():
                os.close(descriptor)


def run(seed: int, directory: Path) -> Interleaving:
    """Run the interleaving of a seed in a directory that is removed.

    Raises:
        AssertionError: something that must hold does not.
    """
    interleaving = Interleaving(seed, directory / str(seed))
    try:
        interleaving.run()
    finally:
        shutil.rmtree(interleaving.directory, ignore_errors=True)
    return interleaving
