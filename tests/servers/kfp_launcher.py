"""The work of KFP's launcher before and after a container's command (backend/src/v2 of KFP: component/launcher_v2.go).

It downloads the input artifacts of a task to local directories, runs the command, merges what the command reported of
its outputs into KFP's description of them, and uploads what the command left in their local directories. What is
recorded of an output is what the driver gives to tasks that read it. Written from KFP's source, which is in Go; it has
never been compared with a KFP server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).parents[2]


def local_path(uri: str) -> str:
    """Return what LocalPathForURI returns, for the schemes of S3."""
    scheme, _separator, path = uri.partition("://")
    assert scheme in ("minio", "s3")
    return f"/{scheme}/{path}"


def _executor_input(command: list[str]) -> dict[str, Any]:
    return dict(json.loads(command[command.index("--executor-input") + 1]))


@dataclass
class KfpLauncher:
    """The launcher, with one new pod for each task.

    Attributes:
        url: the S3 server.
        pods: directory for the pods' file systems.
        root: pipeline root of the run; a task with an output elsewhere fails (KeyFromURI).
        variables: environment of the pods, as --overrides gives it to them: credentials of a Secret, for example.
        downloaded, uploaded: keys of the objects that the launcher copied for the last task.
        started: number of pods so far, which is the name of the next one's directory.
        recorded: outputs of finished tasks by name, as ExecutorInput describes them to tasks that read them.
    """

    url: str
    pods: Path
    root: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    downloaded: list[str] = field(default_factory=list)
    uploaded: list[str] = field(default_factory=list)
    recorded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client: Any = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        self.started = 0

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a task's command, whose placeholders are filled in, one of them with the ExecutorInput."""
        process, pod = self.start(command)
        said = process.communicate(timeout=600)
        if process.returncode == 0:
            self._record(_executor_input(command).get("outputs", {}), pod)
        return subprocess.CompletedProcess(command, process.returncode, *said)

    def start(self, command: list[str]) -> tuple[subprocess.Popen[str], Path]:
        """Start a task's command in a new pod, which may be lost; return the process and the pod's directory."""
        executor_input = _executor_input(command)
        pod = self.pods / str(self.started)
        self.started += 1
        self.downloaded, self.uploaded = [], []
        for uri in self._uris(executor_input.get("inputs", {})):
            self._download(uri, pod)
        for uri in self._uris(executor_input.get("outputs", {})):
            self._local(uri, pod).parent.mkdir(parents=True, exist_ok=True)
        # The pod has no credentials for the object storage but those of `variables`; only the launcher has.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"ARTIFACT_LOCAL_PATH": str(pod), "MLGO_CACHE_DIR": str(pod / "cache"), "PYTHONPATH": str(ROOT)}
        environment |= self.variables
        program = [sys.executable if command[0] == "python" else command[0], *command[1:]]
        pipe = subprocess.PIPE
        return subprocess.Popen(program, text=True, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe), pod

    def _record(self, outputs: dict[str, Any], pod: Path) -> None:
        """Upload and record the outputs of a task, as uploadOutputArtifacts."""
        file = Path(outputs.get("outputFile") or os.devnull)
        reported = json.loads(file.read_text() or "{}").get("artifacts", {}) if file.exists() else {}
        for name, listed in outputs.get("artifacts", {}).items():
            for artifact in listed["artifacts"]:
                (told, *_others) = reported.get(name, {}).get("artifacts") or [{}]
                uri = told.get("uri") or artifact["uri"]
                metadata = {**artifact.get("metadata", {}), **told.get("metadata", {})}
                self.recorded[name] = {"name": str(len(self.recorded) + 1), "uri": uri, "metadata": metadata}
                if uri.partition("://")[0] not in ("minio", "s3"):
                    continue  # no local path: nothing is uploaded
                assert uri.startswith(self.root), f"URI {uri} does not have expected bucket prefix {self.root}"
                if (path := self._local(uri, pod)).exists():
                    self._upload(path, uri)

    def _uris(self, part: dict[str, Any]) -> Iterator[str]:
        for listed in part.get("artifacts", {}).values():
            for artifact in listed["artifacts"]:
                if "://" in artifact["uri"]:
                    yield artifact["uri"]

    def _local(self, uri: str, pod: Path) -> Path:
        return pod / local_path(uri).lstrip("/")

    def _download(self, uri: str, pod: Path) -> None:
        bucket, _slash, prefix = uri.partition("://")[2].partition("/")
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        for key in (key for key in keys if key == prefix or key.startswith(f"{prefix}/")):
            path = self._local(uri, pod) / os.path.relpath(key, prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(bucket, key, str(path))
            self.downloaded.append(key)

    def _upload(self, path: Path, uri: str) -> None:
        """Upload as UploadBlob: a link to a directory is no directory for it, and cannot be read as a file."""
        bucket, _slash, key = uri.partition("://")[2].partition("/")
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                self._upload(inner, f"{uri}/{inner.name}")
            return
        self._client.upload_file(str(path), bucket, key)
        self.uploaded.append(key)
