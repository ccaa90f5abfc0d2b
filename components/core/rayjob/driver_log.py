"""What the driver of a RayJob prints, from the log of the pod that follows it."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from components.core.console import UserError
from components.core.rayjob.kubernetes import ApiServer

TAIL = 20
_FIRST = 1000  # lines; a step that comes back prints no more than these of what it has missed
_STAMP = re.compile(r"(\S+?)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")


class DriverLog:
    """Reads on from where it was. tail: the last TAIL lines that were read.

    A log that cannot be read is no error: the job goes on without it. Nor is it waited for: while the node of its pod
    does not answer, the API server says 500, and the job's state can be asked for all the same.
    """

    def __init__(self, server: ApiServer, namespace: str, job: str) -> None:
        self._server, self._pods = server, f"/api/v1/namespaces/{namespace}/pods"
        self._job, self._pod, self._read_to = job, "", ""
        self.tail: deque[str] = deque(maxlen=TAIL)

    def news(self) -> list[str]:
        """The lines since the last time; the first time, the last thousand."""
        try:
            return self._news()
        except UserError:
            return []

    def _news(self) -> list[str]:
        pod = self._newest_pod()
        if pod != self._pod:
            self._pod, self._read_to = pod, ""
        if not pod:
            return []
        query: dict[str, Any] = {"timestamps": "true"}
        if match := _STAMP.fullmatch(self._read_to):
            query["sinceTime"] = match[1] + match[2]  # whole seconds are all that Kubernetes keeps of it
        else:
            query["tailLines"] = str(_FIRST)
        answer = self._server.ask("GET", f"{self._pods}/{pod}/log", query=query, patience_s=0)
        if answer.status_code != 200:
            return []  # its container has not started
        answer.encoding = "utf-8"
        lines = []
        stamped = answer.text.removesuffix("\n").split("\n")  # what str.splitlines ends a line at may be within one
        for line in stamped:
            stamp, _space, text = line.partition(" ")
            if stamp > self._read_to:
                lines.append(text)
        if lines:
            self._read_to = stamped[-1].partition(" ")[0]
        self.tail.extend(lines)
        return lines

    def _newest_pod(self) -> str:
        # Kubernetes names the Job's pods by this label; KubeRay names the Job as the RayJob.
        query = {"labelSelector": f"batch.kubernetes.io/job-name={self._job}"}
        answer = self._server.ask("GET", self._pods, query=query, patience_s=0)
        found = answer.json().get("items", []) if answer.status_code == 200 else []
        pods = sorted((pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]) for pod in found)
        return pods[-1][1] if pods else ""
