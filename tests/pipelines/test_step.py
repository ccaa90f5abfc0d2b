"""Placeholders of a step, and what its working directory stands for."""

from __future__ import annotations

import json

import pytest

from components.console import UserError
from pipelines.step import Places, Step

RUN = Places("gs://bucket/run", "/run/.files")


def step(*arguments: str, **more: object) -> Step:
    command = ("python", "-m", "x")
    return Step("ppo", "mlgo-training", "components.ppo", command, arguments, "policy", **more)  # type: ignore[arg-type]


def test_placeholders_become_places_wherever_they_stand() -> None:
    made = step(
        "--trace", "{{$.inputs.artifacts['trace'].uri}}", "--root-dir", "{{$.outputs.artifacts['ppo'].uri}}",
        "--copy", "report.html={{$.outputs.artifacts['page'].path}}",
        "--value", "m.json:k={{$.outputs.parameters['verdict'].output_file}}", "--recipe", "/odd/{trace}/{{x}}",
        inputs={"trace": "recorded"}, parameters=("verdict",),
        outputs={"policy": "system.Model", "ppo": "system.Artifact", "page": "system.HTML"},
    )  # fmt: skip
    assert made.argv(RUN) == [
        "python", "-m", "x", "--trace", "gs://bucket/run/recorded", "--root-dir", "gs://bucket/run/ppo",
        "--copy", "report.html=/run/.files/ppo/page", "--value", "m.json:k=/run/.files/ppo/verdict",
        "--recipe", "/odd/{trace}/{{x}}",
    ]  # fmt: skip


def test_the_executor_input_is_what_kfp_would_pass() -> None:
    made = step("{{$}}", inputs={"trace": "recorded"}, parameters=("verdict",), outputs={"policy": "system.Model"})
    document = json.loads(made.argv(RUN)[-1])
    assert document["inputs"]["artifacts"]["trace"]["artifacts"][0]["uri"] == "gs://bucket/run/recorded"
    (policy,) = document["outputs"]["artifacts"]["policy"]["artifacts"]
    assert policy == {"name": "policy", "type": {"schemaTitle": "system.Model"}, "uri": "gs://bucket/run/policy"}
    assert document["outputs"]["parameters"]["verdict"]["outputFile"] == "/run/.files/ppo/verdict"
    assert document["outputs"]["outputFile"] == "/run/.files/ppo/executor_output.json"


def test_a_placeholder_for_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match="nowhere"):
        step("{{$.inputs.artifacts['nowhere'].uri}}").argv(RUN)


def test_a_longer_budget_is_no_other_start() -> None:
    def started(minutes: str, seed: str) -> tuple[str, ...]:
        return step("--minutes", minutes, "--seed", seed, extends=("--minutes",)).start_arguments()

    assert started("1", "7") == started("60", "7") == ("--seed", "7")
    assert started("1", "7") != started("1", "8")
