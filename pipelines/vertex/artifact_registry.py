"""Store a pipeline for Vertex AI, in a repository of Artifact Registry with the format Kubeflow Pipelines.

The request is that of kfp.registry.RegistryClient; a PipelineJob names the stored pipeline as its templateUri.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from components.platform.errors import UserError
from components.platform.storage.downloads.retry import may_recover
from pipelines.submit.polling import TIMEOUT_S, NoAnswer
from pipelines.vertex.client import VertexAddress, authorized_session

_REPOSITORY = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PACKAGE = re.compile(r"[a-z][-a-z0-9]{3,127}")
_TAG = re.compile(r"(?!sha256:)[a-z0-9][a-z0-9._-]{0,127}")
_STORED = re.compile(
    r"https://[a-z0-9-]+-kfp\.pkg\.dev/[^/\s]+/[^/\s]+/[^/\s]+/(sha256:[0-9a-f]{64}|[a-z0-9][a-z0-9._-]*)"
)


def check_template(uri: str) -> None:
    """Raise UserError for a URI that is no stored pipeline."""
    if not _STORED.fullmatch(uri):
        raise UserError(
            f"--stored-pipeline {uri!r} is no pipeline in Artifact Registry",
            "https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY/PIPELINE/TAG, as mlgo pipeline upload --vertex prints it",
        )


def upload_template(server: VertexAddress, repository: str, spec: Mapping[str, Any], tag: str, host: str = "") -> str:
    """Store a pipeline; return its URI, with the digest of its content.

    Args:
        repository: name of a repository of the project in the region.
        spec: PipelineSpec, whose name becomes that of the package.
        tag: names this version; a tag that exists moves to it.
        host: URL of the registry; empty for the region's.

    Raises:
        UserError: a name is invalid, there are no credentials, or the registry refuses.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError

    name = str(spec["pipelineInfo"]["name"])
    for what, text, form in (("repository", repository, _REPOSITORY), ("name", name, _PACKAGE), ("tag", tag, _TAG)):
        if not form.fullmatch(text):
            raise UserError(
                f"Artifact Registry takes no {what} {text!r}", "lowercase letters, digits and dashes, a letter first"
            )
    url = f"{host or f'https://{server.region}-kfp.pkg.dev'}/{server.project}/{repository}"
    content = yaml.safe_dump(dict(spec), sort_keys=True)
    try:
        response = (server.session or authorized_session()).post(
            url, data={"tags": tag}, files={"content": (f"{name}.yaml", content)}, timeout=TIMEOUT_S
        )
    except requests.exceptions.InvalidHeader:  # its message has the token in it
        raise UserError("the credentials give a token that HTTP does not allow", "log in again with gcloud") from None
    except (requests.RequestException, GoogleAuthError) as error:
        raise NoAnswer(f"Artifact Registry does not answer: {error}", "check the network and the region") from None
    if not response.ok:
        problem = f"Artifact Registry refuses {url}: {response.status_code} {response.text.strip()[:300]}"
        remedy = (
            f"gcloud artifacts repositories create {repository} --repository-format=kfp --location={server.region} "
            f"--project={server.project}; the account needs roles/artifactregistry.writer there"
        )
        raise (NoAnswer if may_recover(response.status_code) else UserError)(problem, remedy)
    package, slash, version = response.text.strip().partition("/")
    if not slash:
        raise UserError(
            f"Artifact Registry answers {response.text[:200]!r}, no package and version", "check the region"
        )
    return f"{url}/{package}/{version}"
