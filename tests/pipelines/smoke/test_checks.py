"""The checks of the smoke test, each where the thing works and where it does not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER_VARIABLE
from components.platform.rayjob.kubernetes import ApiServer
from components.platform.rayjob.step_lease import RUN_VARIABLE
from components.platform.storage import publish
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri, mirror
from pipelines.smoke import checks
from pipelines.smoke.rayjob import check_ray
from pipelines.smoke.rows import FailedOnPurpose, NotTried, Row, perform
from pipelines.submit.kfp_client import KfpAddress
from tests.servers.http_server import JsonHandler, serving
from tests.servers.kubernetes_server import FAILS, RAYJOBS, SUCCEEDS, Cluster, kubernetes_server, make_certificate
from tests.servers.s3_server import Behaviour, s3_server
from tests.support.buckets import names, put_object, use_s3

IMAGE = "r/cluster@sha256:" + "3" * 64


def test_checks_become_rows() -> None:
    def fails() -> str:
        raise UserError("it is broken", "mend it")

    def not_tried() -> str:
        raise NotTried("there is none")

    def full() -> str:
        raise OSError(28, "No space left on device", "/tmp/x")

    def wrong() -> str:
        raise ValueError("not foreseen")

    rows = perform({"a": lambda: "fine", "b": fails, "c": not_tried, "d": full, "e": wrong})
    assert [(row.what, row.status, row.found) for row in rows] == [
        ("a", "works", "fine"),
        ("b", "fails", "it is broken"),
        ("c", "not tried", "there is none"),
        ("d", "fails", "[Errno 28] No space left on device: '/tmp/x'"),
        ("e", "fails", "ValueError: not foreseen"),
    ]
    assert rows[1].remedy == "mend it" and rows[3].remedy
    assert Row("b", "fails", "it is broken", "mend it").lines("training") == [
        "fails      b (training): it is broken",
        "             remedy: mend it",
    ]


def test_wrong_image_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_IMAGE", "training")
    monkeypatch.setenv("MLGO_GIT_COMMIT", "0123456789abcdef")
    assert checks.check_image("training").startswith("mlgo-training, commit 0123456789ab, Python 3.")
    with pytest.raises(UserError, match="the step for mlgo-toolchain runs in mlgo-training"):
        checks.check_image("toolchain")
    monkeypatch.delenv("MLGO_IMAGE")
    assert checks.check_image("toolchain").startswith("no image of this project")


def test_placeholder_that_a_server_leaves_is_found() -> None:
    assert checks.check_run_id("run-1") == "run-1"
    with pytest.raises(UserError, match="left the placeholder"):
        checks.check_run_id("{{$.pipeline_job_uuid}}")
    with pytest.raises(NotTried):
        checks.check_run_id("")


def test_too_little_shared_memory_is_found(tmp_path: Path) -> None:
    assert "GB free" in checks.check_shared_memory(tmp_path, 1)
    with pytest.raises(UserError) as error:
        checks.check_shared_memory(tmp_path, 1 << 80)
    assert "MB free" in error.value.problem and "shared_memory: 2Gi" in error.value.remedy
    (row,) = perform({"shm": lambda: checks.check_shared_memory(tmp_path / "none")})
    assert row.status == "fails"


def test_root_that_the_step_writes_itself(any_uri: ObjectUri) -> None:
    message = checks.check_root(str(any_uri / "artifact"))
    assert message == f"{any_uri.scheme}://mlgo-test is written under a condition, read and emptied by the step"
    assert names(any_uri) == [], "the probe is removed"


@pytest.mark.parametrize("bucket", ["forbidden", "read-only"])
@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_root_that_the_step_may_not_write(bucket: str, scheme: str, request: pytest.FixtureRequest) -> None:
    uri: ObjectUri = request.getfixturevalue(f"{scheme}_uri")
    (row,) = perform({"root": lambda: checks.check_root(str(replace(uri, bucket=bucket) / "artifact"))})
    assert row.status == "fails" and bucket in row.found and "--overrides" in row.remedy


def test_root_that_ignores_conditions_of_writes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behaviour = Behaviour(conditions="ignored")
    with s3_server("old", behaviour=behaviour) as url:
        use_s3(url, monkeypatch)
        with pytest.raises(UserError, match="If-Match"):
            checks.check_root("s3://old/run/artifact")


def test_root_in_a_directory(tmp_path: Path) -> None:
    assert f"{tmp_path} is written" in checks.check_root(str(tmp_path / "artifact"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    (row,) = perform({"root": lambda: checks.check_root(str(tmp_path / "file" / "artifact"))})
    assert row.status == "fails" and "Not a directory" in row.found


def test_root_that_kfp_copies_is_not_tried() -> None:
    with pytest.raises(NotTried) as reason:
        checks.check_root("kfp-local://minio/mlpipeline/run/artifact")
    assert "starts again" in reason.value.problem and "gs://BUCKET/PATH" in reason.value.remedy


def test_damaged_artifact_is_found(gs_uri: ObjectUri) -> None:
    uri = gs_uri / "checks"
    with publish(mirror(uri), "smoke test") as directory:
        (directory / "checks.json").write_text('{"step": "toolchain"}')
    assert checks.check_artifact(str(uri)).endswith("1 file, as it was written")
    (data,) = (name for name in names(uri) if not name.endswith("manifest.json"))
    put_object(uri, data, "other content")
    shutil.rmtree(mirror(uri).parent.parent)
    (row,) = perform({"artifact": lambda: checks.check_artifact(str(uri))})
    assert row.status == "fails"
    with pytest.raises(UserError, match="not a finished artifact"):
        checks.check_artifact(str(gs_uri / "missing"))


def test_missing_and_failing_compiler_is_found(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no clang-0"):
        checks.check_clang("clang-0")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'cannot load libLLVM' >&2\nkill -ILL $$\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match=r"broken cannot compile \(signal 4\): cannot load libLLVM"):
        checks.check_clang(str(broken))


@pytest.mark.toolchain
def test_compiler_works() -> None:
    assert "clang version 19" in checks.check_clang()


@pytest.mark.tf
def test_tensorflow_works() -> None:
    assert checks.check_tensorflow().startswith("TensorFlow 2.")


Pod = Callable[..., tuple[Cluster, ApiServer]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def pod(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    """Return a function that starts a cluster whose RayJobs go through the given states."""
    monkeypatch.setenv(CLUSTER_VARIABLE, IMAGE)
    monkeypatch.setenv(RUN_VARIABLE, "run-1")
    with ExitStack() as stack:

        def made(states: tuple[tuple[str, str], ...]) -> tuple[Cluster, ApiServer]:
            cluster = Cluster([states])
            port = stack.enter_context(kubernetes_server(cluster, *certificate))
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
            (tmp_path / "token").write_text("first")
            shutil.copyfile(certificate[0], tmp_path / "ca.crt")
            return cluster, ApiServer(tmp_path, patience_s=5)

        yield made


def test_rayjob_of_one_pod_runs_and_is_removed(pod: Pod) -> None:
    cluster, server = pod(SUCCEEDS)
    cluster.gone_after = 1
    assert "started a head" in check_ray("head_cpus=2", "run-1", server, 0.01)
    ((_method, _path, _query, job),) = [asked for asked in cluster.asked if asked[0] == "POST"]
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["image"] == IMAGE and head["resources"]["limits"]["cpu"] == "2"
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (0, 1)
    assert job["metadata"]["labels"]["pipeline/runid"] == "run-1"
    assert job["spec"]["activeDeadlineSeconds"] <= 900, "the time limit of the step"
    assert cluster.asked[-1][:2] == ("DELETE", f"{RAYJOBS}/{job['metadata']['name']}")


def test_rayjob_that_fails_or_is_forbidden_is_found(pod: Pod) -> None:
    cluster, server = pod(FAILS)
    with pytest.raises(UserError, match=r"RayJob mlgo/smoke-\w+ failed[^$]*the RayJob is deleted again"):
        check_ray("", "run-1", server, 0.01)
    assert cluster.asked[-1][0] == "DELETE", "nobody needs what is left of it"
    cluster, server = pod(SUCCEEDS)
    cluster.denied = {"POST"}
    (row,) = perform({"ray": lambda: check_ray("", "run-1", server, 0.01)})
    assert row.status == "fails" and "403" in row.found and "service account" in row.remedy


def test_rayjob_of_a_canceled_smoke_test_is_removed(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, server = pod(SUCCEEDS)
    cluster.gone_after = 1

    def canceled(_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("components.platform.rayjob.submit.time.sleep", canceled)
    with pytest.raises(KeyboardInterrupt):
        check_ray("", "run-1", server, 0.01)
    assert cluster.created == 1 and cluster.asked[-1][0] == "DELETE"
    assert cluster.asked[-1][3]["propagationPolicy"] == "Foreground", "a second attempt makes one of the same name"


def test_rayjob_is_not_tried_without_what_it_needs(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, server = pod(SUCCEEDS)
    cluster.has_kuberay = False
    with pytest.raises(NotTried, match="KubeRay's operator is not installed"):
        check_ray("", "run-1", server)
    with pytest.raises(NotTried, match="not a pod"):
        check_ray("", "run-1")
    monkeypatch.delenv(CLUSTER_VARIABLE)
    with pytest.raises(NotTried, match="no image of Ray's nodes"):
        check_ray("", "run-1", server)
    assert cluster.created == 0


def kfp_version(url: str) -> str:
    api = checks.KfpApi(KfpAddress(url))
    api.check()
    return api.version


def test_version_of_kfp_is_asked() -> None:
    class Kfp(JsonHandler):
        def do_GET(self) -> None:
            self.send_json({"tag_name": "2.16.1"} if self.path == "/apis/v2beta1/healthz" else {})

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Kfp)) as url:
        assert kfp_version(url) == "2.16.1"
    with pytest.raises(NotTried, match=r"no KFP API answers at http://127\.0\.0\.1:1 "):
        kfp_version("http://127.0.0.1:1")


@pytest.mark.parametrize("version", ["2.16.1", ""])
def test_step_fails_once_where_it_is_repeated(version: str, any_uri: ObjectUri) -> None:
    read, when = str(any_uri / "checks"), "auto" if version else "yes"
    with pytest.raises(FailedOnPurpose):
        perform({"retry": lambda: checks.check_retry(read, when, version)})
    (mark,) = names(any_uri)
    assert mark == "checks.failed-once" and json.loads(store_of(any_uri).read(any_uri / mark)[0] or b"")
    assert re.search(r"started again after \d s", checks.check_retry(read, when, version))
    assert names(any_uri) == []


@pytest.mark.parametrize(
    ("read", "fail_once", "version", "reason"),
    [
        ("gs://bucket/checks", "no", "2.16.1", "fail_once=no"),
        (
            "gs://bucket/checks",
            "auto",
            "2.17.0",
            "KFP 2.17.0, as its manifests install it, repeats a step whose pod is lost",
        ),
        ("gs://bucket/checks", "auto", "", "not known"),
        ("kfp-local://minio/bucket/checks", "yes", "2.16.1", "leaves its mark"),
        ("/run/checks", "yes", "", "leaves its mark"),
    ],
)
def test_step_does_not_fail_where_that_would_end_the_run(read: str, fail_once: str, version: str, reason: str) -> None:
    with pytest.raises(NotTried, match=reason):
        checks.check_retry(read, fail_once, version)
