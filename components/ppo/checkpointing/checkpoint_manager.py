"""The checkpoints of one training: ROOT/checkpoints/<iteration>-<random>, and which of them holds.

A checkpoint is published under a name that nothing else ever has, and only then named in the fence's document. So a
kill between the two leaves the one before as the newest; a training that another one has replaced leaves nothing that
anybody would take for a checkpoint; and no reader finds one that is half of one writer's and half of another's.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from secrets import token_hex

from components.core.console import UserError, say
from components.core.storage import discard
from components.core.storage.fetch import fetch
from components.core.storage.gcs import StorageError
from components.core.storage.manifest import MANIFEST
from components.core.storage.uri import display_path, uri_of
from components.core.storage.workdir import listing
from components.ppo.checkpointing import checkpoint
from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.fingerprint import EarlierCredit
from components.ppo.checkpointing.training_lease import LeaseLost, TrainingLease

_OURS = re.compile(r"\d{6,}-[0-9a-f]{8}")
_NAME = re.compile(r"(\d{6,})(-[0-9a-f]{8})?")  # earlier versions numbered them only
_HALF = re.compile(r"\.\d{6,}-[0-9a-f]{8}\.partial-.*")


class CheckpointManager:
    """Checkpoints below `fence.root`, which the fence holds; the newest `keep` of them are kept."""

    def __init__(self, fence: TrainingLease, keep: int) -> None:
        self.directory = fence.root / "checkpoints"
        self._fence = fence
        self._keep = keep
        self._usable: list[str] | None = None
        """Of the kept ones those that could be read, or were not tried; None until `newest` has looked."""
        self._before: Path | None = None
        """Of the kept ones that which the next one follows from."""

    def save(self, point: Checkpoint) -> None:
        """Publishes a checkpoint, then removes all but the newest.

        Raises:
            Lost: another training has taken over; nothing of it was changed.
            UserError: object storage refuses or does not answer.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"{point.iteration:06d}-{token_hex(4)}"
        before = self._named()
        kept = [*(before if self._usable is None else self._usable), name][-self._keep :]
        checkpoint.write(self.directory / name, point, self._before)
        try:
            self._fence.update(checkpoints=kept, iteration=point.iteration, policy=point.policy_digest)
        except LeaseLost:
            discard(self.directory / name)
            raise
        self._usable, self._before = kept, self.directory / name
        for old in set(before) - set(kept):
            discard(self.directory / old)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, None if there never was one; says so if that is not the newest.

        Raises:
            EarlierCredit: they are of an earlier version of this program.
            UserError: none of those kept is whole; object storage refuses or does not answer.
        """
        self._sweep()
        names = self._named()
        for number in range(len(names), 0, -1):
            name = names[number - 1]
            try:
                found = self._read(name)
            except (StorageError, EarlierCredit):
                raise
            except UserError as error:
                say(f"{error.problem}; the one before it is taken")
                continue
            self._usable, self._before = names[:number], self.directory / name
            return found
        if names:
            raise UserError(
                f"none of the checkpoints {', '.join(names)} in {display_path(self._fence.root)} can be read",
                "use another --root-dir, or remove this one, to begin anew",
            )
        return None

    def _read(self, name: str) -> Checkpoint:
        directory = self.directory / name
        if uri := uri_of(directory):
            # Not what an earlier run left in the mirror: its sizes could be right and its content damaged.
            shutil.rmtree(directory, ignore_errors=True)
            fetch(uri, directory)
        return checkpoint.read(directory)

    def _named(self) -> list[str]:
        """The names of those kept, the newest last."""
        named = self._fence.content.get("checkpoints")
        return list(named) if named is not None else self._listed()

    def _listed(self) -> list[str]:
        """Where nothing names them: of an earlier version of this program, or their document was removed."""
        folders = [Path(name).parent for name in listing(self.directory) if Path(name).name == MANIFEST]
        names = [str(folder) for folder in folders if _NAME.fullmatch(str(folder))]
        return sorted(names, key=lambda name: int(name.partition("-")[0]))

    def _sweep(self) -> None:
        """Removes what killed trainings left: halves, and whole ones that were never named."""
        there = {name.partition("/")[0] for name in listing(self.directory)}
        if self.directory.is_dir():
            here = {path.name for path in self.directory.iterdir()}
            for name in filter(_HALF.fullmatch, here):
                shutil.rmtree(self.directory / name, ignore_errors=True)
            there |= here
        if "checkpoints" in self._fence.content:
            for name in filter(_OURS.fullmatch, there - set(self._named())):
                discard(self.directory / name)
