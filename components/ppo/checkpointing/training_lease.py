"""One training at a time in a root directory, and one word on which of its checkpoints holds.

ROOT/latest.json is both, so that there is no moment between the one and the other:

    token, host, pid ...    whose training this is
    beat, renewed           counted up every HEARTBEAT_S while it lives, and when (seconds since 1970)
    released                whether it has ended in order
    checkpoints             the names of those kept, the newest last; iteration and policy (a digest) of that one

It is only ever replaced by who has read the version that it replaces (in object storage: by generation). A training
that was taken for dead and wakes up is told so when it next writes: it cannot name a checkpoint of its own any more,
and as the names of checkpoints are never used twice, it has overwritten nothing of the other one's.

On this machine a lock on ROOT/lock, which goes with the process, tells at once. Trainings on several machines that
share ROOT through a network file system without working locks are told apart by the heartbeat, but whether the document
is replaced safely depends on those locks: for that, use gs://.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from components.core.console import UserError, say
from components.core.storage.uri import display_path, uri_of
from components.core.storage.versioned_json import Conflict, VersionedJson, read_versioned, write_versioned
from components.ppo.checkpointing.process_identity import ProcessIdentity

LATEST = "latest.json"
HEARTBEAT_S = 10.0
STALE_S = 60.0
"""Without a heartbeat for so long, a training whose process cannot be seen from here is taken for dead."""
LONG_AGO_S = 600.0
"""A heartbeat older than this by our clock is not waited for: clocks do not differ so much."""
_POLL_S = 1.0
_VERSION = 1


class LeaseLost(UserError):
    """Another training has taken the root directory over."""


class TrainingLease:
    """Holds `root` while the block runs.

    Args:
        root: a directory, or the mirror of a gs:// URI.
        me: who holds it; for tests.
    """

    def __init__(
        self, root: Path, me: ProcessIdentity | None = None, heartbeat_s: float = HEARTBEAT_S, stale_s: float = STALE_S
    ) -> None:
        self.root = root
        self._place = str((uri_of(root) or root) / LATEST)  # type: ignore[operator]
        self._me = me or ProcessIdentity.here()
        self._heartbeat_s, self._stale_s = heartbeat_s, stale_s
        self._token = token_hex(8)
        self._lock = threading.Lock()  # of the two lines below: the heartbeat is a thread of its own
        self._document = VersionedJson(None, "")
        self._lost: LeaseLost | None = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._stack = ExitStack()

    @property
    def content(self) -> Mapping[str, Any]:
        """The document, whoever wrote what is in it."""
        return dict(self._document.content or {})

    def __enter__(self) -> Self:
        """Raises UserError if another training is at work here, or object storage does not answer."""
        with ExitStack() as stack:
            lock = stack.enter_context(open(self.root / "lock", "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._in_use(ProcessIdentity.from_json(read_versioned(self._place).content or {})) from None
            self._take()
            self._stack = stack.pop_all()
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        with self._stack:
            if self._lost is None:
                try:
                    self.update(released=True)
                except UserError as failure:
                    say(
                        f"warning: {display_path(self.root)} is not released, the next training waits: "
                        f"{failure.problem}"
                    )

    def update(self, **fields: Any) -> None:
        """Replaces fields of the document, and so makes sure that the root directory is still held.

        Raises:
            Lost: it is not.
            UserError: object storage refuses or does not answer; it may have been written all the same.
        """
        with self._lock:
            while True:
                if self._lost is not None:
                    raise self._lost
                before = self._document.content or {}
                try:
                    self._write({**before, **fields, "beat": before["beat"] + 1}, self._document)
                    return
                except Conflict:
                    found = read_versioned(self._place)
                    if (found.content or {}).get("token") != self._token:
                        self._lost = self._replaced_by(found)
                        raise self._lost from None
                    self._document = found  # the answer to an earlier write of ours was lost

    def _write(self, content: dict[str, Any], before: VersionedJson) -> None:
        self._document = write_versioned(self._place, {**content, "renewed": round(time.time(), 3)}, before)

    def _take(self) -> None:
        while True:
            found = read_versioned(self._place)
            self._wait_for_the_end_of(found)
            fresh = {"version": _VERSION, "token": self._token, **self._me.to_json(), "beat": 0, "released": False}
            try:
                self._write({**(found.content or {}), **fresh}, found)
                return
            except Conflict:
                continue  # another one lives, or was quicker: the document says who

    def _wait_for_the_end_of(self, found: VersionedJson) -> None:
        """Returns when the training that wrote `found` may be replaced. UserError if it lives."""
        content = found.content or {}
        holder = ProcessIdentity.from_json(content)
        if holder is None or content.get("released") or content.get("token") == self._token:
            return
        if uri_of(self.root) is None and holder.boot == self._me.boot:
            return  # it had the lock that we have
        lives = holder.lives(self._me)
        if lives:
            raise self._in_use(holder)
        if lives is False or time.time() - float(content.get("renewed", 0)) > LONG_AGO_S:
            return
        say(f"{display_path(self.root)} was held by {holder}: waiting {self._stale_s:.0f} s for a sign of life of it")
        until_s = time.monotonic() + self._stale_s
        while time.monotonic() < until_s:
            time.sleep(min(_POLL_S, self._heartbeat_s))
            now = read_versioned(self._place)
            if now.version != found.version:
                if (now.content or {}).get("released"):
                    return
                raise self._in_use(ProcessIdentity.from_json(now.content or {}))
        say(f"{holder} gave none, and is replaced")

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat_s):
            try:
                self.update()
            except LeaseLost:
                return  # who next writes tells
            except (UserError, OSError) as error:  # a full disk, a mount that is away: both may pass
                say(f"warning: no sign of life: {error.problem if isinstance(error, UserError) else error}")

    def _in_use(self, holder: ProcessIdentity | None) -> UserError:
        who = f" ({holder})" if holder else ""
        return UserError(
            f"another training is running in {display_path(self.root)}{who}",
            "wait until it has ended, or use another --root-dir",
        )

    def _replaced_by(self, found: VersionedJson) -> LeaseLost:
        who = ProcessIdentity.from_json(found.content or {}) or "nobody, and the document is gone"
        return LeaseLost(
            f"another training has taken {display_path(self.root)} over, as this one gave no sign of life: {who}",
            "let that one go on, or use another --root-dir; this one has changed nothing of it",
        )
