"""Storing a pipeline for Vertex AI: the request is the one that kfp's own client sends."""

from __future__ import annotations

import email
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from click.testing import CliRunner

from components.platform.errors import UserError
from pipelines.cli.main import cli
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.options import SubmitOptions
from pipelines.vertex.artifact_registry import check_template, upload_template
from pipelines.vertex.client import VertexAddress
from pipelines.vertex.server import VertexPipelines
from tests.servers.http_server import JsonHandler, serving
from tests.support.schemas import PIPELINES_PYTHON, ROOT

DIGEST = f"sha256:{'a' * 64}"
URI = "https://europe-west4-kfp.pkg.dev/p/pipelines/mlgo-training/2026-01"
SPEC = load_spec(COMPILED)
KFP = """
import sys
from kfp.registry import RegistryClient
from requests.auth import AuthBase
class No(AuthBase):
    def __call__(self, request): return request
print(RegistryClient(host=sys.argv[1], auth=No()).upload_pipeline(sys.argv[2], tags="2026-01"))
"""


@contextmanager
def registry(status: int = 200, response: str = f"mlgo-training/{DIGEST}") -> Iterator[tuple[str, list[Any]]]:
    """Serve a repository; yield its URL and the uploads: path and fields of the form."""
    uploads: list[Any] = []

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
            message: Any = email.message_from_bytes(head + content)
            parts = {
                part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
                for part in message.get_payload()
            }
            uploads.append((self.path, parts))
            self.send(response.encode(), "text/plain", status)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url, uploads


def test_upload_is_that_of_kfps_own_client(tmp_path: Path) -> None:
    server = VertexAddress("p", "europe-west4", requests.Session())
    (tmp_path / "mlgo-training.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=True))
    with registry() as (url, uploads):
        uri = upload_template(server, "pipelines", SPEC, "2026-01", url)
        command = [str(PIPELINES_PYTHON), "-c", KFP, f"{url}/p/pipelines", str(tmp_path / "mlgo-training.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=True)
    ours, kfps = uploads
    assert ours == kfps and ours[0] == "/p/pipelines" and ours[1]["tags"] == b"2026-01"
    assert yaml.safe_load(ours[1]["content"]) == SPEC
    assert uri == f"{url}/p/pipelines/mlgo-training/{DIGEST}" and DIGEST in done.stdout


@pytest.mark.parametrize(
    ("status", "response", "named"),
    [
        (404, "Repository does not exist", "gcloud artifacts repositories create pipelines --repository-format=kfp"),
        (403, "denied", "roles/artifactregistry.writer"),
        (200, "<html>", "no package and version"),
    ],
)
def test_refusals_name_the_remedy(status: int, response: str, named: str) -> None:
    server = VertexAddress("p", "europe-west4", requests.Session())
    with registry(status, response) as (url, _uploads), pytest.raises(UserError, match=named):
        upload_template(server, "pipelines", SPEC, "2026-01", url)


@pytest.mark.parametrize(("repository", "tag"), [("Pipelines", "1"), ("pipelines", "A"), ("pipelines", DIGEST)])
def test_names_that_the_registry_does_not_take_are_refused(repository: str, tag: str) -> None:
    with pytest.raises(UserError, match="Artifact Registry takes no"):
        upload_template(VertexAddress("p", "r", requests.Session()), repository, SPEC, tag, "http://127.0.0.1:1")


def test_stored_pipeline_is_a_uri_with_tag_or_digest() -> None:
    check_template(URI)
    check_template(URI.replace("2026-01", DIGEST))
    for wrong in ("mlgo-training", "https://example.com/p/r/n/t", f"{URI}/more", "https://r-kfp.pkg.dev/p/r/n"):
        with pytest.raises(UserError, match="is no pipeline in Artifact Registry"):
            check_template(wrong)


def test_job_of_a_stored_pipeline_has_typed_parameters_and_no_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.submit.run_checks.check_bucket_exists", lambda *_arguments: None)
    options = SubmitOptions(
        load_spec(COMPILED),
        parameters={"recipe": "demo", "seed": "3"},
        pipeline_root="gs://bucket/kfp",
        stored_pipeline=URI,
    )
    server = VertexPipelines(VertexAddress("p", "r"))
    request = server.prepare(options)
    assert request.parameters == {"recipe": "demo", "seed": 3} and request.package is None
    with pytest.raises(UserError, match="--small changes the pipeline, which is stored"):
        server.prepare(replace(options, small=True))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("upload", "--vertex", "p/r"), "--vertex without --repository"),
        (("upload", "--host", "http://x", "--repository", "r"), "--repository: KFP stores pipelines itself"),
        (("submit", "--vertex", "p/r", "--stored-pipeline", "mlgo-training"), "is no pipeline in Artifact Registry"),
    ],
)
def test_contradicting_options_are_refused(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(UserError, match=named):
        CliRunner().invoke(cli, ["pipeline", *arguments], catch_exceptions=False, standalone_mode=False)
