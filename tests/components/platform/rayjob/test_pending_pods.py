"""Tests that the reason why a pod is pending is read from what a Kubernetes API answers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from components.platform.rayjob.pending_pods import pending_reason

UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Running"}, ""),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}, ""),
        ({"phase": "Pending", "conditions": [{**UNSCHEDULED, "reason": "Unschedulable"}]}, "Unschedulable: 0/1 nodes"),
        ({"phase": "Pending", "conditions": [UNSCHEDULED]}, "0/1 nodes"),
        ({"phase": "Pending", "conditions": [{**UNSCHEDULED, "message": None}]}, "not scheduled"),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "Bad"}}}]}, "Bad"),
        (["no status"], ""),
        (None, ""),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ],
            },
            "ImagePullBackOff: no such image",
        ),
    ],
)
def test_reason_of_a_pending_pod(status: Any, reason: str) -> None:
    assert pending_reason({"status": status}) == reason


def test_reason_needs_no_client_of_kubernetes() -> None:
    """The image with the commands that follow runs has none."""
    code = "import components.platform.rayjob.pending_pods, sys; assert 'kubernetes' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
