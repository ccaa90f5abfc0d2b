"""The lease that a pipeline's step renews for the training of its RayJob."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from components.platform.rayjob import step_lease
from components.platform.rayjob.step_lease import StepLease
from components.platform.storage.shared_state.versioned_json import read_versioned
from components.platform.storage.uri import ObjectUri

POLL_S, PATIENCE_S = 0.1, 1.5


@contextmanager
def trainer(uri: ObjectUri) -> Iterator[threading.Event]:
    """Watch the lease as a trainer does; the event is set when the trainer ends itself."""
    ended = threading.Event()
    thread = threading.Thread(
        target=step_lease._watch, args=(str(uri), POLL_S, PATIENCE_S, ended.set), daemon=True, name="trainer"
    )
    thread.start()
    yield ended
    thread.join(PATIENCE_S + 10)
    assert not thread.is_alive()


def test_training_goes_on_while_its_step_renews_and_ends_later(gs_uri: ObjectUri) -> None:
    lease = StepLease(gs_uri / "policy.step", renewal_s=0.3)
    lease.renew()
    with trainer(gs_uri / "policy.step") as ended:
        until_s = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < until_s:
            lease.renew()
            assert not ended.wait(0.1)
        assert ended.wait(PATIENCE_S + 5)
    with trainer(gs_uri / "policy.step") as ended:
        assert ended.wait(5), "one that the RayJob starts again ends at once"
    before = read_versioned(f"{gs_uri}/policy.step").number
    StepLease(gs_uri / "policy.step").renew()
    with trainer(gs_uri / "policy.step") as ended:
        assert not ended.wait(PATIENCE_S / 2), "a later step has another trainer"
    assert read_versioned(f"{gs_uri}/policy.step").number >= before + 1


def test_lease_is_renewed_once_in_a_while(gs_uri: ObjectUri) -> None:
    lease = StepLease(gs_uri / "policy.step", renewal_s=1000)
    lease.renew()
    lease.renew()
    assert read_versioned(f"{gs_uri}/policy.step").number == 1
