"""Tasks of the KFP pipelines: with limits, attempts, and inputs of the pipeline. Imports kfp, as training.py."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kfp import dsl

from components.platform.launcher.registry import TASKS
from pipelines.finish.component import finish

RETRY_PAUSE = "5s"
"""Before the second attempt. A stock KFP 2.17 lets it pass before it reports a failure that it does not retry, too."""
ALL_ATTEMPTS = "30d"
"""Argo's deadline for all attempts of a task together, so it exceeds three of the longest time limit (72 h). Without a
value kfp writes one hour; before 2.17 it writes no more than that."""
Values = Mapping[str, Any]
"""The inputs of a pipeline, by name: channels of KFP."""


def sized(component: Any, cached: bool = True) -> Callable[..., dsl.PipelineTask]:
    """Return `component` with its tasks' limits of CPUs and memory in the registry, and three attempts.

    It takes the inputs of the pipeline, of which those with the names of its own are passed, and others by keyword.

    Half of the limits is requested. The server decides what it retries: KFP from 2.17 on a pod that was lost, but no
    step that failed; older versions and Vertex AI a step that failed. So a step repeats its own requests.

    Args:
        cached: whether KFP may reuse the outputs of an earlier task with the same inputs.
    """

    def add(values: Values = MappingProxyType({}), **others: Any) -> dsl.PipelineTask:
        own = values.keys() & (component.component_spec.inputs or {})
        task = component(**{name: values[name] for name in own} | others)
        limits = TASKS[task.component_spec.name]
        task.set_cpu_request(f"{limits.cpus * 500}m").set_cpu_limit(str(limits.cpus))
        task.set_memory_request(f"{limits.memory_gb // 2}G").set_memory_limit(f"{limits.memory_gb}G")
        task.set_retry(2, backoff_duration=RETRY_PAUSE, backoff_factor=2.0, backoff_max_duration=ALL_ATTEMPTS)
        return task if cached else task.set_caching_options(False)

    return add


def notification() -> dsl.PipelineTask:
    """Return the task that notifies of a run's end; it always runs, because a notification is not a result."""
    notified = sized(finish, cached=False)(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    return notified.set_cpu_request("100m").set_memory_request("256M")  # it sends some requests
