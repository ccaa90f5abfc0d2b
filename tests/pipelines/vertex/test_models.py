"""Tests of Vertex AI Model Registry with a recording server. Google's own client must send the same requests.

The rules of aliases are those of "How to use model version aliases" in the product's documentation. No real service has
been asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import requests

from components.platform.errors import UserError
from pipelines.retrain.registry.entry import registry_entry
from pipelines.retrain.state import Deployed
from pipelines.vertex.client import VertexAddress
from pipelines.vertex.models import VertexRegistry
from tests.pipelines.retrain.registry.conftest import RecordingServer, Request, Response, recording_server
from tests.support.schemas import PublishedClients

PARENT = "projects/p/locations/r"
MODEL = f"{PARENT}/models/mlgo-inlining"
ALIAS = re.compile(r"-?[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass
class Vertex:
    """A registry with one model.

    Attributes:
        versions: the model's versions, in the order of their registration.
        polls: how often an upload is polled before it is done.
        failure: message of failed uploads; "" if they succeed.
        page_size: versions of one answer.
        moves: whether the registry takes an alias from the version that had it.
        evaluations: those of each version.
        refused: message with which evaluations are refused; "" if they are not.
    """

    published: ClassVar[PublishedClients]
    versions: list[dict[str, Any]] = field(default_factory=list)
    polls: int = 1
    failure: str = ""
    page_size: int = 100
    moves: bool = True
    evaluations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refused: str = ""

    def respond(self, request: Request) -> Response:
        try:
            return self._respond(request)
        except ValueError as error:
            return 400, {"error": {"message": f"Invalid JSON payload received: {error}"}}

    def _respond(self, request: Request) -> Response:
        if "/operations/" not in request.path:  # of another API, google.longrunning
            self.published.check("vertex", request.method, request.path, request.body)
        path = request.path.removeprefix("/v1/")
        if path.startswith(f"{MODEL}:listVersions"):
            if not self.versions:
                return 404, {"error": {"message": "no such model"}}
            first = int(path.partition("?pageToken=")[2] or 0)
            more = {"nextPageToken": str(first + self.page_size)} if first + self.page_size < len(self.versions) else {}
            return 200, {"models": self.versions[first : first + self.page_size], **more}
        if path == f"{PARENT}/models:upload":
            self._upload(request.body)
            return 200, {"name": f"{MODEL}/operations/1"}
        if path == f"{MODEL}/operations/1":
            self.polls -= 1
            if self.polls > 0:
                return 200, {"name": f"{MODEL}/operations/1"}
            if self.failure:
                self.versions.pop()
                return 200, {"name": "o", "done": True, "error": {"code": 3, "message": self.failure}}
            version = self.versions[-1]["versionId"]
            return 200, {"name": "o", "done": True, "response": {"model": MODEL, "modelVersionId": version}}
        if match := re.fullmatch(rf"{re.escape(MODEL)}@(\d+):mergeVersionAliases", path):
            return 200, self._merge(match[1], request.body["versionAliases"])
        if match := re.fullmatch(rf"{re.escape(MODEL)}@(\d+)/evaluations(:import|\?pageSize=1)", path):
            evaluations = self.evaluations.setdefault(match[1], [])
            if request.method == "GET":
                return 200, {"modelEvaluations": evaluations[:1]} if evaluations else {}
            if self.refused:
                return 400, {"error": {"message": self.refused}}
            evaluations.append(request.body["modelEvaluation"])
            self.published.check("vertex-message", "POST", "ModelEvaluation", evaluations[-1])
            return 200, evaluations[-1]
        return 403, {"error": {"message": "permission denied"}}

    def _upload(self, body: dict[str, Any]) -> None:
        model = body["model"]
        if ("parentModel" in body) == ("modelId" in body) or ("parentModel" in body) != bool(self.versions):
            raise ValueError("modelId names a new model, parentModel one that exists")
        if not all(LABEL.fullmatch(text) for pair in model["labels"].items() for text in pair):
            raise ValueError(f"invalid labels {model['labels']}")
        if not model["artifactUri"].startswith("gs://") or not all(
            map(ALIAS.fullmatch, model.get("versionAliases", []))
        ):
            raise ValueError("invalid artifactUri or alias")
        version = {"name": MODEL, "versionId": str(len(self.versions) + 1), "versionAliases": [], **model}
        if not self.versions:
            version["versionAliases"] = ["default", *version["versionAliases"]]
        self.versions.append(version)

    def _merge(self, version_id: str, aliases: list[str]) -> dict[str, Any]:
        (version,) = [item for item in self.versions if item["versionId"] == version_id]
        for alias in aliases:
            if not ALIAS.fullmatch(alias):
                raise ValueError(f"invalid alias {alias}")
            holders = self.versions if self.moves and not alias.startswith("-") else [version]
            for item in holders:
                item["versionAliases"] = [name for name in item["versionAliases"] if name != alias.removeprefix("-")]
            if not alias.startswith("-"):
                version["versionAliases"].append(alias)
        return version

    def aliased(self) -> list[str]:
        """Return the versions with the alias `deployed`."""
        return [version["versionId"] for version in self.versions if "deployed" in version["versionAliases"]]


@pytest.fixture(autouse=True)
def google(published: PublishedClients) -> None:
    Vertex.published = published


def registry(server: RecordingServer, **more: Any) -> VertexRegistry:
    return VertexRegistry(VertexAddress("p", "r", requests.Session(), server.url), poll_s=0.01, **more)


def test_first_policy_is_a_model(deployed: Callable[..., Deployed]) -> None:
    vertex = Vertex(polls=3)
    with recording_server(vertex.respond) as server:
        assert registry(server).deploy(registry_entry(deployed("a"))) == f"{MODEL}@1"
    (version,) = vertex.versions
    assert version["artifactUri"] == "gs://bucket/runs/a/policy" and version["versionAliases"] == [
        "default",
        "deployed",
    ]
    assert version["description"] == "# Policy\n\nSmaller than -Oz.\n" and "containerSpec" not in version
    assert version["versionDescription"] == "inlining for LLVM 19.1.7: 4.25% smaller than -Oz, promoted on 1970-01-02"
    assert version["labels"] == {
        "problem": "inlining",
        "llvm_version": "19-1-7",
        "policy_digest": "a" * 63,
        "corpus_digest": "c" * 63,
    }


@pytest.mark.parametrize("moves", [True, False])
def test_next_policy_is_a_version_and_rollback_moves_the_alias(deployed: Callable[..., Deployed], moves: bool) -> None:
    """`moves`: whether the service removes the alias from its former version, or leaves that to the client."""
    vertex = Vertex(page_size=1, moves=moves)
    with recording_server(vertex.respond) as server:
        for digit, version in (("a", "1"), ("b", "2"), ("a", "1"), ("a", "1"), ("c", "3")):
            assert registry(server).deploy(registry_entry(deployed(digit))) == f"{MODEL}@{version}"
            assert vertex.aliased() == [version]
        count = len(server.sent("POST"))
        registry(server).deploy(registry_entry(deployed("c")))
        assert len(server.sent("POST")) == count, "repeating it changes nothing"
    assert len(vertex.versions) == 3
    merges = [request.body["versionAliases"] for request in server.sent("POST") if "merge" in request.path]
    assert merges[0] == ["deployed"], "the new version has the alias before the old one loses it"


def test_figures_are_an_evaluation_of_each_version(
    deployed: Callable[..., Deployed], capsys: pytest.CaptureFixture[str]
) -> None:
    vertex = Vertex()
    with recording_server(vertex.respond) as server:
        for digit in "aba":
            registry(server).deploy(registry_entry(deployed(digit)))
        assert [len(evaluations) for evaluations in vertex.evaluations.values()] == [1, 1]
        (evaluation,) = vertex.evaluations["1"]
        assert evaluation["metrics"] == {
            "reduction_percent": 4.25,
            "reduction_percent_low": 3.5,
            "reduction_percent_high": 5.0,
            "better_than_previous_percent": 0.75,
        }
        assert evaluation["metadata"]["policy_digest"] == "a" * 64 and evaluation["metadata"]["problem"] == "inlining"
        vertex.refused = "metrics_schema_uri is required"
        assert registry(server).deploy(registry_entry(deployed("c"))) == f"{MODEL}@3" and vertex.aliased() == ["3"]
    assert f"warning: {MODEL}@3 has no evaluation with its figures: " in capsys.readouterr().out
    assert vertex.evaluations["3"] == []


def test_failed_upload_is_reported(deployed: Callable[..., Deployed]) -> None:
    vertex = Vertex(failure="no access to gs://bucket")
    with recording_server(vertex.respond) as server:
        with pytest.raises(UserError, match=r"did not register gs://bucket/runs/a/policy: no access to gs://bucket"):
            registry(server).deploy(registry_entry(deployed("a")))
        with pytest.raises(UserError, match="refuses the request: permission denied") as error:
            registry(server).deploy(replace(registry_entry(deployed("a")), model="another"))
    assert "roles/aiplatform.user" in error.value.remedy and vertex.versions == []


def test_serving_image_is_passed_on(deployed: Callable[..., Deployed]) -> None:
    vertex = Vertex()
    with recording_server(vertex.respond) as server:
        registry(server, serving_image="r/tf2:1").deploy(registry_entry(deployed("a")))
    assert vertex.versions[0]["containerSpec"] == {"imageUri": "r/tf2:1"}


@pytest.mark.parametrize(
    ("more", "model", "named"),
    [
        ({}, "Inlining", "'Inlining' is no ID of a model"),
        ({}, "9", "'9' is no ID of a model"),
        ({"policy": "s3://bucket/policy"}, "", "s3://bucket/policy is not in Cloud Storage"),
        ({"policy": "/runs/policy"}, "", "/runs/policy is not in Cloud Storage"),
        ({"evaluation": "/nowhere"}, "", "/nowhere of the deployed policy has no model-card.md"),
    ],
)
def test_policy_that_cannot_be_registered_is_refused_before_any_request(
    deployed: Callable[..., Deployed], more: dict[str, Any], model: str, named: str
) -> None:
    with recording_server(Vertex().respond) as server:
        with pytest.raises(UserError, match=named):
            registry(server).deploy(registry_entry(deployed("a", **more), model))
        assert server.requests == []
