"""Tests of what every server needs changed in a compiled pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.platform.errors import UserError
from pipelines.images import Image, given_images, read_images
from pipelines.spec import COMPILED, load_spec
from pipelines.spec_changes import (
    dags,
    with_digests,
    with_given_digests,
    without_cache,
    without_literals,
)


def training_container(images: Mapping[str, Image], ray: bool | None = False) -> dict[str, Any]:
    spec = with_digests(load_spec(COMPILED), images, ray)
    return dict(spec["deploymentSpec"]["executors"]["exec-ppo"]["container"])


def test_images_are_named_without_a_file() -> None:
    digest = "r/x@sha256:" + "1" * 64
    assert given_images(f"toolchain={digest}, training={digest}")["training"].reference == digest
    long = f"{'registry/' * 500}image@sha256:{'0' * 64}"
    assert given_images(f"toolchain={long}")["toolchain"].reference == long
    for text in (f"toolchian={digest}", "toolchain=r/x:latest", f"toolchain={digest},"):
        with pytest.raises(UserError, match="--images: "):
            given_images(text)


@pytest.mark.parametrize("ray", [False, True, None])
def test_pipeline_with_digests_needs_no_list_of_images(images: Path, tmp_path: Path, ray: bool | None) -> None:
    read = read_images(images)
    missing = str(tmp_path / "none.json")
    uploaded = with_digests(load_spec(COMPILED), read, ray=None)
    if ray:
        with pytest.raises(UserError, match="no images are built"):
            with_given_digests(uploaded, missing, ray)
    else:
        assert with_given_digests(uploaded, missing, ray) == uploaded
    nodes = with_digests(load_spec(COMPILED), {**read, "cluster": read["training"]}, ray)
    assert with_given_digests(nodes, missing, ray) == nodes


def test_step_that_waits_for_ray_requests_little_cpu(images: Path) -> None:
    read = read_images(images)
    read["cluster"] = read["training"]
    container = with_digests(load_spec(COMPILED), read, ray=True)["deploymentSpec"]["executors"]["exec-ppo"][
        "container"
    ]
    before = training_container(read)
    assert set(container["resources"]) == set(before["resources"])
    assert container["resources"]["cpuRequest"] < 1 < before["resources"]["cpuRequest"]
    assert container["resources"]["resourceCpuRequest"] == "100m"


@pytest.mark.parametrize("ray", [False, True])
def test_pipeline_with_importer_is_accepted(images: Path, tmp_path: Path, ray: bool) -> None:
    pipeline = yaml.safe_load(COMPILED.read_text())
    importer = {"importer": {"artifactUri": {"constant": "gs://b/x"}, "typeSchema": {"schemaTitle": "system.Artifact"}}}
    pipeline["deploymentSpec"]["executors"]["exec-importer"] = importer
    (tmp_path / "importing.yaml").write_text(yaml.safe_dump(pipeline))
    read = read_images(images)
    read["cluster"] = read["training"]
    spec = with_digests(load_spec(tmp_path / "importing.yaml"), read, ray)
    assert spec["deploymentSpec"]["executors"]["exec-importer"] == importer


def test_no_cache_reaches_steps_below_exit_handler() -> None:
    spec = load_spec(COMPILED)
    assert any(task.get("cachingOptions") == {"enableCache": True} for tasks in dags(spec) for task in tasks.values())
    tasks = {name: task for dag in dags(without_cache(spec)) for name, task in dag.items()}
    assert {"corpus", "trace", "tune", "finish"} <= set(tasks)
    assert all(task["cachingOptions"] == {} for task in tasks.values())
    assert spec == load_spec(COMPILED), "the original is unchanged"


def test_uploaded_pipeline_names_cluster_image_only_if_it_was_pushed(images: Path) -> None:
    read = read_images(images)
    assert "MLGO_CLUSTER_IMAGE" not in str(with_digests(load_spec(COMPILED), read, ray=None))
    read["cluster"] = read["training"]
    before = training_container(read)["resources"]
    container = with_digests(load_spec(COMPILED), read, ray=None)["deploymentSpec"]["executors"]["exec-ppo"][
        "container"
    ]
    assert "MLGO_CLUSTER_IMAGE" in str(container) and container["resources"] == before


def test_parameters_without_literals_are_otherwise_equal() -> None:
    spec = load_spec(COMPILED)
    plain = without_literals(spec)
    definitions = spec["root"]["inputDefinitions"]["parameters"]
    removed = [name for name, definition in definitions.items() if definition.pop("literals", None)]
    assert "preset" in removed and plain == spec
