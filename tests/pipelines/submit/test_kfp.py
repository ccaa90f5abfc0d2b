"""Tests of submissions to fake servers that check the requests."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
import yaml

from components.core.console import UserError
from components.core.launcher.notify import NOTIFY_VARIABLE
from pipelines.images import read_images
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.kfp import notify_settings, ready_spec
from pipelines.submit.vertex import follow_vertex, submit_vertex

ROOT = Path(__file__).parents[3]
KFP_PYTHON = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    command = [str(KFP_PYTHON), str(ROOT / "tests" / "kfp_server.py")]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    server.communicate("", timeout=30)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    document = {
        name: {"tag": f"r/{name}:1", "reference": f"r/{name}@sha256:{digit * 64}", "bytes": 1, "local_base": False}
        for name, digit in (("toolchain", "1"), ("training", "2"))
    }
    (tmp_path / "images.json").write_text(json.dumps(document))
    return tmp_path / "images.json"


def submit(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipelines", "pipeline", "submit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


def test_run_is_submitted(host: str, images: Path) -> None:
    done = submit("--host", host, "--images", images, "--param", "recipe=demo", "--param", "seed=3", "--name", "n")
    assert done.returncode == 0 and f"{host}/#/runs/details/run-" in done.stdout, done.stderr


@pytest.mark.timeout(300)
def test_failed_run_gives_exit_status_1(host: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_POLL_S", "0.1")
    done = submit("--host", host, "--images", images, "--param", "recipe=demo", "--param", "preset=tiny", "--wait")
    assert "[warmstart] succeeded" in done.stdout and "[ppo] failed" in done.stdout
    assert done.returncode == 1 and "step ppo failed" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.timeout(300)
def test_lost_answers_are_retried(host: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_POLL_S", "0.1")
    done = submit("--host", host, "--images", images, "--param", "recipe=demo", "--name", "lossy", "--wait")
    assert done.returncode == 0 and "[evaluation] succeeded" in done.stdout, done.stderr
    assert "503 no healthy upstream; retrying" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "named"), [("gone", "503 no healthy upstream"), ("forbidden", "403 no access")])
def test_run_continues_when_polling_fails(
    host: str, images: Path, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    monkeypatch.setenv("MLGO_POLL_S", "0.1")
    monkeypatch.setenv("MLGO_POLL_PATIENCE_S", "3")
    done = submit("--host", host, "--images", images, "--param", "recipe=demo", "--name", name, "--wait")
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr
    run = re.search(r"/#/runs/details/(run-\d+)", done.stdout)
    assert run and f"; the run {run[1]} itself continues" in done.stderr and f"see it at {host}/#/runs" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_polling_but_not_the_run(host: str, images: Path, number: signal.Signals) -> None:
    command = ["pipeline", "submit", "--host", host, "--images", str(images), "--param", "recipe=demo", "--wait"]
    command = [sys.executable, "-m", "pipelines", *command]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert waiting.stdout is not None
    said = ""
    while "[corpus] succeeded" not in said:
        line = waiting.stdout.readline()
        assert line, waiting.communicate()[1]
        said += line
    waiting.send_signal(number)
    told = waiting.communicate(timeout=60)[1]
    run = re.search(r"/#/runs/details/(run-\d+)", said)
    assert (
        run and f"interrupted; the run {run[1]} itself continues" in told and "run the same command again" not in told
    )
    assert waiting.returncode == 128 + number


def test_servers_rejection_is_reported(host: str, images: Path) -> None:
    images.write_text(images.read_text().replace("1" * 64, "abc"))
    done = submit("--host", host, "--images", images, "--param", "recipe=demo")
    assert (
        done.returncode == 1 and "refuses the request: 400 invalid run" in done.stderr and "is no digest" in done.stderr
    )


def test_notify_secret_is_submitted(host: str, images: Path) -> None:
    given = ("--host", host, "--images", images, "--param", "recipe=demo", "--name", "notified")
    done = submit(*given, "--notify-secret", "mlgo-notify")
    assert done.returncode == 0, done.stderr
    done = submit(*given)
    assert done.returncode == 1 and "no Secret is named" in done.stderr, "the fake server checks for it"


def test_only_exit_handler_gets_webhook_secret() -> None:
    (platform,) = notify_settings(load_spec(COMPILED), "mlgo-notify")["platforms"].values()
    ((label, config),) = platform["deploymentSpec"]["executors"].items()
    assert label == "exec-finish"
    (secret,) = config["secretAsEnv"]
    assert secret["secretName"] == "mlgo-notify"
    assert secret["keyToEnv"] == [{"secretKey": "url", "envVar": NOTIFY_VARIABLE}]
    assert "notify" not in COMPILED.read_text(), "no parameter, which the server would store and show"


@pytest.mark.parametrize("secret", ["https://hooks.example.com/s3cret", "Mlgo", "a" * 254])
def test_invalid_secret_name_is_refused_without_printing_it(secret: str) -> None:
    with pytest.raises(UserError, match="is not the name of a Kubernetes Secret") as error:
        notify_settings(load_spec(COMPILED), secret)
    assert secret not in str(error.value) and "kubectl create secret" in error.value.remedy


def test_notify_secret_without_exit_handler_is_refused() -> None:
    spec = load_spec(COMPILED)
    del spec["deploymentSpec"]["executors"]["exec-finish"]
    with pytest.raises(UserError, match="no step of the pipeline reports"):
        notify_settings(spec, "mlgo-notify")


def test_notify_secret_on_vertex_is_refused(images: Path) -> None:
    done = submit("--vertex", "p/r", "--pipeline-root", "gs://bucket/r", "--images", images, "--notify-secret", "a")
    assert done.returncode == 1 and "Vertex AI has no Kubernetes Secrets" in done.stderr


def test_only_rayjob_run_requires_cluster_image(host: str, images: Path) -> None:
    given = ("--host", host, "--images", images, "--param", "recipe=demo", "--service-account", "mlgo-steps")
    ray = (
        "--param",
        "workers=rayjob:16",
        "--param",
        "spot_node_label=a=b",
        "--param",
        "ray_cluster_options=cpus_per_worker=8",
    )
    done = submit(*given)
    assert done.returncode == 0, done.stderr
    done = submit(*given, *ray)
    assert done.returncode == 1 and "the image cluster has no digest" in done.stderr and "build --all" in done.stderr
    document = json.loads(images.read_text())
    document["cluster"] = document["training"] | {"reference": "r/cluster@sha256:" + "3" * 64}
    images.write_text(json.dumps(document))
    done = submit(*given, *ray)
    assert done.returncode == 0, done.stderr
    done = submit("--vertex", "p/r", "--pipeline-root", "gs://bucket/r", "--images", images, *given[4:6], *ray)
    assert done.returncode == 1 and "submit to a KFP server" in done.stderr


def test_step_that_waits_for_ray_requests_little_cpu(images: Path) -> None:
    read = read_images(images)
    read["cluster"] = read["training"]
    container = ready_spec(COMPILED, read, ray=True)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
    before = ready_spec(COMPILED, read)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
    assert set(container["resources"]) == set(before["resources"])
    assert container["resources"]["cpuRequest"] < 1 < before["resources"]["cpuRequest"]
    assert container["resources"]["resourceCpuRequest"] == "100m"


@pytest.mark.parametrize("ray", [False, True])
def test_pipeline_with_importer_is_accepted(images: Path, tmp_path: Path, ray: bool) -> None:
    pipeline = yaml.safe_load(COMPILED.read_text())
    importer = {"importer": {"artifactUri": {"constant": "gs://b/x"}, "typeSchema": {"schemaTitle": "system.Artifact"}}}
    pipeline["deploymentSpec"]["executors"]["exec-importer"] = importer
    (tmp_path / "importing.yaml").write_text(yaml.safe_dump(pipeline))
    read = read_images(images)
    read["cluster"] = read["training"]
    spec = ready_spec(tmp_path / "importing.yaml", read, ray)
    assert spec["deploymentSpec"]["executors"]["exec-importer"] == importer


def test_unreachable_server_is_reported(images: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = submit("--host", url, "--images", images, "--param", "recipe=demo")
    assert done.returncode == 1 and f"KFP at {url} does not answer" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "exactly one of --host and --vertex is needed"),
        (("--host", "http://x", "--param", "seed=many"), "seed is 'many'"),
        (("--host", "http://x", "--param", "seed"), "not of the form NAME=VALUE"),
        (("--vertex", "project", "--pipeline-root", "gs://bucket/r"), "PROJECT/REGION"),
        (("--vertex", "p/r"), "no --pipeline-root"),
        (("--vertex", "p/r", "--pipeline-root", "gs://bucket/r"), "none given"),
        (("--host", "http://x", "--param", "recipe=demo", "--param", "corpus=gs://b/c"), "2 given"),
        (("--host", "http://x", "--param", "recipe=demo", "--pipeline-root", "ftp://b/r"), "--pipeline-root ftp://b/r"),
        (("--host", "http://x", "--param", "recipe=demo", "--param", "release_if=foo"), "release_if=foo"),
        (("--host", "http://x", "--param", "recipe=demmo"), ", demo, "),
        (
            ("--host", "http://x", "--param", "recipe=demo", "--param", "spot_node_label=gke"),
            "not of the form LABEL=VALUE",
        ),
        (("--host", "http://x", "--param", "recipe=demo", "--param", "ray_cluster_options=n=4"), "no setting 'n'"),
    ],
)
def test_invalid_options_are_refused_before_submission(images: Path, arguments: tuple[str, ...], named: str) -> None:
    done = submit("--images", images, *arguments)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_images_without_digest_are_refused(images: Path) -> None:
    images.write_text(images.read_text().replace("r/training@", ""))
    done = submit("--host", "http://x", "--images", images, "--param", "recipe=demo")
    assert done.returncode == 1 and "mlgo images push" in done.stderr


def test_missing_kfp_is_reported_with_remedy(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_PIPELINES_PYTHON", "/nowhere")
    done = submit("--host", "http://x", "--images", images, "--param", "recipe=demo")
    assert done.returncode == 1 and "make setup-pipelines" in done.stderr and "Traceback" not in done.stderr


class Vertex(BaseHTTPRequestHandler):
    """A fake of Vertex AI with one PipelineJob, which ends at the second poll."""

    jobs: list[dict[str, Any]]
    lost: list[int]
    """HTTP statuses of the next answers, 0 to close the connection without an answer."""

    def do_POST(self) -> None:
        self.jobs.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer({"name": "projects/p/locations/r/pipelineJobs/7"} if "/projects/p/" in self.path else None)

    def do_GET(self) -> None:
        if self.lost:
            status = self.lost.pop(0)
            if status:
                self.send_error(status)
            else:
                self.close_connection = True
            return
        self.jobs.append({})
        state = "RUNNING" if len(self.jobs) < 3 else "FAILED" if "fails" in str(self.jobs[0]) else "SUCCEEDED"
        tasks = [{"taskName": "ppo", "state": state}]
        self._answer(
            {"state": f"PIPELINE_STATE_{state}", "jobDetail": {"taskDetails": tasks}, "error": {"message": "no quota"}}
        )

    def _answer(self, document: dict[str, Any] | None) -> None:
        content = json.dumps(document or {"error": {"message": "permission denied"}}).encode()
        self.send_response(200 if document else 403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def vertex() -> Iterator[str]:
    Vertex.jobs, Vertex.lost = [], []
    server = HTTPServer(("127.0.0.1", 0), Vertex)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_vertex_job_is_created_and_followed(vertex: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec, session = load_spec(COMPILED), requests.Session()
    name = submit_vertex(spec, {"seed": "3"}, "p", "r", "gs://b/root", "name", session, vertex)
    assert Vertex.jobs[0]["runtimeConfig"] == {"gcsOutputDirectory": "gs://b/root", "parameterValues": {"seed": 3}}
    assert Vertex.jobs[0]["pipelineSpec"] == spec
    follow_vertex(name, "r", session, vertex, poll_s=0)
    assert "[ppo] running\n[ppo] succeeded\n" in capsys.readouterr().out


def test_failed_or_refused_vertex_job_is_reported(vertex: str) -> None:
    spec, session = load_spec(COMPILED), requests.Session()
    with pytest.raises(UserError, match="permission denied"):
        submit_vertex(spec, {}, "another", "r", "gs://b/root", "name", session, vertex)
    Vertex.jobs = []
    name = submit_vertex(spec, {}, "p", "r", "gs://b/root", "fails", session, vertex)
    with pytest.raises(UserError, match="no quota"):
        follow_vertex(name, "r", session, vertex, poll_s=0)


def test_lost_answers_of_vertex_are_retried(vertex: str, capsys: pytest.CaptureFixture[str]) -> None:
    session = requests.Session()
    name = submit_vertex(load_spec(COMPILED), {}, "p", "r", "gs://b/root", "name", session, vertex)
    Vertex.lost = [503, 0, 429]
    follow_vertex(name, "r", session, vertex, poll_s=0)
    assert Vertex.lost == [] and "[ppo] succeeded\n" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "named"), [(503, "status 503"), (403, "status 403")])
def test_vertex_job_continues_when_polling_fails(vertex: str, status: int, named: str) -> None:
    session = requests.Session()
    name = submit_vertex(load_spec(COMPILED), {}, "p", "r", "gs://b/root", "name", session, vertex)
    Vertex.lost = [status] * 1000
    with pytest.raises(UserError, match=f"{named}; the run {name} itself continues") as raised:
        follow_vertex(name, "r", session, vertex, poll_s=0, patience_s=1.5)
    assert "console.cloud.google.com" in raised.value.remedy
    assert (len(Vertex.lost) == 999) is (status == 403), "a refused request is not retried"
