"""The tasks of a run on KFP, found among the nodes of its Argo workflow, which KFP's API lists as task_details.

KFP (2.17: backend/src/common/util/workflow.go, apiserver/server/api_converter.go) lists every node of the workflow with
its display name and the IDs of its children, but without its own full name or ID. A container task `ppo` has three
levels of nodes: `ppo-driver`, then `ppo`, a DAG with one node `executor`, which is the pod, or has a child
`executor(N)` for each attempt. A DAG within the pipeline, such as a condition, has a driver, too. KFP 2.17 gives every
node a retry strategy, so that each of these has children `NAME(N)` of its own. An ID is the workflow's name and a hash
of the node's full name (Argo's Workflow.NodeID), so that the names that the PipelineSpec leads to can be looked for
among the IDs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.submit.polling import Task

_EXIT_STRATEGY = "ALL_UPSTREAM_TASKS_COMPLETED"
_EXECUTORS = ("retry-system-container-impl", "system-container-impl")
"""Argo's templates of a task's pods, with and without a retry policy (argocompiler/container.go)."""
_DRIVERS = ("system-container-driver",)
_DAG_DRIVERS = ("system-dag-driver",)
_NOT_BEGUN = ("", "RUNTIME_STATE_UNSPECIFIED")
"""States of a task that is not there yet, or that Argo omits because one before it failed."""


def tasks_of(run: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Task]:
    """Return the container tasks of a run, each after those that it depends on, and DAGs whose driver failed.

    Args:
        spec: the run's PipelineSpec; empty if it is unknown, which gives no tasks.
    """
    details = run.get("run_details")
    listed = details.get("task_details") if isinstance(details, Mapping) else None
    nodes = _Nodes([detail for detail in listed or () if isinstance(detail, Mapping)])
    return [task for path in _task_paths(spec) if (task := (_failed_dag if path.is_dag else _task)(path, nodes))]


@dataclass(frozen=True)
class _TaskPath:
    """Where a task is in a workflow.

    Attributes:
        path: names of the nodes from the root to the task.
        retries: the PipelineSpec gives it a retry policy.
        is_dag: it is a DAG, not a container.
    """

    path: tuple[str, ...]
    retries: bool = False
    is_dag: bool = False


def _task_paths(spec: Mapping[str, Any]) -> list[_TaskPath]:
    try:
        return [_TaskPath(("root",), is_dag=True), *_within(spec, spec["root"], ("root",))]
    except (KeyError, TypeError, AttributeError, IndexError):  # not of the form that KFP's compiler writes
        return []


def _within(spec: Mapping[str, Any], component: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_TaskPath]:
    tasks: Mapping[str, Any] = component["dag"]["tasks"]
    for name in _ordered(tasks):
        task = tasks[name]
        inner = spec["components"][task["componentRef"]["name"]]
        is_hook = task.get("triggerPolicy", {}).get("strategy") == _EXIT_STRATEGY
        # An exit handler is a hook of the task that it waits for (argocompiler/dag.go).
        inner_path = (*path, f"{task['dependentTasks'][0]}.onExit", name) if is_hook else (*path, name)
        if "dag" in inner:
            yield _TaskPath(inner_path, is_dag=True)
            yield from _within(spec, inner, inner_path)
        else:
            yield _TaskPath(inner_path, "retryPolicy" in task)


def _ordered(tasks: Mapping[str, Any]) -> list[str]:
    done: list[str] = []
    left = sorted(tasks)
    while left:
        ready = [name for name in left if not set(tasks[name].get("dependentTasks", ())) & set(left)]
        chosen = ready or left  # a circle, which no server runs
        done += chosen
        left = [name for name in left if name not in chosen]
    return done


class _Nodes:
    """The nodes of a workflow: their details by display name, and which full names exist."""

    def __init__(self, details: Sequence[Mapping[str, Any]]) -> None:
        self._details: dict[str, list[Mapping[str, Any]]] = {}
        self._ids: set[str] = set()
        for detail in details:
            self._details.setdefault(str(detail.get("display_name", "")), []).append(detail)
            self._ids |= _children(detail)
        workflows = {identity.rpartition("-")[0] for identity in self._ids}
        self._workflow = workflows.pop() if len(workflows) == 1 else ""
        self.any_pending = any(_state(detail) == "PENDING" for detail in details)  # only pods are

    def at(self, path: Sequence[str]) -> list[str]:
        """Return the full names of the nodes at a path, in each attempt of those above them, oldest first."""
        full_names = [self._workflow]
        for part in path:
            parents = [attempt for name in full_names for attempt in (name, *self.attempts(name))]
            full_names = [name for parent in parents if self._exists(name := f"{parent}.{part}")]
        return full_names

    def attempts(self, name: str) -> list[str]:
        """Return the full names of the attempts of a node with a retry strategy."""
        full_names: list[str] = []
        while self._exists(attempt := f"{name}({len(full_names)})"):
            full_names.append(attempt)
        return full_names

    def detail(self, display_name: str, names: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return what the API says of a node; of several with this display name, one with a child of `names`."""
        candidates = self._details.get(display_name, [])
        children = {self._id(child) for name in names for child in (f"{name}(0)", f"{name}.executor")}
        return ([detail for detail in candidates if _children(detail) & children] or candidates or [{}])[-1]

    def driver(self, path: Sequence[str], templates: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the state of the driver of the task at a path, and the pods that it may be."""
        *above, name = path
        drivers = self.at((*above, f"{name}-driver"))
        pods = [pod for driver in drivers for pod in self.attempts(driver) or [driver]]
        state = _state(self.detail(f"{name}-driver", drivers))
        return state, self.pods(pods[-1], templates) if pods else ()

    def pods(self, name: str, templates: Sequence[str]) -> tuple[str, ...]:
        """Return the pods that a node may be (Argo's util.GeneratePodName)."""
        return tuple(f"{self._workflow}-{template}-{_fnv1a(name)}" for template in templates)

    def _exists(self, name: str) -> bool:
        return self._id(name) in self._ids

    def _id(self, name: str) -> str:
        return f"{self._workflow}-{_fnv1a(name)}"


def _task(task_path: _TaskPath, nodes: _Nodes) -> Task:
    name = task_path.path[-1]
    at = nodes.at(task_path.path)
    detail = nodes.detail(name, at)
    state = _state(detail)
    if state in _NOT_BEGUN:
        begun, pods = nodes.driver(task_path.path, _DRIVERS)
        return Task(
            name,
            begun if begun == "FAILED" else "",
            pods=pods,
            may_wait=begun in ("PENDING", "RUNNING") and nodes.any_pending,
        )
    parents = [attempt for task in at for attempt in (task, *nodes.attempts(task))]
    executors = nodes.at((*task_path.path, "executor"))
    attempts = [attempt for executor in executors for attempt in nodes.attempts(executor)]
    # A cached task's executor is skipped: it has no attempts, where it would have them.
    reused = not attempts and bool(executors) and state == "SUCCEEDED" and (task_path.retries or len(parents) > len(at))
    started = attempts or ([] if reused else executors)
    return Task(
        name,
        state,
        _seconds(detail),
        len(started),
        reused,
        nodes.pods(started[-1], _EXECUTORS) if started else (),
        state == "RUNNING" and nodes.any_pending,
    )


def _failed_dag(task_path: _TaskPath, nodes: _Nodes) -> Task | None:
    """Return a DAG whose driver failed, so that none of its tasks begins; None for others."""
    state, pods = nodes.driver(task_path.path, _DAG_DRIVERS)
    # Without pods the state is that of another DAG of the same name.
    return Task(task_path.path[-1], state, pods=pods) if state == "FAILED" and pods else None


def _state(detail: Mapping[str, Any]) -> str:
    return str(detail.get("state") or "")


def _children(detail: Mapping[str, Any]) -> set[str]:
    listed = detail.get("child_tasks") or ()
    return {str(child["pod_name"]) for child in listed if isinstance(child, Mapping) and child.get("pod_name")}


def _seconds(detail: Mapping[str, Any]) -> float | None:
    """Return how long a node took; None if it has not ended, which Argo writes as an end before its start."""
    start, end = (parse_time(detail.get(key)) for key in ("start_time", "end_time"))
    if start is None or end is None or (seconds := (end - start).total_seconds()) < 0:
        return None
    return seconds


def parse_time(text: Any) -> datetime | None:
    """Return a time of the API, which has a time zone; None for what is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash, as Go's hash/fnv.New32a."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
