"""The judge of the manifests: what it must refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from components.platform.rayjob.manifest import rayjob
from components.platform.rayjob.spec import RayJobSpec
from tests.support.crd import Invalid, check, needs_schemas

pytestmark = needs_schemas
GOOD = rayjob(RayJobSpec("ppo-1", "mlgo", "r/i@sha256:" + "a" * 64, ("mlgo", "ppo")))


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def make(document: dict[str, Any]) -> None:
        *steps, last = [int(step) if step.isdecimal() else step for step in path.split("/")]
        node: Any = document
        for step in steps:
            node = node[step]
        if value is None:
            del node[last]
        else:
            node[last] = value

    return make


HEAD = "spec/rayClusterSpec/headGroupSpec"
WORKERS = "spec/rayClusterSpec/workerGroupSpecs/0"
FAULTS = {
    "a typo in a field": (change("spec/shutdownAfterJobFinish", True), "'shutdownAfterJobFinish' was unexpected"),
    "a typo in a pod": (change(f"{HEAD}/template/spec/containers/0/imagee", "x"), "'imagee' was unexpected"),
    "no head": (change(HEAD, None), "'headGroupSpec' is a required property"),
    "no pod of the head": (change(f"{HEAD}/template", None), "'template' is a required property"),
    "a string for an integer": (change(f"{WORKERS}/maxReplicas", "8"), "'8' is not of type 'integer'"),
    "an integer for a string": (change(f"{HEAD}/rayStartParams/num-cpus", 0), "0 is not of type 'string'"),
    "too great an integer": (change("spec/activeDeadlineSeconds", 2**31), "is not a 'int32'"),
    "an unknown mode": (change("spec/rayClusterSpec/authOptions/mode", "none"), "'none' is not one of"),
    "an invalid quantity": (
        change(f"{WORKERS}/template/spec/containers/0/resources/limits/memory", "5 GB"),
        "'5 GB' does not match",
    ),
    "two containers of one name": (
        change(f"{WORKERS}/template/spec/containers", [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]),
        "two items with the same name",
    ),
    "another kind": (change("kind", "RayJobb"), "no kind RayJobb"),
    "no name": (change("metadata/name", None), "'name' is a required property"),
}


def test_valid_object_gets_defaults() -> None:
    document = copy.deepcopy(GOOD)
    change("spec/submissionMode", None)(document)
    change(f"{WORKERS}/minReplicas", None)(document)
    stored = check(document)
    assert stored["spec"]["submissionMode"] == "K8sJobMode"
    assert stored["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["numOfHosts"] == 1
    assert "submissionMode" not in document["spec"]


@pytest.mark.parametrize("fault", FAULTS)
def test_invalid_object_is_refused(fault: str) -> None:
    breaks, words = FAULTS[fault]
    document = copy.deepcopy(GOOD)
    breaks(document)
    with pytest.raises(Invalid) as refusal:
        check(document)
    assert words in str(refusal.value)
