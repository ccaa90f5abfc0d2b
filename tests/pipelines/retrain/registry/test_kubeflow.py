"""Tests of Kubeflow's Model Registry with a recording server.

Each request must be the one that the published client (the package model-registry) sends for the same call. That client
has version v1 of the API only; requests of v1alpha3 are compared as those of v1. No real server has been asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage import digest, publish
from pipelines.cli.main import cli
from pipelines.retrain.registry import parse_registry
from pipelines.retrain.registry.entry import registry_entry
from pipelines.retrain.registry.kubeflow import TOKEN_VARIABLE, KubeflowRegistry
from pipelines.retrain.state import Deployed, load_state, save_state
from pipelines.vertex.models import VertexRegistry
from tests.pipelines.retrain.registry.conftest import Request, Response, recording_server
from tests.support.schemas import PublishedClients

ROOT = "/api/model_registry/"


@dataclass
class Kubeflow:
    """A registry; resources by kind.

    Attributes:
        fails: path of requests that are refused, for an interrupted registration.
        version: of its API.
    """

    published: ClassVar[PublishedClients]
    kinds: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"registered_models": [], "model_versions": [], "artifacts": []}
    )
    fails: str = ""
    version: str = "v1"

    def respond(self, request: Request) -> Response:
        root = f"{ROOT}{self.version}/"
        if not request.path.startswith(root):
            return 404, {}
        if self.fails and self.fails in request.path:
            return 503, {"code": "503", "message": "no database"}
        parts = urlsplit(request.path.removeprefix(root))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            path = request.path.replace(root, f"{ROOT}v1/")
            self.published.check("model-registry", request.method, path, request.body)
            return getattr(self, request.method.lower())(parts.path.split("/"), query, request.body)
        except ValueError as error:
            return 400, {"code": "400", "message": str(error)}

    def get(self, path: list[str], query: dict[str, str], _body: Any) -> Response:
        if path[0] == "model_versions" and path[2:] == ["artifacts"]:
            artifacts = [resource for resource in self.kinds["artifacts"] if resource["version"] == path[1]]
            items = [resource for resource in artifacts if resource["name"] == query["name"]]
            return 200, {"items": items, "size": len(items), "pageSize": 10, "nextPageToken": ""}
        if path == ["registered_models"]:
            return 200, {"items": self.kinds["registered_models"], "size": 0, "pageSize": 1, "nextPageToken": ""}
        parent = query.pop("parentResourceId", None)
        attributes = {**query, **({"registeredModelId": parent} if parent else {})}
        for resource in self.kinds[f"{path[0]}s"]:
            if attributes.items() <= resource.items():
                return 200, resource
        return 404, {"code": "404", "message": f"no {path[0]} found"}

    def post(self, path: list[str], _query: dict[str, str], body: Any) -> Response:
        if path[2:] == ["artifacts"]:
            return self._create("artifacts", {**body, "version": path[1]})
        return self._create(path[0], body)

    def patch(self, path: list[str], _query: dict[str, str], body: Any) -> Response:
        (resource,) = [resource for resource in self.kinds[path[0]] if resource["id"] == path[1]]
        resource.update(body)
        return 200, resource

    def _create(self, kind: str, body: dict[str, Any]) -> Response:
        if any(resource["name"] == body["name"] for resource in self.kinds[kind]):
            return 409, {"code": "409", "message": f"{body['name']} exists"}
        for value in body.get("customProperties", {}).values():
            typed = {"MetadataStringValue": "string_value", "MetadataDoubleValue": "double_value"}
            if set(value) != {"metadataType", typed[value["metadataType"]]}:
                raise ValueError(f"{value} is no MetadataValue")
        self.kinds[kind].append({**body, "id": str(len(self.kinds[kind]) + 1)})
        return 201, self.kinds[kind][-1]

    def deployed(self) -> str:
        (model,) = self.kinds["registered_models"]
        return str(model["customProperties"]["deployed"]["string_value"])


@pytest.fixture(autouse=True)
def client(published: PublishedClients) -> None:
    Kubeflow.published = published


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
def test_policies_are_versions_and_rollback_moves_the_name(deployed: Callable[..., Deployed], version: str) -> None:
    kubeflow = Kubeflow(version=version)
    with recording_server(kubeflow.respond) as server:
        for digit in "abac":
            name = KubeflowRegistry(server.url).deploy(registry_entry(deployed(digit)))
            assert name == f"mlgo-inlining:{digit * 12}" and kubeflow.deployed() == digit * 12
        count = len(server.requests) - len(server.sent("GET"))
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("c")))
        assert len(server.requests) - len(server.sent("GET")) == count, "repeating it changes nothing"
    assert {kind: len(resources) for kind, resources in kubeflow.kinds.items()} == {
        "registered_models": 1,
        "model_versions": 3,
        "artifacts": 3,
    }
    first, artifact = kubeflow.kinds["model_versions"][0], kubeflow.kinds["artifacts"][0]
    assert first["author"] == "me@host" and artifact["uri"] == "gs://bucket/runs/a/policy"
    properties = first["customProperties"]
    assert properties["model_card"]["string_value"] == "# Policy\n\nSmaller than -Oz.\n"
    assert properties["reduction_percent"]["double_value"] == 4.25
    assert properties["policy_digest"]["string_value"] == "a" * 64


def test_interrupted_registration_is_completed(deployed: Callable[..., Deployed]) -> None:
    kubeflow = Kubeflow(fails="/artifacts")
    with recording_server(kubeflow.respond) as server:
        with pytest.raises(UserError, match="status 503, no database"):
            KubeflowRegistry(server.url).deploy(registry_entry(deployed("a")))
        assert "customProperties" not in kubeflow.kinds["registered_models"][0], "nothing is deployed yet"
        kubeflow.fails = ""
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("a")))
    assert [len(resources) for resources in kubeflow.kinds.values()] == [1, 1, 1] and kubeflow.deployed() == "a" * 12


def test_other_properties_of_the_model_are_kept(deployed: Callable[..., Deployed]) -> None:
    theirs = {"team": {"metadataType": "MetadataStringValue", "string_value": "compilers"}}
    kubeflow = Kubeflow()
    kubeflow.kinds["registered_models"].append({"id": "1", "name": "ours", "customProperties": theirs})
    with recording_server(kubeflow.respond) as server:
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("a"), "ours"))
    assert kubeflow.kinds["registered_models"][0]["customProperties"].items() >= theirs.items()


def test_token_is_sent_only_if_set(deployed: Callable[..., Deployed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with recording_server(Kubeflow().respond) as server:
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("a")))
        assert all("Authorization" not in request.headers for request in server.requests)
        monkeypatch.setenv(TOKEN_VARIABLE, "t0ken\n")
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("b")))
        assert server.requests[-1].headers["Authorization"] == "Bearer t0ken"


@pytest.mark.parametrize(
    ("status", "document", "named"),
    [
        (200, {}, "has no id"),
        (302, {}, "status 302"),
        (404, {}, "status 404"),
        (404, {"message": "no route"}, "there is no api/model_registry/v1alpha3/registered_models"),
        (401, {"message": "no token"}, "status 401, no token"),
    ],
)
def test_answers_of_other_servers_are_reported(
    deployed: Callable[..., Deployed], status: int, document: dict[str, Any], named: str
) -> None:
    with recording_server(lambda _: (status, document)) as server, pytest.raises(UserError, match=named) as error:
        KubeflowRegistry(server.url).deploy(registry_entry(deployed("a")))
    assert server.url in str(error.value) or status == 200
    assert (TOKEN_VARIABLE in error.value.remedy) is (status == 401)


def test_rollback_moves_the_name_and_a_lost_registry_leaves_the_state(
    deployed: Callable[..., Deployed], tmp_path: Path
) -> None:
    state_path = str(tmp_path / "state.json")
    with publish(tmp_path / "policy", "policy") as directory:
        (directory / "policy.json").write_text("{}")
    before = deployed("a", policy=str(tmp_path / "policy"), policy_digest=digest(tmp_path / "policy"))
    save_state(state_path, load_state(state_path).promoted(before).promoted(deployed("b")))
    kubeflow = Kubeflow()

    def mlgo(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["retrain", *arguments, "--state", state_path], standalone_mode=False)
        if done.exception:
            raise done.exception
        return done.output

    with recording_server(kubeflow.respond) as server:
        assert f"registered: mlgo-inlining:{'b' * 12} is deployed" in mlgo("register", "--registry", server.url)
        mlgo("rollback", "--registry", server.url)
        assert kubeflow.deployed() == before.policy_digest[:12]
    with pytest.raises(UserError, match=r"does not answer(.|\n)*only the registry does not") as error:
        mlgo("register", "--registry", server.url)
    assert "then run mlgo retrain register" in error.value.remedy


def test_nothing_deployed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing is deployed in"):
        CliRunner().invoke(
            cli,
            ["retrain", "register", "--state", str(tmp_path / "s.json"), "--registry", "http://localhost:1"],
            standalone_mode=False,
            catch_exceptions=False,
        )


@pytest.mark.parametrize("text", ["vertex:p", "vertex:/r", "vertex:p/r/x", "localhost:8080", "ftp://host"])
def test_invalid_registry_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is neither vertex:PROJECT/REGION nor a URL"):
        parse_registry(text)


def test_registry_is_chosen_by_its_name() -> None:
    assert isinstance(parse_registry("vertex:p/r", "image"), VertexRegistry)
    assert parse_registry("https://host/x") == KubeflowRegistry("https://host/x")
    with pytest.raises(UserError, match="has no such image"):
        parse_registry("https://host", "image")
