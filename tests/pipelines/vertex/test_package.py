"""A pipeline as Vertex AI takes it: limits, accelerators and retries of steps."""

from __future__ import annotations

from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.spec import COMPILED, load_spec
from pipelines.spec_changes import dags
from pipelines.vertex.package import ACCELERATORS, override_steps, shorten_retries
from tests.pipelines.submit.test_overrides import EXAMPLE, SPEC, container


def test_no_overrides_change_nothing() -> None:
    assert override_steps(SPEC, {}) == SPEC


def test_vertex_gets_limits_and_accelerator(overrides: Any) -> None:
    text = "ppo: {cpu: {limit: 2}, memory: {limit: 8G}, accelerator: {type: NVIDIA_L4, count: 2}}"
    resources = container(override_steps(SPEC, overrides(text)), "ppo")["resources"]
    assert resources == {
        "cpuLimit": 2.0,
        "memoryLimit": 8.0,
        "resourceCpuLimit": "2",
        "resourceMemoryLimit": "8G",
        "accelerator": {"type": "NVIDIA_L4", "count": "2", "resourceType": "NVIDIA_L4", "resourceCount": "2"},
    }


@pytest.mark.parametrize(
    ("text", "named", "remedy"),
    [
        (
            "ppo: {node_selector: {a: b}}",
            "node_selector: Vertex AI has no such setting",
            "cpu, memory, accelerator, env",
        ),
        ("ppo: {shared_memory: 1Gi}", "shared_memory: Vertex AI has no such setting", "cpu, memory"),
        ("default: {tolerations: []}", "tolerations: Vertex AI has no such setting", "cpu, memory, accelerator"),
        ("ppo: {volumes: []}", "volumes: Vertex AI has no such setting", "cpu, memory, accelerator"),
        ("ppo: {memory: {request: 8G}}", "memory: request: Vertex AI reads limits only", "memory.limit"),
        ("ppo: {accelerator: {type: nvidia.com/gpu}}", "has no type 'nvidia.com/gpu'", "NVIDIA_L4"),
    ],
)
def test_setting_that_vertex_does_not_have_is_refused(overrides: Any, text: str, named: str, remedy: str) -> None:
    with pytest.raises(UserError) as error:
        override_steps(SPEC, overrides(text))
    assert named in error.value.problem and remedy in error.value.remedy
    assert "NVIDIA_TESLA_T4" in ACCELERATORS


def test_example_in_documentation_is_accepted(overrides: Any) -> None:
    (text,) = [part.split("```")[0] for part in EXAMPLE.read_text().split("```yaml\n")[1:] if "NVIDIA" in part]
    assert "accelerator" in container(override_steps(SPEC, overrides(text)), "ppo")["resources"]


def test_vertex_gets_no_longer_retries_than_its_api_allows() -> None:
    spec = load_spec(COMPILED)
    retried = shorten_retries(spec)
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
