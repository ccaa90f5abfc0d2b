"""The checkpoints of one training: ROOT/checkpoints/<iteration>-<random>, and which of them are valid.

A checkpoint is published under a unique name and then listed in the lease's document. A kill between the two leaves the
previous one as the newest. A training that lost its lease cannot list a checkpoint, and no checkpoint can consist of
files of two writers.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import discard
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import STORAGE_PATIENCE_S, StorageError
from components.platform.storage.object_storage.remote import read_verified_manifest
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.shared_state.workdir import list_files
from components.platform.storage.uri import display_path, uri_of
from components.ppo.checkpointing import checkpoint
from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.fingerprint import EarlierCredit

_CHECKPOINT = re.compile(r"\d{6,}-[0-9a-f]{8}")
_NAME = re.compile(r"(\d{6,})(-[0-9a-f]{8})?")  # earlier versions numbered them only
_PARTIAL = re.compile(r"\.\d{6,}-[0-9a-f]{8}\.partial-.*")


class CheckpointManager:
    """Reads and publishes the checkpoints below the root directory of a lease, and keeps the newest `keep` of them."""

    def __init__(self, lease: RootLease, keep: int) -> None:
        self.directory = lease.root / "checkpoints"
        self._lease = lease
        self._keep = keep
        self._usable: list[str] | None = None
        """Listed checkpoints that are readable or were not read; None before `newest` was called."""
        self._before: Path | None = None
        self._published: set[str] = set()
        """Checkpoints that were published or listed, and not removed, since this lease was taken."""

    def save(self, state: Checkpoint) -> None:
        """Publish a checkpoint, then remove all but the newest ones.

        Raises:
            LeaseLost: another training has taken over; none of its files was changed.
            UserError: object storage refuses or does not answer.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"{state.iteration:06d}-{token_hex(4)}"
        before = self._listed()
        remaining = [*(before if self._usable is None else self._usable), name][-self._keep :]
        checkpoint.write(self.directory / name, state, self._before)
        self._published |= {*before, name}
        try:
            self._lease.update(
                checkpoints=remaining, iteration=state.iteration, policy=state.policy_digest, saved=time.time()
            )
        except LeaseLost:
            if name not in self._listed():  # it was listed, if this was taken over before the answer came
                discard(self.directory / name)
            raise
        self._usable, self._before = remaining, self.directory / name
        for old in sorted(self._published - set(remaining)):
            discard(self.directory / old)
            self._published.remove(old)

    @property
    def repeated_s(self) -> float:
        """How long the training before this one went on after its last checkpoint; 0 if it ended in order."""
        before = self._lease.before
        if before.get("released") or "saved" not in before:
            return 0.0
        return max(0.0, float(before.get("renewed", 0.0)) - float(before["saved"]))

    def newest(self) -> Checkpoint | None:
        """Return the newest readable checkpoint, None if there is none; report unreadable newer ones.

        Raises:
            EarlierCredit: an earlier version of this program wrote them.
            LeaseLost: another training has taken over.
            UserError: none of them is readable; object storage refuses or does not answer.
        """
        self._sweep()
        names = self._listed()
        for number, name in reversed([*enumerate(names, 1)]):
            try:
                newest = self._read(name)
            except (StorageError, EarlierCredit):
                raise
            except UserError as error:
                say(f"{error.problem}; using the previous one")
                continue
            self._usable, self._before = names[:number], self.directory / name
            return newest
        if names:
            self._lease.update()  # a successor may have removed them
            raise UserError(
                f"none of the checkpoints {', '.join(names)} in {display_path(self._lease.root)} can be read",
                "use another --root-dir, or remove this one, to start again",
            )
        return None

    def _read(self, name: str) -> Checkpoint:
        directory = self.directory / name
        if uri := uri_of(directory):
            # Ignore the mirror of an earlier run: its content may be damaged even if the sizes match.
            shutil.rmtree(directory, ignore_errors=True)
            fetch(uri, directory)
        return checkpoint.read(directory)

    def _listed(self) -> list[str]:
        """Return the names of the listed checkpoints, the newest last."""
        listed = self._lease.content.get("checkpoints")
        return list(listed) if listed is not None else self._list_present()

    def _list_present(self) -> list[str]:
        """Return the present checkpoints, for earlier versions, or if the document was removed.

        The manifest of a publication without an answer may appear after a sweep has removed its files.
        """
        folders = [Path(name).parent for name in list_files(self.directory) if Path(name).name == MANIFEST]
        names = [str(folder) for folder in folders if _NAME.fullmatch(str(folder))]
        whole = [
            name for name in names if not (uri := uri_of(self.directory / name)) or read_verified_manifest(uri).version
        ]
        return sorted(whole, key=lambda name: int(name.partition("-")[0]))

    def _sweep(self) -> None:
        """Remove partial and unlisted checkpoints of killed trainings."""
        present = {name.partition("/")[0] for name in list_files(self.directory)}
        if self.directory.is_dir():
            local = {path.name for path in self.directory.iterdir()}
            for name in filter(_PARTIAL.fullmatch, local):
                shutil.rmtree(self.directory / name, ignore_errors=True)
            present |= local
        if "checkpoints" in self._lease.content:
            # After listing and before deleting: whoever has taken over by then is noticed here, and what a later
            # successor publishes is not among the names.
            self._lease.update()
            for name in filter(_CHECKPOINT.fullmatch, present - set(self._listed())):
                discard(self.directory / name)


class BackgroundSaver:
    """Publishes the newest checkpoint in a thread, one at a time: an iteration may measure a gigabyte of flips.

    Attributes:
        saved: iteration of the newest published checkpoint.

    Args:
        push: is called before each publication.
    """

    def __init__(self, checkpoints: CheckpointManager, push: Callable[[], None]) -> None:
        self.saved = 0
        self._checkpoints, self._push = checkpoints, push
        self._unsaved: Checkpoint | None = None
        self._executor = ThreadPoolExecutor(1, "checkpoint")
        self._saving: tuple[Checkpoint, Future[None]] | None = None
        self._failing_since_s: float | None = None

    def keep(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint that is published next."""
        self._unsaved = checkpoint

    def start(self) -> None:
        """Start to publish the kept checkpoint, unless it is published already.

        If object storage does not answer, the training goes on for a while, and a later call tries again.

        Raises:
            StorageError: it has not answered for STORAGE_PATIENCE_S.
            LeaseLost, UserError: as CheckpointManager.save.
        """
        try:
            self._finish()
            self._start()
        except StorageError as error:
            now_s = time.monotonic()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
                say(f"warning: no checkpoint is written, and training goes on: {error.problem}")
            elif now_s - self._failing_since_s > STORAGE_PATIENCE_S:
                raise

    def save(self) -> None:
        """Publish the kept checkpoint, unless it is published already, and wait for it."""
        with suppress(StorageError):  # tried again here
            self._finish()
        self._start()
        self._finish()

    def join(self) -> None:
        """Wait for a checkpoint that is being published; an error of it is raised by the next `start` or `save`."""
        if self._saving is not None:
            wait([self._saving[1]])

    def _start(self) -> None:
        if self._unsaved is not None:
            self._push()
            self._saving = self._unsaved, self._executor.submit(self._checkpoints.save, self._unsaved)
            self._unsaved = None

    def _finish(self) -> None:
        if self._saving is None:
            return
        checkpoint, saving = self._saving
        try:
            saving.result()
        except Exception:
            self._saving, self._unsaved = None, self._unsaved or checkpoint
            raise
        self._saving, self.saved, self._failing_since_s = None, checkpoint.iteration, None
