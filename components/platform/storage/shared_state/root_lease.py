"""A lease on a root directory: one training or search at a time, and one document about its valid content.

ROOT/latest.json contains both, so that they change together:

    token, host, pid ...    the process that holds the lease
    renewed                 when it was written, by the holder's clock, for people and earlier versions of this program
    released                whether its work ended in order
    other fields            the holder's own: for a training the names of its valid checkpoints, newest last

The holder writes it every HEARTBEAT_S. A writer replaces the document only if it still has the version that was read
(versioned_json.py). A holder that was assumed dead and continues notices this at its next write of the document: it
cannot list another checkpoint, and because names of checkpoints are unique, it has not overwritten anything. What it
deletes it has listed before a write that succeeded, so that nothing of its successor is among it.

On one machine, a lock on ROOT/lock, which the system frees when the process dies, decides at once. If several
machines share ROOT through a network file system without working locks, the heartbeat distinguishes their processes,
but the document is then not replaced safely: use gs:// or s3:// instead.
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

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.directory import empty
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.replaceable import require_apart
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.shared_state.versioned_json import (
    Conflict,
    VersionedJson,
    read_versioned,
    silent_s,
    write_versioned,
)
from components.platform.storage.uri import display_path, uri_of

LATEST = "latest.json"
_LOCK = "lock"
_OF_FILE_SYSTEM = "lost+found"
"""Directory at the root of an ext4 volume, such as a mounted PersistentVolume."""
HEARTBEAT_S = 10.0
STALE_S = 60.0
"""A holder on another machine is assumed dead after this time without a heartbeat."""
SILENT_S = 600.0
"""A holder is not waited for if it is silent for this time by the clock of the store."""
_POLL_S = 1.0
_VERSION = 1


class LeaseLost(UserError):
    """Another process has taken over the root directory."""


class RootLease:
    """Holds a root directory while the block runs.

    If the block fails in a directory that was new and has no results yet, the directory is emptied: a refused input
    leaves nothing.

    Attributes:
        before: content of the document when the lease was taken.

    Args:
        root: a directory, or the mirror of a URI.
        work: what runs there, for messages: "training".
        me: identity of the holder, for tests.
        results: pattern of the files below `root` that are worth keeping; "" if `root` is never emptied.
    """

    def __init__(
        self,
        root: Path,
        work: str,
        me: ProcessIdentity | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        stale_s: float = STALE_S,
        results: str = "",
    ) -> None:
        self.root, self._work, self._results = root, work, results
        self._new = False
        self.before: Mapping[str, Any] = {}
        self._latest = str((uri_of(root) or root) / LATEST)  # type: ignore[operator]
        self._me = me or ProcessIdentity.here()
        self._heartbeat_s, self._stale_s = heartbeat_s, stale_s
        self._token = token_hex(8)
        self._words: set[str] = set()
        """Of writes since the last one that succeeded: those without an answer may be written, or be so later."""
        self._lock = threading.Lock()  # guards _document and _lost, which the heartbeat's thread also uses
        self._document = VersionedJson(None, "")
        self._lost: LeaseLost | None = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._stack = ExitStack()

    @property
    def content(self) -> Mapping[str, Any]:
        """Content of the document; if the lease is lost, of that of its successor."""
        return dict(self._document.content or {})

    def __enter__(self) -> Self:
        """Acquire the lease.

        Raises:
            UserError: another process holds it; the directory has files that are not of such work, or overlaps with an
                artifact; or object storage does not answer.
        """
        if self._results and uri_of(self.root) is None:
            self._require_own_directory()
        with ExitStack() as stack:
            lock = stack.enter_context(open(self.root / _LOCK, "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._in_use(ProcessIdentity.from_json(read_versioned(self._latest).content or {})) from None
            self._acquire()
            self._stack = stack.pop_all()
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        with self._stack:
            if self._lost is None and error is not None and self._new and not self._has_results():
                self._remove()
            elif self._lost is None:
                try:
                    self.update(released=True)
                except UserError as failure:
                    say(
                        f"warning: {display_path(self.root)} is not released, so the next {self._work} will wait: "
                        f"{failure.problem}"
                    )

    def update(self, **fields: Any) -> None:
        """Replace fields of the document, which also verifies that the lease is still held.

        Raises:
            LeaseLost: it is not held any more.
            UserError: object storage refuses or does not answer; the document may have been written nevertheless.
        """
        with self._lock:
            while True:
                if self._lost is not None:
                    raise self._lost
                before = self._document.content or {}
                try:
                    self._write({**before, **fields}, self._document)
                    return
                except Conflict:
                    document = read_versioned(self._latest)
                    # Not by the token, which a copy of this machine from a snapshot has, too.
                    self._document = document
                    if document.word not in self._words:
                        self._lost = self._replaced_by(document)
                        raise self._lost from None

    def _has_results(self) -> bool:
        return any(self.root.glob(self._results))

    def _require_own_directory(self) -> None:
        remedy = "use another --root-dir"
        require_apart(self.root, remedy, may_contain_inputs=True)
        present = {path.name for path in self.root.iterdir() if not path.name.startswith(f".{LATEST}.")}
        present -= {_LOCK, _OF_FILE_SYSTEM}
        if MANIFEST in present:
            raise UserError(f"{self.root} is an artifact, not a directory for a {self._work} to work in", remedy)
        if present and LATEST not in present and not self._has_results():
            examples = ", ".join(sorted(present)[:5])
            raise UserError(
                f"{self.root} has files that are not of a {self._work}: {examples}", f"{remedy}, or an empty one"
            )

    def _remove(self) -> None:
        """Remove what this process made in the directory."""
        try:
            if (uri := uri_of(self.root)) is not None:
                store_of(uri).delete(uri / LATEST, self._document.version)
            empty(self.root, keep=(_OF_FILE_SYSTEM,))
        except (UserError, OSError) as failure:
            say(f"warning: {display_path(self.root)} is not removed: {failure}")

    def _write(self, content: dict[str, Any], before: VersionedJson) -> None:
        word = token_hex(8)
        self._words.add(word)
        content = {**content, "renewed": round(time.time(), 3)}
        self._document = write_versioned(self._latest, content, before, word)
        self._words.clear()

    def _acquire(self) -> None:
        while True:
            document = read_versioned(self._latest)
            self._await_end(document)
            fresh = {"version": _VERSION, "token": self._token, **self._me.to_json(), "released": False}
            try:
                self._write({**(document.content or {}), **fresh}, document)
                self.before = document.content or {}
                self._new = bool(self._results) and document.content is None and not self._has_results()
                return
            except Conflict:
                continue  # another process wrote it first

    def _await_end(self, document: VersionedJson) -> None:
        """Return when the process that wrote `document` may be replaced. UserError if it is running."""
        content = document.content or {}
        holder = ProcessIdentity.from_json(content)
        if holder is None or content.get("released") or content.get("token") == self._token:
            return
        if uri_of(self.root) is None and holder.boot == self._me.boot:
            return  # it held the lock that we hold now
        running = holder.is_running(self._me)
        if running:
            raise self._in_use(holder)
        if running is False or silent_s(self._latest, document) > SILENT_S:
            return
        say(f"{display_path(self.root)} is held by {holder}: waiting {self._stale_s:.0f} s for a heartbeat")
        until_s = time.monotonic() + self._stale_s
        while time.monotonic() < until_s:
            time.sleep(min(_POLL_S, self._heartbeat_s))
            now = read_versioned(self._latest)
            if now.version != document.version:
                if (now.content or {}).get("released"):
                    return
                raise self._in_use(ProcessIdentity.from_json(now.content or {}))
        say(f"no heartbeat of {holder}: replacing it")

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat_s):
            try:
                self.update()
            except LeaseLost:
                return  # the next write reports it
            except (UserError, OSError) as error:  # may be temporary: a full disk, a missing mount
                say(f"warning: no heartbeat written: {error.problem if isinstance(error, UserError) else error}")

    def _in_use(self, holder: ProcessIdentity | None) -> UserError:
        who = f" ({holder})" if holder else ""
        return UserError(
            f"another {self._work} is running in {display_path(self.root)}{who}",
            "wait until it has ended, or use another --root-dir",
        )

    def _replaced_by(self, document: VersionedJson) -> LeaseLost:
        who = ProcessIdentity.from_json(document.content or {}) or "unknown, the document is missing"
        return LeaseLost(
            f"another {self._work} has taken over {display_path(self.root)}, because this one had no heartbeat: {who}",
            "let that one continue, or use another --root-dir; this one has not changed its files",
        )
