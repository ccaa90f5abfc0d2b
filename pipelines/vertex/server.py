"""Vertex AI Pipelines: start, schedule, list, follow, cancel jobs (projects.locations.pipelineJobs and .schedules)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from components.platform.errors import UserError
from pipelines.parameters.on_server import check_cloud_root
from pipelines.spec import REPORT_STEP
from pipelines.submit.cron import CronSchedule
from pipelines.submit.kfp_tasks import parse_time
from pipelines.submit.options import RunRequest, SubmitOptions
from pipelines.submit.polling import RUN_ENDED, TRAINING, Task, describe_curve, describe_state
from pipelines.submit.run_checks import check_run, run_request
from pipelines.submit.server import PipelineServer, RunSummary, Schedule, ScheduleChange, seconds_since
from pipelines.vertex.artifact_registry import check_template, upload_template
from pipelines.vertex.client import VertexAddress, authorized_session, call, pages, parse_vertex
from pipelines.vertex.package import make_package

_CONSOLE = "https://console.cloud.google.com/vertex-ai/pipelines/runs"
_PAGE_SIZE = 100
_MAX_NAME = 128
_NETWORK = re.compile(r"projects/[0-9]+/global/networks/[a-z]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/keyRings/[\w-]+/cryptoKeys/[\w-]+")
_LABEL_KEY = re.compile(r"[^\W\d_][\w-]{0,62}")
_LABEL_VALUE = re.compile(r"[\w-]{0,63}")
_MAX_LABEL_BYTES = 128
_MAX_LABELS = 64
_RESERVED_LABEL = "vertex-ai-pipelines-run-billing-id"


class VertexJob:
    """A PipelineJob, as the service last answered; see polling.ServerRun.

    Attributes:
        run_id: its resource name.

    Raises:
        NotFound: there is no such job.
    """

    def __init__(self, server: VertexAddress, run: str) -> None:
        # One session for all requests: it refreshes its credentials itself.
        self._server = server if server.session else replace(server, session=authorized_session())
        self.run_id = server.job_name(run)
        self.refresh()

    def refresh(self) -> None:
        self._job = call(self._server, "GET", self.run_id)

    @property
    def state(self) -> str:
        return _state_of(self._job)

    @property
    def settled(self) -> bool:
        return self.state in RUN_ENDED

    @property
    def tasks(self) -> list[Task]:
        """Return the tasks that have begun."""
        return [Task(name, str(task.get("state", "unknown"))) for name, task in self._details.items()]

    @property
    def _details(self) -> dict[str, Mapping[str, Any]]:
        """The PipelineTaskDetail of each task that has begun, by the task's name."""
        details = self._job.get("jobDetail")
        listed = details.get("taskDetails") if isinstance(details, Mapping) else None
        tasks = [task for task in listed or [] if isinstance(task, Mapping)]
        return {str(task["taskName"]): task for task in tasks if "taskName" in task}

    def artifact_uri(self, task: str, name: str) -> str:
        """Return the URI of an output artifact of a task, "" if it has none."""
        try:
            return str(self._details[task]["outputs"][name]["artifacts"][0]["uri"])
        except (KeyError, IndexError, TypeError):
            return ""

    @property
    def outputs(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for task, detail in self._details.items():
            for name, listed in (detail.get("outputs") or {}).items():
                if self.artifact_uri(task, name):
                    found.setdefault(task, {})[name] = listed["artifacts"][0]
        return found

    def read_log(self, task: Task) -> list[str]:
        raise UserError(
            "mlgo pipeline logs: Vertex AI keeps the logs of steps in Cloud Logging",
            f"see the log of {task.name} at {_CONSOLE}",
        )

    def remarks(self) -> list[str]:
        """Return the command for the training's curve."""
        policy = self.artifact_uri(TRAINING, TRAINING)
        return [describe_curve(f"{policy}/tensorboard")] if policy else []

    def failure(self) -> UserError:
        message = self._job.get("error", {}).get("message", self.state.lower())
        return UserError(f"{self.run_id} did not succeed: {message}", f"see it at {_CONSOLE}")

    def results(self) -> list[str]:
        """Return where the report and the artifacts are."""
        settings = self._job.get("runtimeConfig")
        root = settings.get("gcsOutputDirectory") if isinstance(settings, Mapping) else ""
        uris = (self.artifact_uri(step, step.replace("-", "_")) for step in (REPORT_STEP, "evaluation"))
        report = next(filter(None, uris), "")
        return [*([f"report: {report}"] if report else []), *([f"artifacts: {root}"] if root else [])]


def _state_of(job: Mapping[str, Any]) -> str:
    """Return the state of a PipelineJob in the words of ServerRun."""
    state = str(job.get("state", "")).removeprefix("PIPELINE_STATE_")
    return "CANCELED" if state == "CANCELLED" else state


class VertexPipelines(PipelineServer):
    """Pipelines and jobs in a project and region of Vertex AI; see PipelineServer."""

    lacks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "namespace": (
            "Vertex AI has projects instead of namespaces",
            "name the project with --vertex PROJECT/REGION",
        ),
        "experiment": ("a job of Vertex AI is in no experiment of KFP", "use --label KEY=VALUE"),
        "existing_token_file": (
            "Vertex AI takes credentials of Google Cloud",
            "gcloud auth application-default login",
        ),
        "in_cluster_token": ("Vertex AI takes credentials of Google Cloud", "use Workload Identity in the pod"),
        "small": ("Vertex AI chooses the machine by the limits", "lower cpu.limit and memory.limit with --overrides"),
        "notify_secret": ("Vertex AI has no Kubernetes Secrets", "use Vertex AI's notifications"),
        "commit_secret": ("Vertex AI has no Kubernetes Secrets", "let CI wait: --wait"),
        "commit": ("Vertex AI has no Kubernetes Secrets", "let CI wait: --wait"),
        "ttl_hours": ("Vertex AI keeps its jobs", "leave it out"),
        "deadline_hours": ("a job of Vertex AI has no deadline", "leave it out, and see mlgo pipeline cancel"),
        "tag": ("the tag of a version in Artifact Registry is its name", "pass --version-name"),
        "artifact_root": ("steps on Vertex AI read and write --pipeline-root themselves", "leave it out"),
    }
    poll_s = 30.0
    limits_only = True

    def __init__(self, server: VertexAddress) -> None:
        self.server = server

    @classmethod
    def parse(cls, text: str) -> VertexPipelines:
        """Return the server that --vertex names. UserError if it is not of the form PROJECT/REGION."""
        if (server := parse_vertex(text)) is None:
            raise UserError(f"--vertex {text!r} is not of the form PROJECT/REGION", "--vertex my-project/europe-west4")
        return cls(server)

    def submit(self, options: SubmitOptions) -> tuple[str, str]:
        run_id = self.send(self.prepare(options, starts_now=True))
        return run_id, f"job: {run_id}"

    def prepare(self, options: SubmitOptions, starts_now: bool = False) -> RunRequest:
        """Check what the user asks for, and return what the service is sent.

        Args:
            starts_now: see CheckedRun.request.
        """
        if options.stored_pipeline:
            check_template(options.stored_pipeline)
        check_cloud_root(options.pipeline_root)
        check_job_settings(options, self.server)
        values, ray = check_run(options)
        if ray:
            raise UserError(
                "--param workers=rayjob: a RayJob needs steps that run in a Kubernetes cluster",
                "submit to a KFP server (--host URL), or use workers=local",
            )
        package = None if options.stored_pipeline else make_package(options)
        return run_request(options, values, package, starts_now)

    def send(self, request: RunRequest) -> str:
        """Create a PipelineJob; return its resource name."""
        return str(call(self.server, "POST", f"{self.server.parent}/pipelineJobs", _job(request))["name"])

    def schedule(self, options: SubmitOptions, cron: CronSchedule, max_concurrency: int) -> str:
        expression = write_cron(cron)
        return self.send_schedule(self.prepare(options), expression, max_concurrency)

    def send_schedule(self, request: RunRequest, cron: str, max_concurrency: int) -> str:
        """Create a Schedule of PipelineJobs; a further job than `max_concurrency` is skipped."""
        parent = self.server.parent
        document = {
            "displayName": request.name,
            "cron": cron,
            # The first limits requests that start a job, the second jobs. The API requires the first.
            "maxConcurrentRunCount": str(max_concurrency),
            "maxConcurrentActiveRunCount": str(max_concurrency),
            "createPipelineJobRequest": {"parent": parent, "pipelineJob": _job(request)},
        }
        return f"schedule: {call(self.server, 'POST', f'{parent}/schedules', document)['name']}"

    def upload(self, options: SubmitOptions, version: str, repository: str) -> str:
        """Store a pipeline in Artifact Registry; return a line with its URI."""
        if not repository:
            raise UserError(
                "--vertex without --repository: Vertex AI's pipelines are stored in Artifact Registry",
                "pass the name of a repository of the format Kubeflow Pipelines",
            )
        spec = make_package(options).spec
        name = options.name or options.pipeline
        info = {**spec["pipelineInfo"], "name": name}
        uri = upload_template(self.server, repository, {**spec, "pipelineInfo": info}, version)
        return f"version {version} of {name}: {uri}"

    def runs(self, experiment: str = "") -> Iterator[RunSummary]:
        for job in self._pages("pipelineJobs"):
            begun, ended = (parse_time(job.get(key)) for key in ("createTime", "endTime"))
            name = str(job.get("displayName") or "")
            yield RunSummary(str(job["name"]), name, _state_of(job), begun, seconds_since(begun, ended))

    def schedules(self) -> list[Schedule]:
        return [
            Schedule(
                str(one["name"]),
                str(one.get("displayName") or ""),
                one.get("state") == "ACTIVE",
                str(one.get("cron") or ""),
            )
            for one in self._pages("schedules")
        ]

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        if change == "delete":
            call(self.server, "DELETE", schedule_id)
        else:
            call(self.server, "POST", f"{schedule_id}:{change}", {})

    def _pages(self, kind: str) -> Iterator[Mapping[str, Any]]:
        resource = f"{self.server.parent}/{kind}"
        return pages(self.server, resource, kind, orderBy="create_time desc", pageSize=_PAGE_SIZE)

    def run(self, run_id: str) -> VertexJob:
        return VertexJob(self.server, run_id)

    def page(self, run_id: str) -> str:
        return _CONSOLE

    def cancel(self, run_id: str) -> bool:
        job = self.run(run_id)
        if job.state in RUN_ENDED:
            raise UserError(f"{job.run_id} has ended: {describe_state(job.state)}", f"see it at {_CONSOLE}")
        call(self.server, "POST", f"{job.run_id}:cancel", {})
        return False

    def retry(self, run_id: str) -> None:
        raise UserError(
            "mlgo pipeline retry: Vertex AI does not continue a job that failed",
            "submit it again: without --no-cache, steps whose results can be reused are not repeated",
        )


