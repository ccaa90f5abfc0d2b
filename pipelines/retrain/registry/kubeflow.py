"""Kubeflow's Model Registry, in its REST API (v1 or v1alpha3, api/openapi/model-registry.yaml of its repository).

Each policy is a version of one registered model, with an artifact that names its location. The registry has no aliases:
the property `deployed` of the registered model is the name of the deployed version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.json_request import read_token, request_json
from pipelines.retrain.registry.entry import ALIAS, RegistryEntry
from pipelines.submit.polling import TIMEOUT_S

TOKEN_VARIABLE = "MODEL_REGISTRY_TOKEN"
"""Environment variable with a bearer token; without it requests have none, as inside a cluster."""
_ROOTS = ("api/model_registry/v1", "api/model_registry/v1alpha3")
"""Paths of the API's versions, the newest first. The routes and bodies that are used here are the same in both."""
_VERSION_LENGTH = 12


@dataclass(frozen=True)
class KubeflowRegistry:
    """The registry at `url`, https://HOST or http://HOST:PORT."""

    url: str

    def deploy(self, entry: RegistryEntry) -> str:
        """See ModelRegistry.

        Raises:
            UserError: the registry does not answer or refuses, or its answer is not one of a model registry.
        """
        model = self._find("registered_model", name=entry.model) or self._post(
            "registered_models",
            {"name": entry.model, "description": "Policies that LLVM takes optimization decisions with."},
        )
        name = entry.digest[:_VERSION_LENGTH]
        version = self._find("model_version", name=name, parentResourceId=_id(model)) or self._post(
            "model_versions",
            {
                "name": name,
                "registeredModelId": _id(model),
                "description": entry.summary,
                "author": entry.author,
                "customProperties": _properties({**entry.facts, "model_card": entry.card}, entry.figures),
            },
        )
        artifacts = f"model_versions/{_id(version)}/artifacts"
        # A version whose registration was interrupted has none.
        if not (self._find(artifacts, name=name) or {}).get("items"):
            self._post(
                artifacts,
                {
                    "artifactType": "model-artifact",
                    "name": name,
                    "uri": entry.uri,
                    "modelFormatName": "tensorflow",
                    "modelFormatVersion": "2",
                    "state": "LIVE",
                },
            )
        current = model.get("customProperties") or {}
        if current.get(ALIAS, {}).get("string_value") != name:
            properties = {**current, **_properties({ALIAS: name}, {})}
            self._request("PATCH", f"registered_models/{_id(model)}", {"customProperties": properties})
        return f"{entry.model}:{name}"

    @cached_property
    def _root(self) -> str:
        """Path of the newest version of the API that the server has, the oldest one if it has none."""
        for root in _ROOTS[:-1]:
            status, _document = self._send("GET", f"{root}/registered_models", query={"pageSize": "1"})
            if status != 404:
                return root
        return _ROOTS[-1]

    def _find(self, kind: str, **query: str) -> dict[str, Any] | None:
        """Return the resource with these properties, None if there is none."""
        return self._request("GET", kind, query=query)

    def _post(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        document = self._request("POST", kind, body)
        if document is None:
            raise UserError(f"there is no {self._root}/{kind} at {self.url}", "check the address of the model registry")
        return document

    def _request(
        self, method: str, resource: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Return the answer to a request, None for status 404."""
        status, document = self._send(method, f"{self._root}/{resource}", body, query)
        if status == 404 and isinstance(document, dict) and "message" in document:
            return None
        if status >= 300 or not isinstance(document, dict):
            message = document.get("message") if isinstance(document, dict) else None
            raise UserError(
                f"the model registry at {self.url} refuses {method} {resource}: status {status}"
                + (f", {message}" if message else ""),
                f"set {TOKEN_VARIABLE}" if status in (401, 403) else "check that it is a model registry",
            )
        return document

    def _send(
        self, method: str, route: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and document of an answer, None for one that is not JSON. UserError without an answer."""
        url = f"{self.url.rstrip('/')}/{route}"
        service = f"the model registry at {self.url}"
        answer = request_json(method, url, service, _log_in, TIMEOUT_S, json=body, params=query)
        return answer.status, answer.document


def _log_in(request: Any) -> Any:
    if token := read_token(TOKEN_VARIABLE):
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _id(resource: Mapping[str, Any]) -> str:
    try:
        return str(resource["id"])
    except KeyError:
        raise UserError("the model registry's answer has no id", "check that it is a model registry") from None


def _properties(texts: Mapping[str, str], numbers: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return custom properties, without empty texts."""
    strings = {
        name: {"metadataType": "MetadataStringValue", "string_value": text} for name, text in texts.items() if text
    }
    doubles = {
        name: {"metadataType": "MetadataDoubleValue", "double_value": number} for name, number in numbers.items()
    }
    return strings | doubles
