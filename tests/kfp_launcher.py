"""The work of KFP's launcher before and after a container's command (backend/src/v2 of KFP: component/launcher_v2.go).

It downloads the input artifacts of a task to local directories, runs the command, and uploads what the command left in
the local directories of the output artifacts. Written from KFP's source, which is in Go; it has never been compared
with a KFP server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).parents[1]


def local_path(uri: str) -> str:
    """Return what LocalPathForURI returns, for the schemes of S3."""
    scheme, _separator, path = uri.partition("://")
    assert scheme in ("minio", "s3")
    return f"/{scheme}/{path}"


@dataclass
class KfpLauncher:
    """The launcher, with one new pod for each task.

    Attributes:
        url: the S3 server.
        pods: directory for the pods' file systems.
        uploaded: keys of the objects written by the last task.
    """

    url: str
    pods: Path
    uploaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client: Any = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        self._pods = 0

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a task's command, whose placeholders are filled in, one of them with the ExecutorInput."""
        executor_input = json.loads(command[command.index("--executor-input") + 1])
        pod = self.pods / str(self._pods)
        self._pods += 1
        for uri in self._uris(executor_input.get("inputs", {})):
            self._download(uri, pod)
        outputs = list(self._uris(executor_input.get("outputs", {})))
        for uri in outputs:
            self._local(uri, pod).parent.mkdir(parents=True, exist_ok=True)
        # The pod has no credentials for the object storage; only the launcher has.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"ARTIFACT_LOCAL_PATH": str(pod), "MLGO_CACHE_DIR": str(pod / "cache"), "PYTHONPATH": str(ROOT)}
        program = [sys.executable if command[0] == "python" else command[0], *command[1:]]
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600)
        self.uploaded = []
        if done.returncode == 0:
            for uri in outputs:
                if (path := self._local(uri, pod)).exists():
                    self._upload(path, uri)
        return done

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
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        for key in (key for key in keys if key == prefix or key.startswith(f"{prefix}/")):
            path = self._local(uri, pod) / os.path.relpath(key, prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(bucket, key, str(path))

    def _upload(self, path: Path, uri: str) -> None:
        """Upload as UploadBlob: a link to a directory is no directory for it, and cannot be read as a file."""
        bucket, _slash, key = uri.partition("://")[2].partition("/")
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                self._upload(inner, f"{uri}/{inner.name}")
            return
        self._client.upload_file(str(path), bucket, key)
        self.uploaded.append(key)
