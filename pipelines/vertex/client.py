"""Requests to Vertex AI's REST API (v1): credentials, and one clear error for each way to fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from components.platform.errors import UserError
from components.platform.storage.downloads.retry import may_recover
from pipelines.submit.polling import TIMEOUT_S, NoAnswer, NotFound

_JOB_ID = re.compile(r"[a-z0-9][-a-z0-9]{0,127}")
_JOB = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/pipelineJobs/[a-z0-9][-a-z0-9]{0,127}")
_PROJECT_REGION = re.compile(r"(?P<project>([a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*)/(?P<region>[a-z]([a-z0-9-]*[a-z0-9])?)")
"""A project's ID, of a domain's organization DOMAIN:ID, or its number."""


@dataclass(frozen=True)
class VertexAddress:
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


def parse_vertex(text: str) -> VertexAddress | None:
    """Return the project and region in PROJECT/REGION; None if they cannot be: both become part of URLs."""
    match = _PROJECT_REGION.fullmatch(text)
    return VertexAddress(match["project"], match["region"]) if match else None


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


def call(server: VertexAddress, method: str, resource: str, body: Any = None) -> dict[str, Any]:
    """Return the service's JSON answer to a request for a resource.

    Raises:
        UserError: there are no credentials, or the service refuses.
        NotFound: there is no such resource.
        NoAnswer: it does not answer.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        response = (server.session or authorized_session()).request(
            method, server.url(resource), json=body, timeout=TIMEOUT_S
        )
        document = response.json()
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
    if response.status_code >= 400 or not isinstance(document, dict):
        problem = f"Vertex AI refuses the request: {_message(document, response.status_code)}"
        remedy = _REMEDIES.get(response.status_code, "see its message; check the project and the region")
        if response.status_code == 404:
            raise NotFound(problem, remedy)
        raise (NoAnswer if may_recover(response.status_code) else UserError)(problem, remedy)
    return document


def pages(server: VertexAddress, resource: str, kind: str, **query: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what a resource lists as `kind`, page by page. Raises as `call`."""
    while True:
        answer = call(server, "GET", f"{resource}?{urlencode(query)}" if query else resource)
        yield from answer.get(kind, ())
        if not (token := answer.get("nextPageToken")):
            return
        query["pageToken"] = token


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
