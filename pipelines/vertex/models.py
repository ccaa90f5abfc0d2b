"""Vertex AI Model Registry, in its REST API (v1): projects.locations.models.

Each policy is a version of one model. Its label `policy_digest` identifies it, the alias `deployed` names the deployed
one. An alias belongs to one version of a model at a time. An evaluation of each version has its figures.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.uri import parse_location
from pipelines.retrain.registry.entry import ALIAS, RegistryEntry
from pipelines.submit.polling import NoAnswer, NotFound, poll
from pipelines.vertex.client import VertexAddress, call, pages, parse_vertex

POLL_S = 5.0
_CONSOLE = "https://console.cloud.google.com/vertex-ai/models"
_MODEL_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_LABELS = ("problem", "llvm_version", "policy_digest", "corpus_digest", "toolchain_digest")
"""What can be searched for."""
_LABEL_LENGTH = 63
_SHORT_DIGEST = 12
_DESCRIPTION_BYTES = 5_000
"""Longest description that is sent; the API names no limit, and cards have a few thousand characters."""


@dataclass(frozen=True)
class VertexRegistry:
    """The models of a project and region.

    Attributes:
        serving_image: container image that serves the model on endpoints; empty for none. A policy is not served: a
            compiler embeds it. Clients of Vertex AI ask for an image nevertheless.
    """

    server: VertexAddress
    serving_image: str = ""
    poll_s: float = POLL_S

    @classmethod
    def parse(cls, text: str, serving_image: str) -> VertexRegistry | None:
        """Return the registry in PROJECT/REGION, None if `text` has another form."""
        server = parse_vertex(text)
        return cls(server, serving_image) if server else None

    def deploy(self, entry: RegistryEntry) -> str:
        """See ModelRegistry.

        Raises:
            UserError: the policy is not in Cloud Storage, the model's name is invalid, or the service refuses.
        """
        if not _MODEL_ID.fullmatch(entry.model):
            raise UserError(
                f"{entry.model!r} is no ID of a model in Vertex AI: up to 63 of a-z, 0-9, _ and -, beginning with a "
                "letter",
                "pass --model mlgo-inlining",
            )
        if getattr(parse_location(entry.uri), "scheme", "") != "gs":
            raise UserError(
                f"the policy at {entry.uri} is not in Cloud Storage, which Vertex AI reads",
                "train with --pipeline-root gs://BUCKET/PATH, or use a registry of Kubeflow",
            )
        model = f"{self.server.parent}/models/{entry.model}"
        versions = self._versions(model)
        known = (v["versionId"] for v in versions if v.get("labels", {}).get("policy_digest") == _label(entry.digest))
        version = str(next(known, "")) or self._upload(entry, model, first=not versions)
        self._move_alias(model, version)
        self._import_evaluation(f"{model}@{version}", entry)
        return f"{model}@{version}"

    def _versions(self, model: str) -> list[Mapping[str, Any]]:
        """Return the versions of a model; none if there is no such model."""
        with suppress(NotFound):
            return list(pages(self.server, f"{model}:listVersions", "models"))
        return []

    def _upload(self, entry: RegistryEntry, model: str, first: bool) -> str:
        card = entry.card or entry.summary
        if len(card.encode()) > _DESCRIPTION_BYTES:
            card = card.encode()[:_DESCRIPTION_BYTES].decode(errors="ignore") + "…"
        described: dict[str, Any] = {
            "displayName": entry.model,
            "versionDescription": entry.summary,
            "description": card,
            "artifactUri": entry.uri,
            "labels": {name: _label(entry.facts[name]) for name in _LABELS if name in entry.facts},
        }
        if self.serving_image:
            described["containerSpec"] = {"imageUri": self.serving_image}
        if first:
            described["versionAliases"] = [ALIAS]
        where = {"modelId": entry.model} if first else {"parentModel": model}
        operation = call(self.server, "POST", f"{self.server.parent}/models:upload", {**where, "model": described})
        while not operation.get("done"):
            time.sleep(self.poll_s)
            name = str(operation["name"])
            operation = poll(partial(call, self.server, "GET", name), name, _CONSOLE)
        if "error" in operation:
            message = operation["error"].get("message", "no message")
            raise UserError(f"Vertex AI did not register {entry.uri}: {message}", f"see {_CONSOLE}")
        return str(operation["response"]["modelVersionId"])

    def _import_evaluation(self, version: str, entry: RegistryEntry) -> None:
        """Import the figures as an evaluation of a version that has none.

        A refusal is a warning only: the schemas of metrics that the service publishes are those of classification,
        regression and so on, none fits, so the evaluation names none; and the model card has the figures, too.

        Args:
            version: resource name, MODEL@VERSION.
        """
        evaluation = {
            "displayName": f"held-out modules, {entry.digest[:_SHORT_DIGEST]}",
            "metrics": dict(entry.figures),
            "metadata": dict(entry.facts),
        }
        try:
            if not call(self.server, "GET", f"{version}/evaluations?pageSize=1").get("modelEvaluations"):
                call(self.server, "POST", f"{version}/evaluations:import", {"modelEvaluation": evaluation})
        except NoAnswer:
            raise
        except UserError as error:
            say(f"warning: {version} has no evaluation with its figures: {error.problem}")

    def _move_alias(self, model: str, version: str) -> None:
        """Give the alias to a version first, and then take it from others, so that it always names a policy."""
        holders = self._holders(model)
        if version not in holders:
            self._merge(model, version, ALIAS)
            holders = self._holders(model)
        for other in holders:
            if other != version:
                self._merge(model, other, f"-{ALIAS}")

    def _holders(self, model: str) -> list[str]:
        return [str(one["versionId"]) for one in self._versions(model) if ALIAS in one.get("versionAliases", ())]

    def _merge(self, model: str, version: str, alias: str) -> None:
        call(self.server, "POST", f"{model}@{version}:mergeVersionAliases", {"versionAliases": [alias]})


def _label(text: str) -> str:
    """Return a text in the characters that labels may have."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:_LABEL_LENGTH]