def write_cron(schedule: CronSchedule) -> str:
    """Return the five fields and the time zone that Vertex AI reads. UserError if the seconds are not 0."""
    seconds, *fields = schedule.fields
    if seconds != "0":
        raise UserError(
            f"--cron: Vertex AI has no seconds, but the schedule's are {seconds!r}",
            f"pass five fields, the first of which is the minute: {' '.join(fields)!r}",
        )
    return " ".join([*([f"CRON_TZ={schedule.zone}"] if schedule.zone else []), *fields])


def check_job_settings(options: SubmitOptions, server: VertexAddress) -> None:
    """Raise UserError for a setting that Vertex AI refuses."""
    if options.network and not _NETWORK.fullmatch(options.network):
        raise UserError(
            f"--network {options.network!r} is no full name of a network",
            "projects/NUMBER/global/networks/NAME, with the number of the project, not its name",
        )
    for key, value in options.labels.items():
        # https://cloud.google.com/resource-manager/docs/labels-overview#requirements; letters of every alphabet.
        for text, what, form in (
            (key, "key begins with a letter and", _LABEL_KEY),
            (value, "value", _LABEL_VALUE),
        ):
            if not form.fullmatch(text) or text != text.lower() or len(text.encode()) > _MAX_LABEL_BYTES:
                raise UserError(
                    f"--label {key}={value}: a {what} has at most 63 lowercase letters, digits, underscores and "
                    f"dashes, in at most {_MAX_LABEL_BYTES} bytes",
                    "for example --label team=compilers",
                )
        if key == _RESERVED_LABEL:
            raise UserError(f"--label {key}: Vertex AI reserves this label", "choose another one")
    if len(options.labels) > _MAX_LABELS:
        raise UserError(f"{len(options.labels)} labels: Vertex AI takes at most {_MAX_LABELS}", "pass fewer --label")
    match = _KEY.fullmatch(options.encryption_key)
    if options.encryption_key and (match is None or match["region"] != server.region):
        raise UserError(
            f"--encryption-key {options.encryption_key!r} is no key in {server.region}, the region of the job",
            f"projects/{server.project}/locations/{server.region}/keyRings/RING/cryptoKeys/KEY",
        )
    if len(options.name) > _MAX_NAME:
        raise UserError(f"--name {options.name!r} is longer than {_MAX_NAME} characters", "choose a shorter one")


def _job(request: RunRequest) -> dict[str, Any]:
    """Return a PipelineJob."""
    options = request.options
    values = {"parameterValues": dict(request.parameters)} if request.parameters else {}
    optional = {
        "pipelineSpec": dict(request.package.spec) if request.package else None,
        "templateUri": options.stored_pipeline,
        "serviceAccount": options.service_account,
        "network": options.network,
        "labels": dict(options.labels),
        "encryptionSpec": {"kmsKeyName": options.encryption_key} if options.encryption_key else None,
    }
    job = {"displayName": request.name, "runtimeConfig": {"gcsOutputDirectory": options.pipeline_root} | values}
    return job | {key: value for key, value in optional.items() if value}
