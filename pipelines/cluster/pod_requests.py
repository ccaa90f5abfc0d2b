"""What pods of a run request, and whether nodes have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from components.platform.rayjob.manifest import rayjob
from components.platform.rayjob.spec import RayJobSpec


@dataclass(frozen=True)
class PodRequests:
    """Requests of a kind of pods.

    Attributes:
        memory_bytes: of each pod, as `cpus`.
    """

    name: str
    count: int
    cpus: Decimal
    memory_bytes: Decimal


@dataclass(frozen=True)
class Size:
    """Processors, and bytes of memory."""

    cpus: Decimal
    memory_bytes: Decimal

    def __sub__(self, other: Size) -> Size:
        return Size(self.cpus - other.cpus, self.memory_bytes - other.memory_bytes)


def size_of(amounts: Mapping[str, str] | None) -> Size:
    """Return the sizes of a container's or a node's amounts, as Kubernetes writes them."""
    quantities = amounts or {}
    return Size(parse_quantity(quantities.get("cpu", "0")), parse_quantity(quantities.get("memory", "0")))


def fits(pod: PodRequests, sizes: Iterable[Size]) -> bool:
    """Return whether one of the nodes has room for a pod."""
    return any(size.cpus >= pod.cpus and size.memory_bytes >= pod.memory_bytes for size in sizes)


def describe_pods(pods: Sequence[PodRequests]) -> str:
    """Return names and requests of pods, in words."""
    return ", ".join(
        f"{pod.name} ({format_amount(pod.cpus)} processors and {format_amount(pod.memory_bytes)}B of memory)"
        for pod in pods
    )


def step_pods(spec: Mapping[str, Any]) -> list[PodRequests]:
    """Return what the steps of a PipelineSpec request, those that request most first; one for each container."""
    pods = []
    for label, executor in spec["deploymentSpec"]["executors"].items():
        resources = executor.get("container", {}).get("resources", {})
        amounts = [
            resources.get(f"resource{name}Request")
            or resources.get(f"resource{name}Limit")  # a request that is missing is the limit
            or "0"
            for name in ("Cpu", "Memory")
        ]
        pods.append(PodRequests(label.removeprefix("exec-"), 1, *(parse_quantity(str(amount)) for amount in amounts)))
    return sorted(pods, key=lambda pod: (-pod.cpus, -pod.memory_bytes, pod.name))


def cluster_pods(spec: RayJobSpec) -> list[PodRequests]:
    """Return the pods of the largest cluster: submitter, head, with autoscaler unless Kueue starts it, workers."""
    job = rayjob(spec)["spec"]
    cluster = job["rayClusterSpec"]
    group = cluster["workerGroupSpecs"][0]
    head = [*cluster["headGroupSpec"]["template"]["spec"]["containers"], cluster.get("autoscalerOptions", {})]
    parts = {
        "submitter": (1, [c["resources"] for c in job["submitterPodTemplate"]["spec"]["containers"]]),
        "head": (1, [container["resources"] for container in head if container]),
        "worker": (group["maxReplicas"], [c["resources"] for c in group["template"]["spec"]["containers"]]),
    }
    return [
        PodRequests(
            name,
            count,
            sum((parse_quantity(resources["requests"]["cpu"]) for resources in containers), Decimal(0)),
            sum((parse_quantity(resources["requests"]["memory"]) for resources in containers), Decimal(0)),
        )
        for name, (count, containers) in parts.items()
    ]


def format_amount(number: Decimal) -> str:
    """Return a number with a unit of Kubernetes."""
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number.normalize():f}"
