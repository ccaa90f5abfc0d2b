"""Requests to Vertex AI Pipelines, in its REST API (v1): projects.locations.pipelineJobs and .schedules."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import may_recover
from pipelines.submit.cron import CronSchedule
from pipelines.submit.polling import (
    PATIENCE_S,
    RUN_ENDED,
    TIMEOUT_S,
    TRAINING,
    NoAnswer,
    NotFound,
    poll,
    report_canceled,
    report_curve,
    report_run_continues,
)
from pipelines.submit.prepare import RunRequest

POLL_S = 30.0
_CONSOLE = "https://console.cloud.google.com/vertex-ai/pipelines/runs"
_MAX_NAME = 128
_JOB_ID = re.compile(r"[a-z0-9][-a-z0-9]{0,127}")
_JOB = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/pipelineJobs/[a-z0-9][-a-z0-9]{0,127}")
_PROJECT_REGION = re.compile(r"(?P<project>([a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*)/(?P<region>[a-z]([a-z0-9-]*[a-z0-9])?)")
"""A project's ID, of a domain's organization DOMAIN:ID, or its number."""
_NETWORK = re.compile(r"projects/[0-9]+/global/networks/[a-z]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/keyRings/[\w-]+/cryptoKeys/[\w-]+")
_LABEL_KEY = re.compile(r"[^\W\d_][\w-]{0,62}")
_LABEL_VALUE = re.compile(r"[\w-]{0,63}")
_MAX_LABEL_BYTES = 128
_MAX_LABELS = 64
_RESERVED_LABEL = "vertex-ai-pipelines-run-billing-id"


@dataclass(frozen=True)
class VertexServer:
    """A project and region of Vertex AI.

    Attributes:
        session: sends authorized requests; None for the default credentials of Google Cloud.
        endpoint: URL of the service; empty for the region's.
    """

    project: str
    region: str
    session: Any = None
    endpoint: str = ""

    @property
    def parent(self) -> str:
        """Return the resource name of the region."""
        return f"projects/{self.project}/locations/{self.region}"

    def url(self, resource: str) -> str:
        """Return the URL of a resource."""
        return f"{self.endpoint or f'https://{self.region}-aiplatform.googleapis.com'}/v1/{resource}"

    def job_name(self, run: str) -> str:
        """Return the resource name of a job by its ID or resource name. UserError if it is neither, or elsewhere."""
        if _JOB_ID.fullmatch(run):
            return f"{self.parent}/pipelineJobs/{run}"
        match = _JOB.fullmatch(run)
        if match is None or match["region"] != self.region:
            problem = f"{run!r} is no ID or name of a job in {self.region}"
            raise UserError(problem, f"for example {self.parent}/pipelineJobs/mlgo-training-20260101000000")
        return run


def parse_vertex(text: str) -> VertexServer | None:
    """Return the project and region in PROJECT/REGION; None if they cannot be: both become part of URLs."""
    found = _PROJECT_REGION.fullmatch(text)
    return VertexServer(found["project"], found["region"]) if found else None


@dataclass(frozen=True)
class VertexSettings:
    """Settings of a job that only Vertex AI has; `check` validates them.

    Attributes:
        network: projects/NUMBER/global/networks/NAME, to which the job is peered; empty for none.
        labels: of the job.
        encryption_key: resource name of a key of Cloud KMS; empty for Google's keys.
        template: URI of a pipeline in Artifact Registry that runs in place of the one that is sent.
    """

    network: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    encryption_key: str = ""
    template: str = ""

    def check(self, server: VertexServer) -> None:
        """Raise UserError for a setting that Vertex AI refuses."""
        if self.network and not _NETWORK.fullmatch(self.network):
            raise UserError(
                f"--network {self.network!r} is no full name of a network",
                "projects/NUMBER/global/networks/NAME, with the number of the project, not its name",
            )
        for key, value in self.labels.items():
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
        if len(self.labels) > _MAX_LABELS:
            raise UserError(f"{len(self.labels)} labels: Vertex AI takes at most {_MAX_LABELS}", "pass fewer --label")
        match = _KEY.fullmatch(self.encryption_key)
        if self.encryption_key and (match is None or match["region"] != server.region):
            raise UserError(
                f"--encryption-key {self.encryption_key!r} is no key in {server.region}, the region of the job",
                f"projects/{server.project}/locations/{server.region}/keyRings/RING/cryptoKeys/KEY",
            )


def submit_vertex(server: VertexServer, request: RunRequest, settings: VertexSettings | None = None) -> str:
    """Create a PipelineJob; return its resource name.

    Raises:
        UserError: a parameter or setting is invalid, there are no credentials, or the service refuses (with its
            message).
    """
    job = _job(server, request, settings or VertexSettings())
    return str(call(server, "POST", f"{server.parent}/pipelineJobs", job)["name"])


def schedule_vertex(
    server: VertexServer,
    request: RunRequest,
    cron: CronSchedule,
    max_concurrency: int,
    settings: VertexSettings | None = None,
) -> str:
    """Create a Schedule of PipelineJobs; return its resource name. Runs that were missed while paused do not start.

    Args:
        max_concurrency: how many of its jobs may run at the same time; a further one is skipped.

    Raises:
        UserError: as `submit_vertex`, or the schedule has seconds.
    """
    document = {
        "displayName": request.name,
        "cron": cron.for_vertex(),
        # The first limits requests that start a job, the second jobs. The API requires the first.
        "maxConcurrentRunCount": str(max_concurrency),
        "maxConcurrentActiveRunCount": str(max_concurrency),
        "createPipelineJobRequest": {
            "parent": server.parent,
            "pipelineJob": _job(server, request, settings or VertexSettings()),
        },
    }
    return str(call(server, "POST", f"{server.parent}/schedules", document)["name"])


def follow_vertex(server: VertexServer, run: str, poll_s: float = POLL_S, patience_s: float = PATIENCE_S) -> None:
    """Print each task's state as it changes until the job succeeds.

    Args:
        run: ID or resource name of the job.

    Raises:
        UserError: the job failed, or the service did not answer for `patience_s`.
        click.exceptions.Exit: the job was canceled (polling.EXIT_CANCELED), or following it was interrupted.
    """
    resource = server.job_name(run)
    shown_states: dict[str, str] = {}
    curve = ""
    session = server.session or authorized_session()
    with report_run_continues(resource, _CONSOLE):
        while True:
            job = poll(lambda: call(server, "GET", resource, None, session), resource, _CONSOLE, patience_s)
            for name, task in task_details(job).items():
                task_state = str(task.get("state", "unknown"))
                if shown_states.get(name) != task_state:
                    shown_states[name] = task_state
                    say(f"[{name}] {task_state.lower()}")
            if not curve and (curve := artifact_uri(task_details(job).get(TRAINING, {}), TRAINING)):
                report_curve(f"{curve}/tensorboard")
            state = job_state(job)
            if state in RUN_ENDED:
                break
            time.sleep(poll_s)
    if state == "CANCELLED":
        report_canceled(resource, _CONSOLE)
    if state == "FAILED":
        message = job.get("error", {}).get("message", state.lower())
        raise UserError(f"{resource} did not succeed: {message}", f"see it at {_CONSOLE}")


def cancel_vertex(server: VertexServer, run: str) -> None:
    """Ask the service to end a job. UserError if there is no such job, it has ended, or the service refuses."""
    resource = server.job_name(run)
    state = job_state(call(server, "GET", resource, None))
    if state in RUN_ENDED:
        raise UserError(f"{resource} has ended: it is {state.lower()}", f"see it at {_CONSOLE}")
    call(server, "POST", f"{resource}:cancel", {})


def _job(server: VertexServer, request: RunRequest, settings: VertexSettings) -> dict[str, Any]:
    """Return a PipelineJob. UserError if a parameter or setting is invalid."""
    settings.check(server)
    if len(request.name) > _MAX_NAME:
        raise UserError(f"--name {request.name!r} is longer than {_MAX_NAME} characters", "choose a shorter one")
    given = request.parameters()
    job: dict[str, Any] = {
        "displayName": request.name,
        **({"templateUri": settings.template} if settings.template else {"pipelineSpec": dict(request.spec)}),
        "runtimeConfig": {"gcsOutputDirectory": request.pipeline_root} | ({"parameterValues": given} if given else {}),
    }
    optional = {
        "serviceAccount": request.account,
        "network": settings.network,
        "labels": dict(settings.labels),
        "encryptionSpec": {"kmsKeyName": settings.encryption_key} if settings.encryption_key else None,
    }
    return job | {key: value for key, value in optional.items() if value}


def get_job(server: VertexServer, run: str) -> dict[str, Any]:
    """Return a PipelineJob by its ID or resource name. NotFound if there is none."""
    return call(server, "GET", server.job_name(run), None)


def job_state(job: Mapping[str, Any]) -> str:
    """Return the state of a PipelineJob, for example SUCCEEDED."""
    return str(job.get("state", "")).removeprefix("PIPELINE_STATE_")


def task_details(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the PipelineTaskDetail of each task of a PipelineJob that has begun, by the task's name."""
    details = job.get("jobDetail")
    listed = details.get("taskDetails") if isinstance(details, Mapping) else None
    return {str(task["taskName"]): task for task in listed or [] if isinstance(task, Mapping) and "taskName" in task}


