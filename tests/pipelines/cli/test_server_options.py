"""Options that name a server: what can never answer is refused before the first request."""

from __future__ import annotations

import pytest

from components.platform.errors import UserError
from pipelines.cli.server_options import choose_server
from pipelines.submit.kfp import KfpPipelines
from pipelines.vertex.server import VertexPipelines


@pytest.mark.parametrize(
    "host",
    [
        "http://",
        "https:///pipeline",
        "http://:8080",
        "http://host:port",
        "http://host:0",
        "http://host:99999",
        "http://[::1",
        "http://ho st",
        "http://host\n",
        "ftp://host",
        ":8080",
        "/pipeline",
    ],
)
def test_urls_without_a_host_are_refused(host: str) -> None:
    with pytest.raises(UserError, match="is not the URL of a server"):
        choose_server(host=host)


@pytest.mark.parametrize("host", ["http://h", "https://h/pipeline", "h:8080", "http://[::1]:8080"])
def test_urls_of_servers_are_accepted(host: str) -> None:
    assert isinstance(choose_server(host=host), KfpPipelines)


@pytest.mark.parametrize("text", ["p", "p/", "/r", "p/r/s", "p/r.evil.example", "p/r#", "my project/r", "p/R", "p/r\n"])
def test_projects_and_regions_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not of the form PROJECT/REGION"):
        choose_server(vertex=text)


@pytest.mark.parametrize("text", ["my-project/europe-west4", "123/us-central1", "example.com:my-project/global"])
def test_projects_of_google_cloud_are_accepted(text: str) -> None:
    assert isinstance(choose_server(vertex=text), VertexPipelines)
