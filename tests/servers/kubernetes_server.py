"""A stand-in for the routes of a Kubernetes API server that running a RayJob uses, over HTTPS, for one namespace.

It proves the requests, not KubeRay: they carry the service account's token, a RayJob that is created must be valid by
KubeRay's CRD and is created once, a deletion names the object that it means. What KubeRay would do is a script: a
RayJob goes on by one state, and its driver prints a line, each time somebody looks at it.
"""

from __future__ import annotations

import copy
import json
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.http_server import JsonHandler, serving
from tests.support.crd import SCHEMAS, Invalid, check

NAMESPACE = "mlgo"
GROUP = "/apis/ray.io/v1"
RAYJOBS = f"{GROUP}/namespaces/{NAMESPACE}/rayjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
State = tuple[str, str]
"""jobDeploymentStatus and jobStatus."""
SUCCEEDS: tuple[State, ...] = (
    ("", ""),
    ("Initializing", ""),
    ("Running", "PENDING"),
    ("Running", "RUNNING"),
    ("Running", "RUNNING"),
    ("Complete", "SUCCEEDED"),
)
FAILS: tuple[State, ...] = (("Initializing", ""), ("Running", "RUNNING"), ("Failed", "FAILED"))


class Cluster:
    """State of the server.

    Attributes:
        scripts: states of the first RayJob, the second, ...; the last script applies to all further RayJobs.
        tokens: the accepted token, changed as kubelet changes it.
        asked: (method, path, query, body) of every request.
        denied: methods that this token may not use.
        silent: number of the next requests, of `silent_method` or any, that are carried out but not answered.
        busy: number of the next requests that are answered by 503.
        gone_after: number of status requests until a deleted RayJob has gone.
        cluster_pods: the pods of each RayJob's cluster.
        has_kuberay: whether KubeRay's operator is installed.
    """

    def __init__(self, scripts: Sequence[Sequence[State]], schemas: Path = SCHEMAS) -> None:
        self.scripts, self.schemas = scripts, schemas
        self.token = "first"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created = 0
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.denied: set[str] = set()
        self.silent, self.silent_method, self.busy, self.gone_after = 0, "", 0, 2
        self.holds = threading.Event()
        self.holds.set()
        self.log: list[str] = []
        self._submitter, self._owner, self._minute = "x7k2p", "first", 0
        self.cluster_pods: list[dict[str, Any]] = []
        self.has_kuberay = True
        self.lock = threading.Lock()
        self._version = 100

    def replace_submitter(self, owner: str) -> None:
        """Replace the pod that follows the job's log by one that begins with the whole log, in a later minute.

        Args:
            owner: UID of its Job: "first" if that stays.
        """
        self._submitter, self._owner, self._minute = f"9zrw{len(self.log)}", owner, self._minute + 3
        greeting = f"2026-01-01 00:02:00,{len(self.log):03}\tINFO cli.py:42 -- Job submission server address"
        lines = [greeting, *(content for line in self.log if "address" not in (content := line.partition(" ")[2]))]
        self.log[:] = [
            f"2026-01-01T00:{self._minute - 1:02}:00.{number:09}Z {line}" for number, line in enumerate(lines)
        ]

    def respond(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        self.asked.append((method, path, query, body))
        if method in self.denied:
            return status(403, "Forbidden", f'User "mlgo-steps" cannot {method.lower()} resource')
        if path.startswith(GROUP) and not self.has_kuberay:
            return status(404, "NotFound", "the server could not find the requested resource")
        if path == f"{GROUP}/" or path == GROUP:
            entry = {
                "name": "rayjobs",
                "singularName": "rayjob",
                "namespaced": True,
                "kind": "RayJob",
                "verbs": ["get"],
            }
            return 200, {"kind": "APIResourceList", "groupVersion": "ray.io/v1", "resources": [entry]}
        if path == RAYJOBS and method == "POST":
            return self._create(query, body)
        if path.startswith(f"{RAYJOBS}/") and method in ("GET", "DELETE"):
            name = path.removeprefix(f"{RAYJOBS}/")
            if name not in self.jobs:
                return status(404, "NotFound", f'rayjobs.ray.io "{name}" not found')
            return self._look(name) if method == "GET" else self._delete(name, body)
        if path == PODS and method == "GET":
            label, _equals, name = query.get("labelSelector", "").partition("=")
            if label == "ray.io/cluster":
                return 200, {"kind": "PodList", "items": self.cluster_pods if name.endswith("-raycluster") else []}
            there = label == "batch.kubernetes.io/job-name" and name in self.jobs and self.log
            metadata: dict[str, Any] = {
                "name": f"{name}-{self._submitter}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            metadata["labels"] = {"batch.kubernetes.io/controller-uid": self._owner}
            return 200, {"kind": "PodList", "items": [{"metadata": metadata}] if there else []}
        if (
            path.startswith(f"{PODS}/")
            and path.endswith(f"-{self._submitter}/log")
            and query.get("timestamps", "").lower() == "true"
        ):
            since_s = time.time() - float(query.get("sinceSeconds", "inf"))
            lines = [line for line in self.log if datetime.fromisoformat(line.split()[0]).timestamp() >= since_s]
            return 200, "".join(f"{line}\n" for line in lines[-int(query.get("tailLines", len(lines) or 1)) :])
        return status(404, "NotFound", "the server could not find the requested resource")

    def _create(self, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if query.get("fieldValidation") != "Strict":
            return status(400, "BadRequest", "ask for strict validation: this server drops no field in silence")
        try:
            # Without the CRDs everything is taken: the tests that need their judgement are skipped then.
            job = check(body, self.schemas) if self.schemas.is_dir() else copy.deepcopy(body)
        except Invalid as fault:
            return status(422, "Invalid", f"RayJob is invalid: {fault}")
        name = job["metadata"]["name"]
        if job["metadata"].get("namespace") != NAMESPACE:
            return status(400, "BadRequest", "the namespace of the provided object does not match the request's")
        if name in self.jobs:
            return status(409, "AlreadyExists", f'rayjobs.ray.io "{name}" already exists')
        script = self.scripts[min(self.created, len(self.scripts) - 1)]
        job["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": self._next_version()}
        self.jobs[name] = {"job": job, "script": script, "looks": 0, "left": 0}
        self.created += 1
        return 201, job

    def _look(self, name: str) -> tuple[int, Any]:
        entry = self.jobs[name]
        job = entry["job"]
        if "deletionTimestamp" in job["metadata"]:
            entry["left"] -= 1
            if entry["left"] <= 0:
                del self.jobs[name]
            return 200, job
        if entry["looks"] == 0 or self.holds.is_set():
            deployment, state = entry["script"][min(entry["looks"], len(entry["script"]) - 1)]
            entry["looks"] += 1
            job["metadata"]["resourceVersion"] = self._next_version()
            if deployment:
                job["status"] = {"jobDeploymentStatus": deployment, **({"jobStatus": state} if state else {})}
                job["status"]["rayClusterName"] = f"{name}-raycluster"
            if state == "RUNNING":
                done = len(self.log)
                self.log.append(f"2026-01-01T00:{self._minute:02}:{done // 3:02}.{done:09}Z iteration {done}")
            if deployment == "Failed":
                job["status"] |= {"reason": "AppFailed", "message": "Job entrypoint command failed with exit code 1"}
        return 200, job

    def _delete(self, name: str, body: Any) -> tuple[int, Any]:
        metadata = self.jobs[name]["job"]["metadata"]
        preconditions = (body or {}).get("preconditions", {})
        if any(metadata[key] != value for key, value in preconditions.items()):
            return status(409, "Conflict", "the object has been modified")
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.jobs[name]["left"] = self.gone_after
        return 200, self.jobs[name]["job"]

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


class Handler(JsonHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer: two would wait for each other
    cluster: Cluster

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = self.read_json()
        cluster = self.cluster
        with cluster.lock:
            scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
            if scheme.lower() != "bearer" or token != cluster.token:  # RFC 7235: the scheme's case does not matter
                code, document = status(401, "Unauthorized", "Unauthorized")
            elif cluster.busy > 0:
                cluster.busy -= 1
                code, document = status(503, "ServiceUnavailable", "etcd leader changed")
            else:
                code, document = cluster.respond(self.command, parts.path, query, body)
            if cluster.silent > 0 and self.command == (cluster.silent_method or self.command):
                cluster.silent -= 1
                self.close_connection = True
                return
            content = (document if isinstance(document, str) else json.dumps(document)).encode()
        self.send(content, "text/plain" if isinstance(document, str) else "application/json", code)

    do_POST = do_DELETE = do_GET


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """(certificate, key) of a server at 127.0.0.1; the certificate is its own authority."""
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=kubernetes",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@contextmanager
def kubernetes_server(cluster: Cluster, certificate: Path, key: Path) -> Iterator[int]:
    """Serves `cluster` while the block runs; yields the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"cluster": cluster}))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake in the connection's own thread, not where the next connection is waited for.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with serving(server):
        yield server.server_port
