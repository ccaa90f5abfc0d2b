"""Follows the output of a RayJob's driver, from the log of the pod that submits it."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from datetime import datetime
from typing import Any

from kubernetes.client import ApiException

from components.platform.errors import UserError
from components.platform.rayjob.kubernetes import ApiServer

TAIL = 20
_COLOR = re.compile("\x1b\\[[0-9;]*m")
"""What colors the lines of `ray job submit`."""
_FIRST_LINES = 1000
"""Number of earlier lines that a step prints when it starts to follow a log."""
_CLOCK_SKEW_S = 60
"""Maximum expected difference between the clocks of nodes. Lines that are read twice are recognized."""


class DriverLog:
    """Reads a log from where the last call ended.

    A log that cannot be read is not an error: the job continues without it. Requests are not repeated either, because
    while the pod's node does not answer, the API server still knows the state of the job.

    Attributes:
        tail: the last TAIL lines that were read.
    """

    def __init__(self, server: ApiServer, namespace: str, job: str) -> None:
        self._server, self._namespace, self._job = server, namespace, job
        self._pod, self._last_stamp = "", ""
        self.tail: deque[str] = deque(maxlen=TAIL)

    def new_lines(self) -> list[str]:
        """Return the lines since the last call; at the first call, the last thousand."""
        try:
            return self._new_lines()
        except (UserError, ApiException, ValueError):
            return []

    def _new_lines(self) -> list[str]:
        pod = self._newest_pod()
        if pod != self._pod:
            self._pod, self._last_stamp = pod, ""
        if not pod:
            return []
        since: dict[str, Any] = {"tail_lines": _FIRST_LINES}
        if self._last_stamp:
            since = {"since_seconds": _age_s(self._last_stamp) + _CLOCK_SKEW_S}
        # Without _preload_content=False the client would return the text of Python's bytes object.
        response = self._server.call(
            self._server.pods.read_namespaced_pod_log,
            pod,
            self._namespace,
            timestamps=True,
            _preload_content=False,
            patience_s=0,
            **since,
        )
        text = response.data.decode("utf-8", "replace")
        lines = []
        stamped = text.removesuffix("\n").split("\n")  # str.splitlines also splits at characters within a line
        for line in stamped:
            stamp, _space, content = line.partition(" ")
            if stamp > self._last_stamp:
                lines.append(_COLOR.sub("", content))
        if lines:
            self._last_stamp = stamped[-1].partition(" ")[0]
        self.tail.extend(lines)
        return lines

    def _newest_pod(self) -> str:
        # Kubernetes gives this label to the pods of a Job; KubeRay names the Job like the RayJob.
        label = f"batch.kubernetes.io/job-name={self._job}"
        pods = self._server.call(
            self._server.pods.list_namespaced_pod, self._namespace, label_selector=label, patience_s=0
        ).items
        created_and_names = sorted((str(pod.metadata.creation_timestamp or ""), pod.metadata.name) for pod in pods)
        return created_and_names[-1][1] if created_and_names else ""


def _age_s(stamp: str) -> int:
    """Return the age of an RFC 3339 time in whole seconds."""
    return max(0, math.ceil(time.time() - datetime.fromisoformat(stamp).timestamp()))
