"""Submit the compiled pipeline to Vertex AI Pipelines: POST projects.locations.pipelineJobs of its REST API (v1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from components.core.console import UserError, say
from pipelines.spec import parameter_values
from pipelines.submit.polling import PATIENCE_S, TIMEOUT_S, NoAnswer, may_recover, poll, report_run_continues

POLL_S = 30.0
_CONSOLE = "https://console.cloud.google.com/vertex-ai/pipelines/runs"


def submit_vertex(
    spec: Mapping[str, Any],
    given: Mapping[str, str],
    project: str,
    region: str,
    pipeline_root: str,
    name: str,
    session: Any = None,
    endpoint: str = "",
) -> str:
    """Create a PipelineJob; return its resource name.

    Args:
        pipeline_root: gs://BUCKET/PATH.
        session: sends authorized requests; None for the default credentials of Google Cloud.
        endpoint: URL of the service; empty for the region's.

    Raises:
        UserError: a parameter is invalid, there are no credentials, or the service refuses (with its message).
    """
    parameters = {key: value for key, value in parameter_values(spec, given).items() if key in given}
    job = {
        "displayName": name,
        "pipelineSpec": dict(spec),
        "runtimeConfig": {"gcsOutputDirectory": pipeline_root, "parameterValues": parameters},
    }
    base = endpoint or f"https://{region}-aiplatform.googleapis.com"
    url = f"{base}/v1/projects/{project}/locations/{region}/pipelineJobs"
    return str(_call(session or _session(), "POST", url, job)["name"])


def follow_vertex(
    resource: str,
    region: str,
    session: Any = None,
    endpoint: str = "",
    poll_s: float = POLL_S,
    patience_s: float = PATIENCE_S,
) -> None:
    """Print each task's state as it changes until the job ends.

    Raises:
        UserError: the job did not succeed, or the service did not answer for `patience_s`.
    """
    session = session or _session()
    url = f"{endpoint or f'https://{region}-aiplatform.googleapis.com'}/v1/{resource}"
    shown_states: dict[str, str] = {}
    with report_run_continues(resource, _CONSOLE):
        while True:
            job = poll(lambda: _call(session, "GET", url, None), resource, _CONSOLE, patience_s)
            for task in job.get("jobDetail", {}).get("taskDetails", []):
                if shown_states.get(task["taskName"]) != task.get("state"):
                    shown_states[task["taskName"]] = task.get("state")
                    say(f"[{task['taskName']}] {task.get('state', 'unknown').lower()}")
            state = job.get("state", "").removeprefix("PIPELINE_STATE_")
            if state == "SUCCEEDED":
                return
            if state in ("FAILED", "CANCELLED"):
                message = job.get("error", {}).get("message", state.lower())
                raise UserError(f"{resource} did not succeed: {message}", f"see it at {_CONSOLE}")
            time.sleep(poll_s)


def _session() -> Any:
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


def _call(session: Any, method: str, url: str, body: Any) -> dict[str, Any]:
    import requests
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        answer = session.request(method, url, json=body, timeout=TIMEOUT_S)
        document = answer.json()
    except requests.JSONDecodeError:
        document = None
    except (requests.RequestException, TransportError) as error:  # TransportError: from refreshing credentials
        raise NoAnswer(f"Vertex AI does not answer: {error}", "check the network and the region") from None
    except GoogleAuthError as error:
        raise UserError(
            f"Google Cloud refuses the credentials: {error}", "run gcloud auth application-default login"
        ) from None
    if answer.status_code >= 400 or not isinstance(document, dict):
        problem = f"Vertex AI refuses the request: {_message(document, answer.status_code)}"
        kind = NoAnswer if may_recover(answer.status_code) else UserError
        raise kind(problem, "see its message; check the project and the region")
    return document


def _message(document: Any, status: int) -> str:
    try:
        return str(document["error"]["message"])
    except (TypeError, KeyError):
        return f"status {status}"