def artifact_uri(task: Mapping[str, Any], name: str) -> str:
    """Return the URI of an output artifact of a PipelineTaskDetail, "" if it has none."""
    try:
        return str(task["outputs"][name]["artifacts"][0]["uri"])
    except (KeyError, IndexError, TypeError):
        return ""


def authorized_session() -> Any:
    """Return a session with the default credentials of Google Cloud. UserError if there are none."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError
    from google.auth.transport.requests import AuthorizedSession

    try:
        credentials, _project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    except DefaultCredentialsError:
        raise UserError(
            "no Google Cloud credentials found",
            "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file",
        ) from None
    return AuthorizedSession(credentials)


def call(server: VertexServer, method: str, resource: str, body: Any, session: Any = None) -> dict[str, Any]:
    """Return the service's JSON answer to a request for a resource.

    Args:
        session: sends the request; None for the server's, or a new one.

    Raises:
        UserError: there are no credentials, or the service refuses.
        NotFound: there is no such resource.
        NoAnswer: it does not answer.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        answer = (session or server.session or authorized_session()).request(
            method, server.url(resource), json=body, timeout=TIMEOUT_S
        )
        document = answer.json()
    except requests.JSONDecodeError:
        document = None
    except requests.exceptions.InvalidHeader:  # its message has the token in it
        raise UserError(
            "the credentials of Google Cloud give a token that HTTP does not allow",
            "run gcloud auth application-default login",
        ) from None
    except requests.exceptions.InvalidURL as error:
        raise UserError(f"Vertex AI cannot be asked: {error}", "check the project, the region and the ID") from None
    except (requests.RequestException, TransportError) as error:  # TransportError: from refreshing credentials
        raise NoAnswer(f"Vertex AI does not answer: {error}", "check the network and the region") from None
    except GoogleAuthError as error:
        raise UserError(
            f"Google Cloud refuses the credentials: {error}", "run gcloud auth application-default login"
        ) from None
    if answer.status_code >= 400 or not isinstance(document, dict):
        problem = f"Vertex AI refuses the request: {_message(document, answer.status_code)}"
        remedy = _REMEDIES.get(answer.status_code, "see its message; check the project and the region")
        if answer.status_code == 404:
            raise NotFound(problem, remedy)
        raise (NoAnswer if may_recover(answer.status_code) else UserError)(problem, remedy)
    return document


_REMEDIES = {
    401: "run gcloud auth application-default login",
    403: "the account needs roles/aiplatform.user, and roles/iam.serviceAccountUser on --service-account",
    404: "check the project, the region and the name",
}


def _message(document: Any, status: int) -> str:
    try:
        return str(document["error"]["message"])
    except (TypeError, KeyError):
        return f"status {status}"
