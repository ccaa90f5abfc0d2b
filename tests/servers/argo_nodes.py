"""The nodes of an Argo workflow, as KFP 2.17's API lists them in run_details.task_details.

Written from the sources: which nodes a PipelineSpec becomes (kubeflow/pipelines 2.17, argocompiler/{dag,container}.go),
how Argo 4.0.5 names and connects them (workflow/controller/{operator,dag,exit_handler}.go), and what the API tells of
each (apiserver/server/api_converter.go). KFP's ConfigMap `workflow-controller-configmap` has templateDefaults with a
retryStrategy, which gives every node, DAGs and drivers included, a parent of the type Retry.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

WORKFLOW = "mlgo-training-7hsw5"
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEP_S = 60
"""Seconds that each task takes after its driver, per attempt."""
_NEVER = "0001-01-01T00:00:00Z"
LOG = """\
time=2026-11-26T23:37:54.893Z level=INFO msg="capturing logs" argo=true
I1126 23:37:54.924884      15 main.go:67] Setting log level to: '1'
I1126 23:37:54.941329      15 registry.go:68] No task-level plugins enabled, returning no-op dispatcher
{}E1126 23:37:55.128573      15 launcher_v2.go:449] Component failed to execute successfully: exit status 1
I1126 23:37:55.885440      15 launcher_v2.go:1230] ExecutorOutput: {{
  "artifacts": {{
    "page": {{
      "artifacts": []
    }}
  }}
}}
W1126 23:37:55.886061      15 launcher_v2.go:827] Local filepath "/minio/mlpipeline/v2/x/table" does not exist
F1126 23:37:55.893140      15 main.go:59] failed to execute component: exit status 1
time=2026-11-26T23:37:55.895Z level=INFO msg="sub-process exited" argo=true error=<nil>
"""
"""A step's log, whose lines are in the braces, as KFP 2.17 and Argo 4.0.5 write around them."""


def node_hash(name: str) -> int:
    value = 2166136261
    for byte in name.encode():
        value = ((value ^ byte) * 16777619) % 2**32
    return value


