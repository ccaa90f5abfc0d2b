"""A lease that a pipeline's step renews while it follows a RayJob, so that the RayJob ends if the run was ended.

A canceled run kills the step, which cannot tell that from a lost node, and leaves the RayJob to its next attempt. The
trainer has no right to ask Kubernetes who waits for it. So the step writes an object next to the policy every minute,
and the trainer ends itself when nobody has for half an hour. A step that comes later finds a failed RayJob, and starts
one that continues from the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from components.platform.console import say, say_error
from components.platform.errors import UserError
from components.platform.storage.shared_state.versioned_json import (
    Conflict,
    VersionedJson,
    read_versioned,
    write_versioned,
)
from components.platform.storage.uri import ObjectUri

LEASE_VARIABLE = "MLGO_STEP_LEASE"
"""Environment variable by which a RayJob's trainer gets the URI of the lease."""
RUN_VARIABLE = "MLGO_RUN_ID"
"""Environment variable by which a step gets the ID of its run (pipelines/submit/kfp_package.py)."""
RENEWAL_S = 60.0
PATIENCE_S = 1800.0
"""How long the trainer waits for a renewal: longer than a step repeats its requests, and than a node takes to come."""
_STATE, _FOLLOWS, _GAVE_UP = "step", "follows", "gave up"


class StepLease:
    """The step's side. Storage that fails does not end the step: the next renewal may succeed."""

    def __init__(self, uri: ObjectUri, renewal_s: float = RENEWAL_S) -> None:
        self._uri, self._renewal_s = uri, renewal_s
        self._renewed_s = -renewal_s

    def renew(self) -> None:
        """Renew the lease, unless that was done within the last minute."""
        if time.monotonic() - self._renewed_s < self._renewal_s:
            return
        location = str(self._uri)
        try:
            write_versioned(location, {_STATE: _FOLLOWS}, read_versioned(location))
        except UserError as error:
            say(f"the lease of the RayJob is not renewed: {error.problem}")
        self._renewed_s = time.monotonic()


def watch_step_lease() -> threading.Thread | None:
    """In a trainer that has a lease, end the process by SIGTERM when the lease is not renewed; return the thread."""
    lease_uri = os.environ.get(LEASE_VARIABLE)
    if not lease_uri:
        return None
    thread = threading.Thread(target=_watch, args=(lease_uri, RENEWAL_S, PATIENCE_S, _end), daemon=True)
    thread.start()
    return thread


def _watch(location: str, poll_s: float, patience_s: float, end: Callable[[], None]) -> None:
    seen, since_s = VersionedJson(None, ""), time.monotonic()
    while True:
        with suppress(UserError):  # as if it had not changed: storage that stays away ends the training, too
            now = read_versioned(location)
            if (now.content or {}).get(_STATE) == _GAVE_UP:
                break  # by the trainer before this one
            if now.version != seen.version:
                seen, since_s = now, time.monotonic()
        if time.monotonic() - since_s > patience_s:
            try:
                write_versioned(location, {_STATE: _GAVE_UP}, seen)
            except Conflict:
                continue  # renewed just now
            except UserError as error:
                say(f"the lease of the step cannot be written: {error.problem}")
            break
        time.sleep(poll_s)
    say_error(
        f"error: no step of the pipeline has followed this training for {patience_s:.0f} s: its run is canceled or lost"
        "\n  remedy: mlgo pipeline retry RUN continues it from its last checkpoint"
    )
    end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
