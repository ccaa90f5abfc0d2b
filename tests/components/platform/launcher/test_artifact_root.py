"""Steps that read and write below an artifact root, under a launcher that copies as KFP's does, on an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from components.platform.storage import require_artifact
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, parse_location
from tests.servers.kfp_launcher import KfpLauncher
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.support import bitcode as whole
from tests.support.buckets import use_s3

SALTS = {"first": "0b9d3c1e-2f60-4d0e-8f7a-6f1f3a2b4c5d", "second": "5a0e7d9c-6c1b-4d59-8b7e-2f9f0d1c3b4a"}
OWN = "s3://mlpipeline/mlgo"
MODULES = 70
"""More than 64 files, so that the corpus is packed."""


@pytest.fixture
def url(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server("mlpipeline") as url:  # whose objects stay for the next test: moto has one memory
        use_s3(url, monkeypatch)
        yield url


@pytest.fixture
def bitcode(tmp_path: Path) -> Path:
    (tmp_path / "bitcode").mkdir()
    for number in range(MODULES):
        (tmp_path / "bitcode" / f"m{number}.bc").write_bytes(whole.bitcode(str(number).encode()))
    return tmp_path / "bitcode"


class Server:
    """KFP's driver and launcher, which run tasks one after the other."""

    def __init__(self, url: str, directory: Path, root: str, secret: Mapping[str, str]) -> None:
        self.root, self._files = root, directory / "files"
        self.run_folder = f"mlgo-training/{uuid4()}"
        self.launcher = KfpLauncher(url, directory / "pods", root, {"AWS_ENDPOINT_URL_S3": url, **secret})

    def run(self, task: str, inputs: tuple[str, ...], *arguments: object, own: str = OWN) -> str:
        """Run the step `corpus` as `task`, whose output has the task's name; return its standard error.

        Args:
            inputs: names of artifacts that earlier tasks wrote; {NAME} in an argument is its URI.
        """
        uris = {name: self.launcher.recorded[name]["uri"] for name in inputs}
        folder = f"{self.root}/{self.run_folder}/{task}/{SALTS[task]}"
        made = {name: f"{folder}/{name}" for name in (task, "page")}
        document: dict[str, Any] = {
            "inputs": {"artifacts": {name: {"artifacts": [self.launcher.recorded[name]]} for name in inputs}},
            "outputs": {
                "artifacts": {name: {"artifacts": [{"name": name, "uri": uri}]} for name, uri in made.items()},
                "outputFile": str(self._files / task / "output_metadata.json"),
            },
        }
        page = self.launcher.pods / str(self.launcher.started) / made["page"].replace("://", "/")
        words = [str(argument).format(**uris) for argument in arguments]
        command = ["python", "-m", "components.platform.launcher", *(("--artifact-root", own) if own else ())]
        command += ["--executor-input", json.dumps(document), "--task", task, "--copy", f"splits.json={page}"]
        command += ["corpus", *words]
        done = self.launcher.run([*command, "--output", made[task]])
        return done.stderr if done.returncode else ""


def objects(url: str) -> set[str]:
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    return {item["Key"] for item in client.list_objects_v2(Bucket="mlpipeline").get("Contents", [])}


@pytest.mark.parametrize("root", ["minio://mlpipeline/v2/artifacts", "s3://mlpipeline/v2/artifacts"])
def test_steps_exchange_artifacts_that_kfp_does_not_copy(root: str, url: str, bitcode: Path, tmp_path: Path) -> None:
    server = Server(url, tmp_path, root, CREDENTIALS)
    launcher, run = server.launcher, server.run_folder
    assert not server.run("first", (), "make", "--input", bitcode, "--default-args=-cc1")
    page = f"v2/artifacts/{run}/first/{SALTS['first']}/page"
    assert launcher.uploaded == [page], "KFP copies what its interface shows, and nothing else"
    first = launcher.recorded["first"]
    prefix = f"mlgo/{run}/first/{SALTS['first']}/first"
    assert first["uri"] == f"{root}/{run}/first/{SALTS['first']}/first", "KFP keeps its own URI"
    assert first["metadata"]["location"] == f"s3://mlpipeline/{prefix}" and first["metadata"]["digest"]
    assert "location" not in launcher.recorded["page"]["metadata"]

    assert not server.run("second", ("first",), "import", "--input", "{first}")
    assert launcher.downloaded == [], "the next task's pod gets no copy"
    second = launcher.recorded["second"]["metadata"]
    assert second["cost.read_bytes"] >= first["metadata"]["bytes"] <= first["metadata"]["cost.written_bytes"]
    uri = parse_location(launcher.recorded["second"]["metadata"]["location"])
    assert isinstance(uri, ObjectUri)
    files = {entry.name for entry in require_artifact(fetch(uri), "corpus", verify_content=True).files}
    assert {f"m{number}.bc" for number in range(MODULES)} <= files
    other = page.replace("first", "second").replace(SALTS["first"], SALTS["second"])
    assert {key for key in objects(url) if key.startswith(f"v2/artifacts/{run}")} == {page, other}


def test_pod_without_credentials_is_told_what_is_missing(url: str, bitcode: Path, tmp_path: Path) -> None:
    server = Server(url, tmp_path, "minio://mlpipeline/v2/artifacts", {"AWS_EC2_METADATA_DISABLED": "true"})
    before = objects(url)
    error = server.run("first", (), "make", "--input", bitcode, "--default-args=-cc1")
    assert "credentials" in error and "remedy: " in error and "Traceback" not in error, error
    assert objects(url) == before, "nothing is half written"


def test_result_of_a_run_without_the_root_is_read_where_kfp_put_it(url: str, bitcode: Path, tmp_path: Path) -> None:
    server = Server(url, tmp_path, "minio://mlpipeline/v2/artifacts", CREDENTIALS)
    assert not server.run("first", (), "make", "--input", bitcode, "--default-args=-cc1", own="")
    assert "location" not in server.launcher.recorded["first"]["metadata"] and len(server.launcher.uploaded) > 1
    assert not server.run("second", ("first",), "import", "--input", "{first}")
    first, second = (server.launcher.recorded[name]["metadata"] for name in ("first", "second"))
    assert server.launcher.downloaded and second["location"].startswith(OWN)
    assert second["cost.read_bytes"] >= first["bytes"] <= first["cost.written_bytes"], "KFP's copies count"
    assert set(json.loads(second["costs"])) == {"first", "second"}
