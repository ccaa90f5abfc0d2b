"""The last step of the pipeline on KFP, under a launcher that copies as KFP's does, with artifacts on an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.platform.storage.object_storage import s3
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.retrain.state import load_state
from tests.pipelines.retrain.test_promote import artifacts
from tests.pipelines.retrain.test_server_run import publish_at
from tests.servers.kfp_launcher import KfpLauncher
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.support.buckets import use_s3

BUCKET = "kfp-retraining"
RUN = "mlgo-training/7e1c0a52-8f0b-4a55-9a0e-3f2c7f1f5d11"
SALT = "0b9d3c1e-2f60-4d0e-8f7a-6f1f3a2b4c5d"
OWN = f"s3://{BUCKET}/mlgo"


@pytest.fixture
def launcher(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KfpLauncher]:
    with s3_server(BUCKET) as url:
        use_s3(url, monkeypatch)
        root = f"minio://{BUCKET}/v2/artifacts"
        yield KfpLauncher(url, tmp_path / "pods", root, {"AWS_ENDPOINT_URL_S3": url, **CREDENTIALS})
        s3._client.cache_clear()


def inputs(launcher: KfpLauncher, local: Path, own: str) -> dict[str, dict[str, Any]]:
    """Publish the artifacts of a run as its steps do; return what KFP records of them."""
    recorded = {}
    for name in artifacts(local, [950, 940, 960, 955, 945, 950, 952, 1048], loadable=True) | {"training": ""}:
        below = f"{RUN}/{name}/{SALT}/{name}"
        uri = f"{launcher.root}/{below}"
        publish_at(f"{own}/{below}" if own else uri.replace("minio://", "s3://"), local / name)
        recorded[name] = {"name": name, "uri": uri, "metadata": {"location": f"{own}/{below}"} if own else {}}
    return recorded


def promote(launcher: KfpLauncher, tmp_path: Path, own: str, state: str) -> Any:
    read = inputs(launcher, tmp_path / "run", own)
    output = f"{launcher.root}/{RUN}/promote/{SALT}/promotion"
    document = {
        "inputs": {"artifacts": {name: {"artifacts": [artifact]} for name, artifact in read.items()}},
        "outputs": {
            "artifacts": {"promotion": {"artifacts": [{"name": "promotion", "uri": output}]}},
            "outputFile": str(tmp_path / "output_metadata.json"),
        },
    }
    command = ["python", "-m", "components.platform.launcher", *(["--artifact-root", own] if own else [])]
    command += ["--executor-input", json.dumps(document), "pipelines.retrain", "--state", state, "--by", "me"]
    for option, name in (("policy", "policy"), ("evaluation", "evaluation"), ("corpus", "corpus")):
        command += [f"--{option}", read[name]["uri"]]
    return launcher.run([*command, "--toolchain", read["training"]["uri"], "--run-id", "7", "--output", output])


def test_policy_below_the_artifact_root_is_deployed(launcher: KfpLauncher, tmp_path: Path) -> None:
    state = f"{OWN}/promoted.json"
    done = promote(launcher, tmp_path, OWN, state)
    assert done.returncode == 0 and "promoted: against LLVM's heuristic" in done.stdout, done.stdout + done.stderr
    assert launcher.downloaded == launcher.uploaded == []
    deployed = load_state(state).deployed
    assert deployed is not None and deployed.policy == f"{OWN}/{RUN}/policy/{SALT}/policy", (
        "where the next run reads it"
    )
    location = parse_location(launcher.recorded["promotion"]["metadata"]["location"])
    assert isinstance(location, ObjectUri) and str(location).startswith(OWN)


def test_policy_that_kfp_copies_is_not_deployed(launcher: KfpLauncher, tmp_path: Path) -> None:
    """A run that was started in KFP's interface is not checked before it starts."""
    state = f"{OWN}/refused.json"
    done = promote(launcher, tmp_path, "", state)
    assert done.returncode == 1 and "in this pod, from which Kubeflow Pipelines copies it" in done.stderr, done.stderr
    assert "--artifact-root" in done.stderr and launcher.downloaded
    assert load_state(state).deployed is None
