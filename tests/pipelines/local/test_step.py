"""Tests of a step's placeholders, and of the arguments that its working directory depends on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.platform.errors import UserError
from pipelines.local.step import RunLocations, Step

RUN = RunLocations("gs://bucket/run", "/run/.files")


def step(*arguments: str, **more: object) -> Step:
    command = ("python", "-m", "x")
    return Step("ppo", "mlgo-training", "components.ppo", command, arguments, "policy", **more)  # type: ignore[arg-type]


def test_placeholders_are_replaced_anywhere_in_arguments() -> None:
    made = step(
        "--trace",
        "{{$.inputs.artifacts['trace'].uri}}",
        "--root-dir",
        "{{$.outputs.artifacts['ppo'].uri}}",
        "--copy",
        "report.html={{$.outputs.artifacts['page'].path}}",
        "--value",
        "m.json:k={{$.outputs.parameters['verdict'].output_file}}",
        "--recipe",
        "/odd/{trace}/{{x}}",
        inputs={"trace": "recorded"},
        parameters=("verdict",),
        outputs={"policy": "system.Model", "ppo": "system.Artifact", "page": "system.HTML"},
    )
    assert made.argv(RUN) == [
        "python",
        "-m",
        "x",
        "--trace",
        "gs://bucket/run/recorded",
        "--root-dir",
        "gs://bucket/run/ppo",
        "--copy",
        "report.html=/run/.files/ppo/page",
        "--value",
        "m.json:k=/run/.files/ppo/verdict",
        "--recipe",
        "/odd/{trace}/{{x}}",
    ]


def test_executor_input_is_like_kfps() -> None:
    made = step("{{$}}", inputs={"trace": "recorded"}, parameters=("verdict",), outputs={"policy": "system.Model"})
    document = json.loads(made.argv(RUN)[-1])
    assert document["inputs"]["artifacts"]["trace"]["artifacts"][0]["uri"] == "gs://bucket/run/recorded"
    (policy,) = document["outputs"]["artifacts"]["policy"]["artifacts"]
    assert policy == {"name": "policy", "type": {"schemaTitle": "system.Model"}, "uri": "gs://bucket/run/policy"}
    assert document["outputs"]["parameters"]["verdict"]["outputFile"] == "/run/.files/ppo/verdict"
    assert document["outputs"]["outputFile"] == "/run/.files/ppo/executor_output.json"


def test_inputs_have_the_costs_that_their_steps_reported(tmp_path: Path) -> None:
    run = RunLocations("gs://bucket/run", str(tmp_path))
    for name, text in (("trace", '{"artifacts": {"recorded": {"artifacts": [{"metadata": %s}]}}}'), ("vocab", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "executor_output.json").write_text(text.replace("%s", json.dumps({"costs": "{}", "x": 1})))
    made = step("{{$}}", inputs={"trace": "recorded", "vocab": "unknown"})
    read = json.loads(made.argv(run)[-1])["inputs"]["artifacts"]
    assert read["trace"]["artifacts"][0]["metadata"] == {"costs": "{}"}
    assert read["vocab"]["artifacts"][0]["metadata"] == {}


def test_unknown_placeholder_is_an_error() -> None:
    with pytest.raises(UserError, match="nowhere"):
        step("{{$.inputs.artifacts['nowhere'].uri}}").argv(RUN)


def test_longer_budget_keeps_start_arguments() -> None:
    def started(minutes: str, seed: str) -> tuple[str, ...]:
        return step("--minutes", minutes, "--seed", seed, extends=("--minutes",)).start_arguments()

    assert started("1", "7") == started("60", "7") == ("--seed", "7")
    assert started("1", "7") != started("1", "8")
