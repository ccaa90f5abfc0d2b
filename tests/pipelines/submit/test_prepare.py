"""Tests of what submissions change in a compiled pipeline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from components.platform.errors import UserError
from components.platform.launcher.notify import NOTIFY_VARIABLE
from pipelines.images import given_images, read_images
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec, used_images
from pipelines.submit.prepare import (
    dags,
    notify_settings,
    platform_spec,
    ready_spec,
    retries_for_vertex,
    security_settings,
    without_cache,
)

DOCKER = Path(__file__).parents[3] / "docker"


def test_only_exit_handler_gets_webhook_secret() -> None:
    spec, pods = notify_settings(load_spec(COMPILED), "mlgo-notify")
    ((label, config),) = pods.items()
    assert label == "exec-finish"
    (secret,) = config["secretAsEnv"]
    assert secret["secretName"] == "mlgo-notify"
    assert secret["optional"], "a pod waits for a Secret that is missing, without an end"
    told = {label: "mlgo-notify" in str(executor) for label, executor in spec["deploymentSpec"]["executors"].items()}
    assert [label for label, named in told.items() if named] == ["exec-finish"]
    assert secret["keyToEnv"] == [{"secretKey": "url", "envVar": NOTIFY_VARIABLE}]
    assert "notify" not in COMPILED.read_text(), "no parameter, which the server would store and show"


@pytest.mark.parametrize("secret", ["https://hooks.example.com/s3cret", "Mlgo", "a" * 254])
def test_invalid_secret_name_is_refused_without_printing_it(secret: str) -> None:
    with pytest.raises(UserError, match="is not the name of a Kubernetes Secret") as error:
        notify_settings(load_spec(COMPILED), secret)
    assert secret not in str(error.value) and "kubectl create secret" in error.value.remedy


def test_images_are_named_without_a_file() -> None:
    digest = "r/x@sha256:" + "1" * 64
    assert given_images(f"toolchain={digest}, training={digest}")["training"].reference == digest
    long = f"{'registry/' * 500}image@sha256:{'0' * 64}"
    assert given_images(f"toolchain={long}")["toolchain"].reference == long
    for text in (f"toolchian={digest}", "toolchain=r/x:latest", f"toolchain={digest},"):
        with pytest.raises(UserError, match="--images: "):
            given_images(text)


def test_notify_secret_without_exit_handler_is_refused() -> None:
    spec = load_spec(COMPILED)
    del spec["deploymentSpec"]["executors"]["exec-finish"]
    with pytest.raises(UserError, match="no step of the pipeline reports"):
        notify_settings(spec, "mlgo-notify")


def test_step_that_waits_for_ray_requests_little_cpu(images: Path) -> None:
    read = read_images(images)
    read["cluster"] = read["training"]
    container = ready_spec(load_spec(COMPILED), read, ray=True)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
    before = ready_spec(load_spec(COMPILED), read)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
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
    spec = ready_spec(load_spec(tmp_path / "importing.yaml"), read, ray)
    assert spec["deploymentSpec"]["executors"]["exec-importer"] == importer


def test_no_cache_reaches_steps_below_exit_handler() -> None:
    spec = load_spec(COMPILED)
    assert any(task.get("cachingOptions") == {"enableCache": True} for tasks in dags(spec) for task in tasks.values())
    tasks = {name: task for dag in dags(without_cache(spec)) for name, task in dag.items()}
    assert {"corpus", "trace", "tune", "finish"} <= set(tasks)
    assert all(task["cachingOptions"] == {} for task in tasks.values())
    assert spec == load_spec(COMPILED), "the original is unchanged"


def test_vertex_gets_no_longer_retries_than_its_api_allows() -> None:
    spec = load_spec(COMPILED)
    retried = retries_for_vertex(spec)
    longest = {
        task["retryPolicy"].pop("backoffMaxDuration")
        for tasks in dags(retried)
        for task in tasks.values()
        if "retryPolicy" in task
    }
    assert longest == {"3600s"}
    for tasks in dags(spec):
        for task in tasks.values():
            task.get("retryPolicy", {}).pop("backoffMaxDuration", None)
    assert retried == spec, "nothing else changes"


def test_settings_of_one_step_are_merged() -> None:
    merged = platform_spec(
        {"exec-finish": {"tolerations": [], "secretAsEnv": [{"secretName": "a"}]}},
        {"exec-finish": {"secretAsEnv": [{"secretName": "b"}]}},
    )
    assert merged is not None
    executors = merged["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    secrets = [{"secretName": "a"}, {"secretName": "b"}]
    assert executors == {"exec-finish": {"tolerations": [], "secretAsEnv": secrets}}
    assert platform_spec({}, {}) is None


@pytest.mark.parametrize("pipeline", COMPILED_PIPELINES.values(), ids=list(COMPILED_PIPELINES))
def test_steps_run_where_pod_security_is_restricted(pipeline: Path) -> None:
    """KFP sets everything else that the level asks for (backend/src/v2/compiler/argocompiler/security_context.go)."""
    spec = load_spec(pipeline)
    pods = security_settings(spec)
    assert set(pods) == set(spec["deploymentSpec"]["executors"])
    assert all(pod == {"securityContext": {"runAsNonRoot": True}} for pod in pods.values())
    for key in used_images(spec):
        dockerfile = (DOCKER / key / "Dockerfile").read_text()
        users = re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE) or ["1000:1000 of the image toolchain"]
        assert users[-1].startswith("1000:1000"), "kubelet refuses a user that is a name"


def test_image_of_others_decides_on_its_user() -> None:
    spec = load_spec(COMPILED)
    spec["deploymentSpec"]["executors"]["exec-other"] = {"container": {"image": "debian", "command": ["sleep"]}}
    assert "exec-other" not in security_settings(spec)


def test_uploaded_pipeline_names_cluster_image_only_if_it_was_pushed(images: Path) -> None:
    read = read_images(images)
    assert "MLGO_CLUSTER_IMAGE" not in str(ready_spec(load_spec(COMPILED), read, ray=None))
    read["cluster"] = read["training"]
    before = ready_spec(load_spec(COMPILED), read)["deploymentSpec"]["executors"]["exec-ppo"]["container"]["resources"]
    container = ready_spec(load_spec(COMPILED), read, ray=None)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
    assert "MLGO_CLUSTER_IMAGE" in str(container) and container["resources"] == before
