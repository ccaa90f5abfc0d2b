"""docker/compose/compose.yaml: its steps get what those of the pipeline get, and end in a gated release."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.platform.launcher.__main__ import main as launcher
from pipelines.spec import COMPILED, containers, load_spec

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose" / "compose.yaml").read_text())["services"]
TASKS = {"training-clang": "toolchain-training", "release-clang": "toolchain-release"}
"""Service -> task of the pipeline, where the names differ."""
STEPS = sorted(SERVICES.keys() - {"bucket", "result"})
GATED = ("select-policy", "release-clang", "release-report")
LAUNCHER = ["python", "-m", "components.platform.launcher"]


def pipeline_arguments(service: str) -> list[str]:
    """Return the arguments of the step in the pipeline, without those of the launcher."""
    arguments = dict(containers(load_spec(COMPILED)))[f"exec-{TASKS.get(service, service)}"]["args"]
    parsed = launcher.make_context("launcher", [*arguments], resilient_parsing=True).params
    return [parsed["step"], *parsed["arguments"]]


@pytest.mark.parametrize("service", STEPS)
def test_step_gets_what_the_pipeline_gives_it(service: str) -> None:
    """Parameters may be left to their defaults; artifacts, words and flags may not."""
    command, theirs = SERVICES[service]["command"], pipeline_arguments(service)
    given = {word for word in command if word.startswith("--")} - {"--value"}
    for flag, value in itertools.pairwise([*theirs, "--end"]):
        if flag.startswith("--") and "inputs.parameters" not in value:
            assert flag in given, flag
            if "{{$" not in value and not value.startswith("--"):
                assert command[command.index(flag) + 1] == value, flag
    assert given <= {word for word in theirs if word.startswith("--")}, "the pipeline has no other options"


def test_all_tasks_of_a_release_are_services() -> None:
    tasks = {label.removeprefix("exec-") for label, _container in containers(load_spec(COMPILED))}
    optional = {"tune", "promote", "record-refusal", "finish"}
    assert tasks - optional == {TASKS.get(service, service) for service in STEPS}


def test_release_waits_for_the_decision() -> None:
    command = SERVICES["evaluation"]["command"]
    assert command[:2] == ["--value", "metrics.json:release_policy=/var/tmp/release_policy"]
    assert SERVICES["evaluation"]["volumes"] == ["decision:/var/tmp"]
    for before, after in itertools.pairwise(["evaluation", *GATED, "result"]):
        assert SERVICES[after]["depends_on"] == {before: {"condition": "service_completed_successfully"}}
        assert "decision:/decision:ro" in SERVICES[after]["volumes"]


@pytest.mark.parametrize("service", GATED)
@pytest.mark.parametrize("chosen", ["none", "trained"])
def test_gated_step_runs_only_if_a_policy_was_chosen(service: str, chosen: str, tmp_path: Path) -> None:
    """The script of its entrypoint, with a program in place of the launcher."""
    (tmp_path / "release_policy").write_text(chosen)
    (tmp_path / "python").write_text('#!/bin/sh\necho "launched $*"\n')
    (tmp_path / "python").chmod(0o755)
    shell, option, script, name = SERVICES[service]["entrypoint"]
    script = script.replace("$$", "$").replace("/decision/", f"{tmp_path}/")
    command = [shell, option, script, name, *SERVICES[service]["command"]]
    done = subprocess.run(
        command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("skipped: no release clang") is (chosen == "none")
    expected = " ".join(["launched", *LAUNCHER[1:], *SERVICES[service]["command"]])
    assert (done.stdout.strip() == expected) is (chosen != "none")
    (tmp_path / "release_policy").unlink()
    lost = subprocess.run(
        command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert "launched" not in lost.stdout and lost.returncode == 1, "a lost decision is no permission"


@pytest.mark.parametrize(
    ("chosen", "downloaded", "shown"),
    [
        ("none", ["policy", "evaluation"], "evaluation"),
        ("trained", ["policy", "evaluation", "release", "release_report"], "release_report"),
    ],
)
def test_result_has_the_last_report(chosen: str, downloaded: list[str], shown: str, tmp_path: Path) -> None:
    (tmp_path / "release_policy").write_text(chosen)
    (tmp_path / "mlgo").write_text('#!/bin/sh\necho "$*"\n')
    (tmp_path / "mlgo").chmod(0o755)
    (tmp_path / "compose" / "release").mkdir(parents=True)
    (script,) = SERVICES["result"]["command"]
    script = script.replace("$$", "$").replace("/decision/", f"{tmp_path}/").replace("/output/", f"{tmp_path}/")
    command = [*SERVICES["result"]["entrypoint"], script]
    done = subprocess.run(
        command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert ("release is of an earlier run" in lines) is (chosen == "none")
    copies = [line.split()[2].rpartition("/")[2] for line in lines if line.startswith("storage download")]
    assert copies == downloaded and lines[-1] == f"evaluation show --metrics {tmp_path}/compose/{shown}"
