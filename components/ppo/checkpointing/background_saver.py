"""Publishes checkpoints in a thread: an iteration of thousands of modules measures a gigabyte."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager


class BackgroundSaver:
    """Publishes the newest checkpoint, one at a time.

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

    def keep(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint that is published next."""
        self._unsaved = checkpoint

    def start(self) -> None:
        """Start to publish the kept checkpoint, unless it is published already."""
        self._finish()
        if self._unsaved is not None:
            self._push()
            self._saving = self._unsaved, self._executor.submit(self._checkpoints.save, self._unsaved)
            self._unsaved = None

    def save(self) -> None:
        """Publish the kept checkpoint, unless it is published already, and wait for it."""
        self.start()
        self._finish()

    def join(self) -> None:
        """Wait for a checkpoint that is being published; an error of it is raised by the next `start` or `save`."""
        if self._saving is not None:
            wait([self._saving[1]])

    def _finish(self) -> None:
        if self._saving is None:
            return
        checkpoint, saving = self._saving
        try:
            saving.result()
        except Exception:
            self._saving, self._unsaved = None, self._unsaved or checkpoint
            raise
        self._saving, self.saved = None, checkpoint.iteration