class Workflow:
    """A workflow whose tasks are in given states.

    Args:
        spec: PipelineSpec.
        states: container task -> its state, or states of its attempts. CACHED: its executor is skipped. DRIVER_FAILED,
            also of a DAG: only its driver ran. Tasks that are not named have not begun, or are omitted after a failure.
        ended: the workflow's final state, empty while it runs.
        defaults: KFP's ConfigMap has templateDefaults.retryStrategy.
    """

    def __init__(
        self, spec: Mapping[str, Any], states: Mapping[str, Any], ended: str = "", defaults: bool = True
    ) -> None:
        self._spec, self._states, self._ended, self._defaults = spec, states, ended, defaults
        self._nodes: dict[str, dict[str, Any]] = {}
        self._clock = BEGIN
        self.pods: dict[str, str] = {}
        """Container task -> its newest pod (Argo's util.GeneratePodName)."""
        entry = self._node(WORKFLOW, "", "", self._running())
        driver = self._driver(f"{entry}.root-driver", entry, entry)
        root = self._node(f"{entry}.root", entry, driver, self._running())
        self._dag(spec["root"]["dag"]["tasks"], root)

    def details(self, run_id: str) -> list[dict[str, Any]]:
        """Return PipelineTaskDetails, in the order of the nodes' IDs."""
        return [
            {
                "run_id": run_id,
                "task_id": str(uuid.uuid5(uuid.NAMESPACE_OID, identity)),
                "display_name": node["display_name"],
                "create_time": BEGIN.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "start_time": node["start"],
                "end_time": node["end"],
                "state": node["state"],
                "state_history": [{"update_time": node["start"], "state": node["state"]}],
                **({"child_tasks": [{"pod_name": child} for child in node["children"]]} if node["children"] else {}),
            }
            for identity, node in sorted((self.node_id(name), node) for name, node in self._nodes.items())
        ]

    @staticmethod
    def node_id(name: str) -> str:
        return WORKFLOW if name == WORKFLOW else f"{WORKFLOW}-{node_hash(name)}"

    def _running(self) -> str:
        return self._ended or "RUNNING"

    def _dag(self, tasks: Mapping[str, Any], boundary: str) -> list[str]:
        """Add the nodes of a DAG's tasks; return the outbound ones. boundary: the DAG's full name."""
        outbound: dict[str, list[str]] = {}
        hooks = {name: task for name, task in tasks.items() if _is_hook(task)}
        left = [name for name in tasks if name not in hooks]
        while left:
            name = next(n for n in left if not set(tasks[n].get("dependentTasks", ())) & set(left))
            left.remove(name)
            needs = [node for before in tasks[name].get("dependentTasks", ()) for node in outbound[before]]
            outbound[name] = self._one_task(name, tasks[name], boundary, needs)
            for hook, task in hooks.items():
                if task["dependentTasks"] == [name] and self._states.get(hook):
                    self._hook(hook, task, f"{boundary}.{name}", boundary)
        return [node for name in tasks if name not in hooks for node in outbound[name]]

    def _one_task(self, name: str, task: Mapping[str, Any], boundary: str, needs: list[str]) -> list[str]:
        full = f"{boundary}.{name}"
        component = self._spec["components"][task["componentRef"]["name"]]
        parents = needs or [boundary]
        if not self._begun(component, name):
            if not self._ended:
                return []
            if self._ended == "SUCCEEDED":  # its condition is false
                self._add(full, boundary, [self._driver(f"{full}-driver", boundary, *parents)], "SKIPPED")
            else:
                self._add(f"{full}-driver", boundary, parents, "RUNTIME_STATE_UNSPECIFIED")
                self._add(full, boundary, [f"{full}-driver"], "RUNTIME_STATE_UNSPECIFIED")
            return [full]
        if self._states.get(name) == "DRIVER_FAILED":
            driver = self._driver(f"{full}-driver", boundary, *parents, state="FAILED")
            kind = "dag" if "dag" in component else "container"
            self.pods[name] = f"{WORKFLOW}-system-{kind}-driver-{node_hash(driver)}"
            self._add(full, boundary, [driver], "RUNTIME_STATE_UNSPECIFIED")
            return [full]
        driver = self._driver(f"{full}-driver", boundary, *parents)
        if "dag" in component:
            dag = self._node(full, boundary, driver, self._dag_state(component))
            return self._dag(component["dag"]["tasks"], dag) or [dag]
        return self._container(full, boundary, driver, name)

    def _container(self, full: str, boundary: str, driver: str, name: str) -> list[str]:
        states = self._states[name]
        attempts = [states] if isinstance(states, str) else list(states)
        last = "SUCCEEDED" if attempts[-1] == "CACHED" else "RUNNING" if attempts[-1] == "PENDING" else attempts[-1]
        begin = self._clock
        task = self._node(full, boundary, driver, last)
        if attempts == ["CACHED"]:
            self._add(f"{task}.executor", task, [task], "SKIPPED")
            return [f"{task}.executor"]
        executor = f"{task}.executor"
        self._add(executor, task, [task], last)
        pods = []
        for number, state in enumerate(attempts):
            pods.append(f"{executor}({number})")
            self._add(pods[-1], task, [executor], state, display=f"executor({number})")
            self._clock += timedelta(seconds=STEP_S)
        for node in (full, task, executor):
            self._nodes[node]["start"] = _stamp(begin)
            self._nodes[node]["end"] = _NEVER if last == "RUNNING" else _stamp(self._clock)
        self.pods[name] = f"{WORKFLOW}-retry-system-container-impl-{node_hash(pods[-1])}"
        return pods[-1:]

    def _hook(self, name: str, task: Mapping[str, Any], parent: str, boundary: str) -> None:
        hook = self._node(f"{parent}.onExit", boundary, parent, self._states[name])
        self._one_task(name, {**task, "dependentTasks": []}, hook, [])

    def _begun(self, component: Mapping[str, Any], name: str) -> bool:
        if "dag" not in component or name in self._states:
            return name in self._states
        tasks = component["dag"]["tasks"]
        return any(self._begun(self._spec["components"][t["componentRef"]["name"]], n) for n, t in tasks.items())

    def _dag_state(self, component: Mapping[str, Any]) -> str:
        states = json.dumps([self._states.get(name, "") for name in component["dag"]["tasks"]])
        return "FAILED" if "FAILED" in states and self._ended else self._running()

    def _driver(self, name: str, boundary: str, *parents: str, state: str = "SUCCEEDED") -> str:
        return self._node(name, boundary, *parents, state=state)

    def _node(self, name: str, boundary: str, *name_parts: str, state: str = "") -> str:
        """Add a node, and its only attempt if every node is retried; return the name of what has children."""
        *parents, last = name_parts
        state, parents = (state, [*parents, last]) if state else (last, parents)
        self._add(name, boundary, [parent for parent in parents if parent], state)
        if not self._defaults:
            return name
        display = f"{name}(0)" if name == WORKFLOW else f"{self._nodes[name]['display_name']}(0)"
        self._add(f"{name}(0)", boundary, [name], state, display=display)
        return f"{name}(0)"

    def _add(self, name: str, boundary: str, parents: list[str], state: str, display: str = "") -> None:
        ended = state not in ("RUNNING", "PENDING")
        self._nodes[name] = {
            "display_name": display or (name.removeprefix(f"{boundary}.") if boundary else name),
            "state": state,
            "start": _stamp(self._clock),
            "end": _stamp(self._clock) if ended else _NEVER,
            "children": [],
        }
        for parent in parents:
            self._nodes[parent]["children"].append(self.node_id(name))


def _is_hook(task: Mapping[str, Any]) -> bool:
    return task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
