"""Model registries: the deployed policy as a version of a model in Vertex AI or in Kubeflow."""

from __future__ import annotations

from components.platform.errors import UserError
from components.platform.storage.downloads.http_download import is_http_url
from pipelines.retrain.registry.entry import ModelRegistry
from pipelines.retrain.registry.kubeflow import KubeflowRegistry

_VERTEX = "vertex:"


def parse_registry(text: str, serving_image: str = "") -> ModelRegistry:
    """Return the registry that --registry, or the pipeline's parameter, names. UserError if it names none."""
    if text.startswith(_VERTEX):
        from pipelines.vertex.models import VertexRegistry

        if registry := VertexRegistry.parse(text.removeprefix(_VERTEX), serving_image):
            return registry
    elif is_http_url(text):
        if serving_image:
            raise UserError(
                f"--serving-image {serving_image}: Kubeflow's Model Registry has no such image", "leave it out"
            )
        return KubeflowRegistry(text)
    raise UserError(
        f"the model registry {text!r} is neither vertex:PROJECT/REGION nor a URL",
        "for example vertex:my-project/europe-west4, or http://localhost:8080",
    )
