"""Tests of requests to Vertex AI with a fake service. Google's own client must send the same requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http.server import HTTPServer
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import requests

from components.platform.errors import UserError
from components.platform.launcher.step_cost import StepCost
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.artifacts.published import Published, published_artifacts
from pipelines.submit.cron import parse_cron
from pipelines.submit.options import Package, RunRequest, SubmitOptions
from pipelines.submit.overrides_document import read_overrides
from pipelines.submit.polling import EXIT_CANCELED, Task
from pipelines.submit.profile import overrides_text, profile_of
from pipelines.submit.server import Schedule, ScheduleChange, find_run, find_schedule, wait
from pipelines.vertex.client import VertexAddress
from pipelines.vertex.package import override_steps
from pipelines.vertex.server import VertexPipelines, check_job_settings, write_cron
from tests.pipelines.submit.conftest import Mlgo
from tests.servers.http_server import JsonHandler, serving
from tests.support.schemas import PublishedClients

JOB = "projects/p/locations/r/pipelineJobs/7"
KEY = "projects/p/locations/r/keyRings/ring/cryptoKeys/key"
NETWORK = "projects/12345/global/networks/net"
COST = StepCost(100.0, 8, 210.0, 1_843_000_000, 120_500_000, 3_200_000)


class Vertex(JsonHandler):
    """A fake of Vertex AI with one PipelineJob, which ends at the second poll."""

    jobs: list[dict[str, Any]]
    posts: list[tuple[str, Any]]
    lost: list[int]
    """HTTP statuses of the next answers, 0 to close the connection without an answer."""
    ends: str
    published: PublishedClients

    def do_DELETE(self) -> None:
        self.published.check("vertex", "DELETE", self.path)
        self.posts.append((self.path, None))
        self.send_json({})

    def listed(self) -> dict[str, Any]:
        """Return a page of jobs, or of schedules; {} for another request."""
        path, _mark, query = self.path.partition("?")
        kind = path.removeprefix("/v1/projects/p/locations/r/")
        if kind == "schedules":
            entry = {"displayName": "weekly", "cron": "0 3 * * 1", "state": "ACTIVE"}
            return {kind: [{"name": f"projects/1/locations/r/{kind}/3", **entry}]}
        if kind != "pipelineJobs" or "orderBy=create_time+desc" not in query:
            return {}
        if "pageToken=2" not in query:
            times = {"createTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-02T02:00:00Z"}
            return {kind: [{"name": JOB, "state": "PIPELINE_STATE_CANCELLED", **times}], "nextPageToken": "2"}
        return {kind: [{"name": JOB.replace("7", "70"), "displayName": "old", "state": "PIPELINE_STATE_FAILED"}]}

    def do_POST(self) -> None:
        body = self.read_json()
        self.posts.append((self.path, body))
        try:
            if "/projects/another/" in self.path:
                self.send_json({"error": {"message": "permission denied"}}, 403)
                return
            self.published.check("vertex", "POST", self.path, body)
            if self.path == "/v1/projects/p/locations/r/pipelineJobs":
                self.jobs.append(body)
                self.send_json({"name": JOB})
            elif self.path == "/v1/projects/p/locations/r/schedules":
                self.send_json({"name": "projects/1/locations/r/schedules/3"})
            else:
                self.send_json({})
        except ValueError as error:
            self.send_json({"error": {"message": f"Invalid JSON payload received: {error}"}}, 400)

    def do_GET(self) -> None:
        self.published.check("vertex", "GET", self.path)
        if self.lost:
            status = self.lost.pop(0)
            if status:
                self.send_error(status)
            else:
                self.close_connection = True
            return
        if listed := self.listed():
            self.send_json(listed)
            return
        if self.path != f"/v1/{JOB}":
            self.send_json({"error": {"message": f"{self.path} is not found"}}, 404)
            return
        self.jobs.append({})
        state = "RUNNING" if len(self.jobs) < 3 else self.ends
        artifact = {"uri": "gs://b/r/1/7/ppo_-2/ppo", "metadata": COST.metadata()}
        outputs = {"ppo": {"artifacts": [artifact]}} if len(self.jobs) > 1 else {}
        tasks = [{"taskName": "ppo", "state": state, "outputs": outputs}]
        job = {
            "state": f"PIPELINE_STATE_{state}",
            "jobDetail": {"taskDetails": tasks},
            "error": {"message": "no quota"},
            "runtimeConfig": {"gcsOutputDirectory": "gs://b/r"},
        }
        self.published.check("vertex-message", "GET", "PipelineJob", job)
        self.send_json(job)


@pytest.fixture
def vertex(published: PublishedClients) -> Iterator[VertexPipelines]:
    Vertex.published = published
    Vertex.jobs, Vertex.posts, Vertex.lost, Vertex.ends = [], [], [], "SUCCEEDED"
    with serving(HTTPServer(("127.0.0.1", 0), Vertex)) as url:
        yield VertexPipelines(VertexAddress("p", "r", requests.Session(), url))


def request(stored: str = "", seed: int | None = None, **options: Any) -> RunRequest:
    spec = load_spec(COMPILED)
    chosen = SubmitOptions(spec, pipeline_root="gs://bucket/r", stored_pipeline=stored, **options)
    return RunRequest(chosen, None if stored else Package(spec), {"seed": seed} if seed else {}, "n")


def test_job_is_created_and_followed(vertex: VertexPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    name = vertex.send(request(seed=3))
    job = Vertex.jobs[0]
    assert job["runtimeConfig"] == {"gcsOutputDirectory": "gs://bucket/r", "parameterValues": {"seed": 3}}
    assert job["pipelineSpec"] == load_spec(COMPILED) and job["displayName"] == "n"
    assert set(job) == {"runtimeConfig", "pipelineSpec", "displayName"}
    wait(vertex, name, poll_s=0)
    curve = "training curve: tensorboard --logdir gs://b/r/1/7/ppo_-2/ppo/tensorboard"
    said = capsys.readouterr().out
    assert said.endswith(f"[ppo] running\n{curve}\n[ppo] succeeded\nartifacts: gs://b/r\n")


def test_settings_are_fields_of_the_job(vertex: VertexPipelines) -> None:
    vertex.send(request(service_account="a@p.iam", network=NETWORK, labels={"team": "compilers"}, encryption_key=KEY))
    job = Vertex.jobs[0]
    assert job["serviceAccount"] == "a@p.iam" and job["network"] == NETWORK
    assert job["labels"] == {"team": "compilers"} and job["encryptionSpec"] == {"kmsKeyName": KEY}


def test_stored_pipeline_takes_the_place_of_the_one_that_is_sent(vertex: VertexPipelines) -> None:
    template = "https://r-kfp.pkg.dev/p/pipelines/mlgo-training/2026-01"
    vertex.send(request(template, seed=3))
    job = Vertex.jobs[0]
    assert job["templateUri"] == template and "pipelineSpec" not in job
    assert job["runtimeConfig"]["parameterValues"] == {"seed": 3}


def test_schedule_starts_the_same_job(vertex: VertexPipelines) -> None:
    asked = request(service_account="a@p.iam", labels={"team": "compilers"})
    line = vertex.send_schedule(asked, write_cron(parse_cron("0 3 * * mon")), 2)
    assert line == "schedule: projects/1/locations/r/schedules/3"
    schedule = Vertex.posts[0][1]
    created = schedule.pop("createPipelineJobRequest")
    assert schedule == {
        "displayName": "n",
        "cron": "0 3 * * mon",
        "maxConcurrentRunCount": "2",
        "maxConcurrentActiveRunCount": "2",
    }
    vertex.send(asked)
    assert created == {"parent": "projects/p/locations/r", "pipelineJob": Vertex.jobs[0]}


def test_time_zone_is_kept_and_a_second_of_0_left_out() -> None:
    assert write_cron(parse_cron("TZ=Europe/Berlin 0 3 * * 1")) == "CRON_TZ=Europe/Berlin 0 3 * * 1"
    assert write_cron(parse_cron("0 0 3 * * 1")) == "0 3 * * 1"


def test_fake_service_refuses_unknown_fields(vertex: VertexPipelines) -> None:
    for route, field in (("pipelineJobs", "accelerator"), ("schedules", "pause")):
        response = requests.post(vertex.server.url(f"{vertex.server.parent}/{route}"), json={field: True}, timeout=10)
        assert response.status_code == 400 and "no field named" in response.text and field in response.text


@pytest.mark.parametrize(
    "labels",
    [{"k" * 63: "v" * 63}, {"team": ""}, {"team": "-7_"}, {"équipe": "ü" * 63}, {f"k{n}": "" for n in range(64)}],
)
def test_labels_that_google_cloud_documents_are_accepted(vertex: VertexPipelines, labels: dict[str, str]) -> None:
    options = request(labels=labels).options
    check_job_settings(options, vertex.server)
    vertex.send(request(labels=labels))
    assert Vertex.jobs[0]["labels"] == labels


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"network": "default"}, "no full name of a network"),
        ({"network": "projects/my-project/global/networks/net"}, "no full name of a network"),
        ({"labels": {"Team": "x"}}, "--label Team=x"),
        ({"labels": {"team": "a b"}}, "lowercase letters"),
        ({"labels": {"k" * 64: "x"}}, "at most 63"),
        ({"labels": {"team": "v" * 64}}, "at most 63"),
        ({"labels": {"team": "語" * 43}}, "at most 128 bytes"),
        ({"labels": {"-team": "x"}}, "a key begins with a letter"),
        ({"labels": {"_team": "x"}}, "a key begins with a letter"),
        ({"labels": {"7team": "x"}}, "a key begins with a letter"),
        ({"labels": {"": "x"}}, "a key begins with a letter"),
        ({"labels": {"team": "Ä"}}, "lowercase letters"),
        ({"labels": {"team": "x\n"}}, "lowercase letters"),
        ({"labels": {f"k{n}": "x" for n in range(65)}}, "at most 64"),
        ({"labels": {"vertex-ai-pipelines-run-billing-id": "1"}}, "reserves"),
        ({"name": "n" * 129}, "longer than 128 characters"),
        ({"encryption_key": "key"}, "no key in r"),
        ({"encryption_key": KEY.replace("locations/r", "locations/global")}, "no key in r"),
    ],
)
def test_invalid_setting_is_refused_before_a_request(vertex: VertexPipelines, settings: Any, named: str) -> None:
    with pytest.raises(UserError) as error:
        vertex.prepare(request(**settings).options)
    assert named in error.value.problem
    assert Vertex.posts == []


def test_refusal_is_reported(vertex: VertexPipelines) -> None:
    another = VertexPipelines(replace(vertex.server, project="another"))
    with pytest.raises(UserError, match="permission denied") as error:
        another.send(request())
    assert "roles/aiplatform.user" in error.value.remedy


def test_failed_job_is_reported(vertex: VertexPipelines) -> None:
    Vertex.ends = "FAILED"
    with pytest.raises(UserError, match="no quota"):
        wait(vertex, vertex.send(request()), poll_s=0)


def test_canceled_job_has_its_own_exit_status(vertex: VertexPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    Vertex.ends = "CANCELLED"
    with pytest.raises(click.exceptions.Exit) as exit:
        wait(vertex, vertex.send(request()), poll_s=0)
    assert exit.value.exit_code == EXIT_CANCELED and "was canceled" in capsys.readouterr().err


def test_job_is_canceled_unless_it_has_ended(vertex: VertexPipelines) -> None:
    vertex.send(request())
    vertex.cancel("7")
    assert Vertex.posts[-1] == (f"/v1/{JOB}:cancel", {})
    Vertex.jobs += [{}, {}]
    with pytest.raises(UserError, match="has ended: it succeeded"):
        vertex.cancel(JOB)
    assert len(Vertex.posts) == 2
    with pytest.raises(UserError, match="is not found"):
        vertex.cancel("8")


def test_jobs_and_schedules_are_listed(vertex: VertexPipelines) -> None:
    newest, oldest = vertex.runs()
    assert (newest.run_id, newest.state, newest.seconds) == (JOB, "CANCELED", 7200) and oldest.seconds is None
    schedule = find_schedule(vertex, "weekly")
    assert schedule == Schedule("projects/1/locations/r/schedules/3", "weekly", True, "0 3 * * 1")
    for change in get_args(ScheduleChange):
        vertex.change_schedule("projects/p/locations/r/schedules/3", change)
    paths = [path.rpartition("/")[2] for path, _body in Vertex.posts]
    assert paths == ["3:pause", "3:resume", "3"]


def test_outputs_of_a_job_are_its_artifacts(vertex: VertexPipelines) -> None:
    job = find_run(vertex, vertex.send(request()))
    job.refresh()
    assert published_artifacts(job) == [Published("ppo", "ppo", "Artifact", "gs://b/r/1/7/ppo_-2/ppo")]
    with pytest.raises(UserError, match="Cloud Logging"):
        job.read_log(Task("ppo"))


def test_cost_of_a_task_is_in_the_metadata_of_its_artifacts(vertex: VertexPipelines, tmp_path: Path) -> None:
    job = find_run(vertex, vertex.send(request()))
    assert profile_of(job).unknown == {"ppo": "it still runs"}
    job.refresh()
    profile = profile_of(job)
    assert profile.costs == {"ppo": COST} and not profile.unknown
    text = overrides_text(profile, 50, limits_only=True)
    assert text == "ppo:\n  cpu: {limit: 4}\n  memory: {limit: 2800M}\n"
    (tmp_path / "o.yaml").write_text(text)
    resources = override_steps(load_spec(COMPILED), read_overrides(tmp_path / "o.yaml"))["deploymentSpec"]["executors"][
        "exec-ppo"
    ]["container"]["resources"]
    assert resources == {
        "cpuLimit": 4.0,
        "resourceCpuLimit": "4",
        "memoryLimit": 2.8,
        "resourceMemoryLimit": "2800M",
    }


def test_unknown_job_is_not_said_to_continue(vertex: VertexPipelines) -> None:
    with pytest.raises(UserError) as error:
        wait(vertex, "8")
    assert error.value.problem.endswith("/pipelineJobs/8 is not found")


@pytest.mark.parametrize(
    "run", ["projects/p/locations/other/pipelineJobs/7", "projects/p/locations/r/schedules/7", "../7", "a b", ""]
)
def test_name_that_is_no_job_of_the_region_is_refused(vertex: VertexPipelines, run: str) -> None:
    with pytest.raises(UserError, match="is no ID or name of a job in r"):
        wait(vertex, run)


def test_lost_answers_are_retried(vertex: VertexPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    name = vertex.send(request())
    Vertex.lost = [503, 0, 429]
    wait(vertex, name, poll_s=0)
    assert Vertex.lost == [] and "[ppo] succeeded\n" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "named"), [(503, "status 503"), (403, "status 403")])
def test_job_continues_when_polling_fails(vertex: VertexPipelines, status: int, named: str) -> None:
    name = vertex.send(request())
    Vertex.lost = [status] * 1000
    with pytest.raises(UserError, match=f"{named}; the run {name} itself continues") as raised:
        wait(vertex, name, poll_s=0, patience_s=1.5)
    assert "console.cloud.google.com" in raised.value.remedy
    assert (len(Vertex.lost) == 999) is (status == 403), "a refused request is not retried"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--namespace", "n"), "--namespace: Vertex AI has projects"),
        (("--experiment", "e"), "--experiment: a job of Vertex AI is in no experiment"),
        (("--existing-token-file", "f"), "--existing-token-file: Vertex AI takes credentials of Google Cloud"),
        (("--in-cluster-token",), "--in-cluster-token: Vertex AI takes credentials of Google Cloud"),
        (("--notify-secret", "a"), "--notify-secret: Vertex AI has no Kubernetes Secrets"),
        (("--commit-secret", "a"), "--commit-secret: Vertex AI has no Kubernetes Secrets"),
        (("--label", "team"), "--label 'team' is not of the form KEY=VALUE"),
    ],
)
def test_invalid_option_is_refused(submit: Mlgo, arguments: tuple[str, ...], named: str) -> None:
    done = submit("--vertex", "p/r", "--pipeline-root", "gs://bucket/r", "--param", "recipe=demo", *arguments)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_seconds_of_schedule_are_refused(mlgo: Mlgo) -> None:
    done = mlgo("schedule", "--vertex", "p/r", "--cron", "30 0 3 * * 1", "--pipeline-root", "gs://b/r")
    assert done.returncode == 1 and "Vertex AI has no seconds, but the schedule's are '30'" in done.stderr


def test_machine_type_of_step_is_refused(submit: Mlgo, tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("ppo: {machine_type: n2-highmem-8}")
    options = ("--vertex", "p/r", "--pipeline-root", "gs://bucket/r", "--param", "recipe=demo")
    done = submit(*options, "--overrides", tmp_path / "o.yaml")
    assert done.returncode == 1 and "chooses the machine of a step itself" in done.stderr and "cpu.limit" in done.stderr
