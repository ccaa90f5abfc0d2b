"""The artifact root of a run on KFP: what the server gets, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec
from pipelines.submit.artifacts.root import artifact_root_of, check_artifact_root, with_artifact_root
from pipelines.submit.overrides import override_for_kfp
from pipelines.submit.overrides_document import read_overrides
from tests.pipelines.submit.conftest import ROOT, Mlgo
from tests.servers.s3_server import s3_server
from tests.support.buckets import use_s3

OWN = "s3://mlpipeline/mlgo"
STATE = f"{OWN}/retrain.json"
RAY = (
    *("--param", "workers=rayjob:2", "--service-account", "mlgo-steps"),
    *("--param", "ray_cluster_options=s3_credentials_secret=mlgo-s3"),
)


@pytest.fixture
def storage(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The object storage of KFP, as the machine that submits reaches it."""
    with s3_server("mlpipeline") as url:
        use_s3(url, monkeypatch)
        yield


@pytest.mark.parametrize("name", COMPILED_PIPELINES)
def test_each_step_that_has_artifacts_gets_the_root(name: str) -> None:
    spec = load_spec(COMPILED_PIPELINES[name])
    changed = with_artifact_root(spec, OWN)
    assert artifact_root_of(spec) == "" and artifact_root_of(changed) == OWN
    for label, executor in changed["deploymentSpec"]["executors"].items():
        before = spec["deploymentSpec"]["executors"][label]["container"]
        ours = before["command"] == ["python", "-m", "components.platform.launcher"]
        assert executor["container"]["args"] == [*(("--artifact-root", OWN) if ours else ()), *before["args"]]
        made = [c for c in spec["components"].values() if c.get("executorLabel") == label and "outputDefinitions" in c]
        assert ours or not made or name not in ("training", "sdk"), "each step with artifacts has the launcher"


def test_pipeline_without_steps_of_this_project_is_refused() -> None:
    spec = load_spec(COMPILED)
    for executor in spec["deploymentSpec"]["executors"].values():
        executor["container"]["command"] = ["sh"]
    with pytest.raises(UserError, match="no step of the pipeline reads and writes artifacts itself"):
        with_artifact_root(spec, OWN)


@pytest.mark.parametrize("spec", [{}, {"deploymentSpec": {"executors": {"a": None}}}, {"deploymentSpec": 3}])
def test_other_documents_have_no_root(spec: Any) -> None:
    assert artifact_root_of(spec) == ""


@pytest.mark.parametrize(
    "root", ["minio://b/p", "/runs", "kfp-local://minio/b", "s3://bucket", "s3://bucket/p?region=r", "http://x/y"]
)
def test_root_that_steps_cannot_use_is_refused(root: str) -> None:
    with pytest.raises(UserError) as raised:
        check_artifact_root(root)
    assert root in raised.value.problem and "BUCKET/PATH" in raised.value.remedy


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--host", "http://x", "--artifact-root", "minio://b/p"), "--artifact-root minio://b/p is no folder"),
        (("--vertex", "p/r", "--pipeline-root", "gs://b/r", "--artifact-root", OWN), "steps on Vertex AI read"),
    ],
)
def test_submission_with_another_root_is_refused(submit: Mlgo, arguments: tuple[str, ...], named: str) -> None:
    done = submit("--param", "recipe=demo", *arguments)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("root", [(), ("--pipeline-root", "minio://mlpipeline/v2/artifacts")])
def test_retraining_on_a_ray_cluster_is_submitted_without_google_cloud(
    storage: None, submit: Mlgo, host: str, images: Path, last_request: Any, root: tuple[str, ...]
) -> None:
    document = json.loads(images.read_text())
    images.write_text(
        json.dumps({**document, "cluster": {**document["training"], "reference": f"r/c@sha256:{'3' * 64}"}})
    )
    options = ("--host", host, *root, "--param", "recipe=demo", *RAY, "--param", f"retrain_state={STATE}")
    overrides = ("--overrides", ROOT / "docs" / "examples" / "kfp-seaweedfs.yaml")
    done = submit(*options, *overrides, "--artifact-root", OWN)
    assert done.returncode == 0 and "starts again from the beginning" not in done.stdout, done.stderr
    sent = last_request("runs")["body"]["pipeline_spec"]
    assert artifact_root_of(sent["pipeline_spec"]) == OWN
    ppo = sent["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-ppo"]
    assert [entry["secretName"] for entry in ppo["secretAsEnv"]] == ["mlpipeline-minio-artifact"]
    refused = submit(*options, *overrides, *(root or ("--pipeline-root", "s3://bucket/kfp")))
    assert refused.returncode == 1 and "--artifact-root s3://BUCKET/PATH" in refused.stderr, refused.stderr


def test_overrides_for_stock_kfp_have_what_boto3_reads() -> None:
    overrides = read_overrides(ROOT / "docs" / "examples" / "kfp-seaweedfs.yaml")
    spec, pods = override_for_kfp(load_spec(COMPILED), overrides)
    for label, executor in spec["deploymentSpec"]["executors"].items():
        variables = {entry["name"] for entry in executor["container"].get("env", ())}
        for entry in pods[label]["secretAsEnv"]:
            variables |= {key["envVar"] for key in entry["keyToEnv"]}
        assert variables >= {"AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, label


def test_stored_pipeline_keeps_its_root(storage: None, mlgo: Mlgo, images: Path, host: str, last_request: Any) -> None:
    for name, more in (("with", ("--artifact-root", OWN)), ("without", ())):
        done = mlgo("upload", "--host", host, "--name", name, "--version-name", "1", "--images", images, *more)
        assert done.returncode == 0, done.stderr
    command = ("submit", "--host", host, "--param", "recipe=demo", "--param", f"retrain_state={STATE}")
    done = mlgo(*command, "--stored-pipeline", "with", "--artifact-root", f"{OWN}/")
    assert done.returncode == 0 and re.search(r"/#/runs/details/run-\d+", done.stdout), done.stderr
    started = last_request("runs")
    for name, root, stored in (("with", "s3://other/mlgo", OWN), ("without", OWN, "no --artifact-root")):
        done = mlgo(*command, "--stored-pipeline", name, "--artifact-root", root)
        assert done.returncode == 1 and f"the newest version of the pipeline {name} was stored with" in done.stderr
        assert stored in done.stderr and f"mlgo pipeline upload --artifact-root {root}" in done.stderr
    assert last_request("runs") == started, "nothing else was started"


def test_curve_of_a_root_in_cloud_storage_is_shown(mlgo: Mlgo, submit: Mlgo, host: str) -> None:
    gcs = "gs://bucket/own"
    done = submit("--host", host, "--param", "recipe=demo", "--artifact-root", gcs, "--wait")
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"tensorboard --logdir (\S+)", done.stdout)
    assert shown.startswith(f"{gcs}/mlgo-training/run-") and shown.endswith("/ppo")


def test_placeholders_after_the_root_are_still_filled() -> None:
    args = with_artifact_root(load_spec(COMPILED), OWN)["deploymentSpec"]["executors"]["exec-ppo"]["container"]["args"]
    assert ("--artifact-root", OWN) in itertools.pairwise(args) and args[2:4] == ["--executor-input", "{{$}}"]
