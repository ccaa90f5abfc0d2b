"""Copies of a compiled pipeline with changes that every server needs: digests of images, the cache, retries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER, IMAGES
from pipelines.images import Image, given_images
from pipelines.spec import containers, expect_pipeline, ray_image, used_images, with_images

_FOLLOWING = {
    "cpuLimit": 1.0,
    "cpuRequest": 0.1,
    "memoryLimit": 2.0,
    "memoryRequest": 0.5,
    "resourceCpuLimit": "1",
    "resourceCpuRequest": "100m",
    "resourceMemoryLimit": "2G",
    "resourceMemoryRequest": "500M",
}
"""Resources of a step that only waits while a Ray cluster trains. KFP reads the strings, older versions the numbers
(CPUs and GB)."""


def with_digests(spec: Mapping[str, Any], images: Mapping[str, Image], ray: bool | None = False) -> dict[str, Any]:
    """Return a copy of a PipelineSpec with the digests of pushed images.

    Args:
        ray: whether a step starts a Ray cluster and needs the image of its nodes. None if that is unknown, as for a
            pipeline that is uploaded: the image is named if it was pushed.

    Raises:
        UserError: an image was not pushed, so a cluster could not pull it.
    """
    references = {}
    for key in _without_digest(spec, ray):
        if key not in images or "@sha256:" not in images[key].reference:
            if key == CLUSTER and ray is None:
                continue
            raise UserError(
                f"the image {key} has no digest in a registry, so a cluster cannot pull it",
                f"mlgo images build{' --all' if ray or key == CLUSTER else ''} --registry HOST/PROJECT/REPOSITORY && "
                "mlgo images push",
            )
        references[IMAGES[key]] = images[key].reference
    copy = with_images(dict(spec), references)
    for _label, container in containers(copy) if ray else ():
        if ray_image(container):
            container["resources"] = dict(_FOLLOWING)
    return copy


def with_given_digests(spec: Mapping[str, Any], images: str, ray: bool | None = False) -> dict[str, Any]:
    """Return `with_digests` of the images that --images names, which are read only if the pipeline lacks a digest."""
    return with_digests(spec, given_images(images) if _without_digest(spec, ray) else {}, ray)


def _without_digest(spec: Mapping[str, Any], ray: bool | None) -> tuple[str, ...]:
    """Return the keys of IMAGES whose digests a PipelineSpec does not have yet."""
    nodes = [image for _label, container in containers(spec) if (image := ray_image(container))]
    lacks_nodes = ray is not False and (any("@" not in image for image in nodes) or (ray and not nodes))
    return (*used_images(spec), *((CLUSTER,) if lacks_nodes else ()))


def dags(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tasks of each DAG of a PipelineSpec, by name: the root's, and those of components."""
    for component in (spec["root"], *spec.get("components", {}).values()):
        if "dag" in component:
            yield component["dag"]["tasks"]


@expect_pipeline
def without_cache(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose steps all run, even if the server has their results.

    kfp's client has an option for this, but it changes the root's tasks only, and ours are below an exit handler.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for tasks in dags(copy):
        for task in tasks.values():
            task["cachingOptions"] = {}  # enableCache: false, as protocol buffers write it
    return copy


@expect_pipeline
def without_literals(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose parameters may have any value, for servers that do not know `literals`."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for definition in copy["root"].get("inputDefinitions", {}).get("parameters", {}).values():
        definition.pop("literals", None)
    return copy
