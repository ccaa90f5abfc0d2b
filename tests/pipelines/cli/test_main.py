"""Tests of the command `mlgo`, called as a user calls it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.evaluation.metrics_types import Groups, SizeGroup, SizeMetrics, encode_json
from components.platform.errors import UserError
from components.platform.launcher.images import IMAGES
from components.platform.storage import publish
from pipelines.cli.image_help import IMAGE_HELP
from pipelines.cli.main import COMMANDS, IMPORTED, cli
from pipelines.images import ON_IMAGE, ROOT
from pipelines.spec import REPORT_STEP
from tests.support.commands import run_command


def mlgo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command("pipelines", *arguments, env=os.environ | environment, timeout=120)


def image_environment(image: str) -> dict[str, str]:
    """Return the variables by which mlgo knows its image, as the Dockerfiles set them."""
    variables = {}
    for name in filter(None, (ON_IMAGE.get(image), image)):
        text = (ROOT / "docker" / name / "Dockerfile").read_text()
        variables |= {
            key: quoted or plain for key, quoted, plain in re.findall(r'(MLGO_\w+)=(?:"([^"]*)"|(\w+))', text)
        }
    return {"MLGO_IMAGE": variables["MLGO_IMAGE"]}


def test_help_lists_every_step() -> None:
    done = mlgo("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  (\w+) +[A-Z]", done.stdout.partition("\nOptions:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(["run", *COMMANDS, *IMPORTED])


def test_help_imports_no_step_or_server() -> None:
    code = "import sys, pipelines.cli.main; print('jinja2' in sys.modules, 'requests' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("given", "meant"), [("shirnk", "shrink"), ("evaluate", "evaluation"), ("clusters", "cluster")]
)
def test_misspelt_command_is_corrected(given: str, meant: str) -> None:
    done = mlgo(given)
    assert done.returncode == 2 and f"Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize("image", IMAGES)
def test_help_of_image_lists_only_its_commands(image: str) -> None:
    environment = image_environment(image)
    done = mlgo("--help", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: docker run --rm --read-only ") and f" {IMAGES[image]}:TAG " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    listed = re.findall(r"^  (\w+) +\S", done.stdout.partition("Commands")[2].partition("\n\n")[0], re.MULTILINE)
    assert listed == [*IMAGE_HELP[image].groups, *IMAGE_HELP[image].steps]
    for command in listed:
        assert mlgo(command, "--help", **environment).returncode == 0
    for variable in ("MLGO_CACHE_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "AWS_REGION"):
        assert f"  {variable} " in done.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_examples_of_image_have_commands_and_options_that_exist(image: str) -> None:
    environment = image_environment(image)
    for _comment, example in IMAGE_HELP[image].examples:
        words = shlex.split(example.replace("\\\n", ""))
        command = list(itertools.takewhile(lambda word: re.fullmatch("[a-z]+", word), words))
        done = mlgo(*command, "--help", **environment)
        assert done.returncode == 0, done.stderr
        assert all(f"{word} " in done.stdout for word in words if word.startswith("--")), example


@pytest.mark.parametrize(
    ("image", "command", "remedy"),
    [
        ("toolchain", "ppo", "use the image mlgo-training"),
        ("training", "corpus", "use the image mlgo-toolchain"),
        ("cluster", "corpus", "use the image mlgo-toolchain"),
        ("training", "retrain", "use the image mlgo-toolchain"),
        ("training", "run", "no image has it: install mlgo-pipeline"),
        ("toolchain", "pipeline", "no image has it: install mlgo-pipeline"),
        ("sdk", "corpus", "use the image mlgo-toolchain"),
        ("sdk", "trace", "use the image mlgo-training"),
    ],
)
def test_command_of_another_image_is_refused(image: str, command: str, remedy: str) -> None:
    done = mlgo(command, **image_environment(image))
    assert done.returncode == 1 and f"the image mlgo-{image} does not have the command {command}" in done.stderr
    assert remedy in done.stderr
    assert mlgo("no-such", **image_environment(image)).returncode == 2


def test_image_offers_retraining_on_a_server_only() -> None:
    environment = image_environment("toolchain")
    offered = mlgo("retrain", "--help", **environment).stdout
    assert "\n  submit " in offered and "\n  run " not in offered and "retrain run" not in offered
    assert "\n  run " in mlgo("retrain", "--help").stdout
    for arguments in (("--help",), ("--state", "s.json", "--output", "run")):
        done = mlgo("retrain", "run", *arguments, **environment)
        assert done.returncode == 1 and "the image mlgo-toolchain does not have the command retrain run" in done.stderr
        assert "mlgo retrain submit" in done.stderr
    done = mlgo("retrain", "run", "--host", "http://127.0.0.1:1", "--help", **environment)
    assert done.returncode == 0 and "--wait" in done.stdout


def test_every_step_is_in_an_image() -> None:
    assert {step for image in IMAGE_HELP.values() for step in image.steps} == set(COMMANDS)


def test_example_of_image_help_runs_as_written(tmp_path: Path) -> None:
    """docker is a program that prints its arguments: the shell function passes on what comes after it."""
    text = mlgo("--help", **image_environment("training")).stdout
    function = text.partition("Examples, with a shell function that runs the image:\n")[2].partition("\n\n")[0]
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    docker.chmod(0o755)
    script = f"PATH={tmp_path}:$PATH\n{function}\nmlgo vocab --trace 'a b'\n"
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-4:] == ["mlgo-training:TAG", "vocab", "--trace", "a b"]


@pytest.mark.parametrize("step", COMMANDS)
def test_help_of_each_step_has_example(step: str) -> None:
    done = mlgo(step, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: mlgo {step} ") and f"  mlgo {step} " in done.stdout


def test_step_gets_arguments_unchanged_and_returns_its_exit_status(tmp_path: Path) -> None:
    done = mlgo("vocab", "--trace", str(tmp_path / "no where"), "--output", str(tmp_path / "v"))
    assert done.returncode == 1
    assert f"{tmp_path / 'no where'}" in done.stderr and "Traceback" not in done.stderr
    assert mlgo("trace", "export", "--format", "csv").returncode == 2


def test_run_without_code_source_is_refused(tmp_path: Path) -> None:
    done = mlgo("run", "--output", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "--compile-commands" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("run",), ("retrain", "run", "--state", "{}/s.json"), ("pipeline", "run")])
def test_uri_as_output_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    done = mlgo(*(part.format(tmp_path) for part in command), "--output", "gs://b/run")
    assert done.returncode == 1 and "--output gs://b/run: a run keeps" in done.stderr
    assert "--pipeline-root gs://BUCKET/PATH" in done.stderr and list(tmp_path.iterdir()) == []


def test_unknown_recipe_lists_built_in_recipes(tmp_path: Path) -> None:
    done = mlgo("run", "--recipe", "demmo", "--output", str(tmp_path / "run"))
    assert done.returncode == 1 and ", demo, " in done.stderr and list(tmp_path.iterdir()) == []


def test_built_in_recipe_is_found_by_name(tmp_path: Path) -> None:
    done = mlgo("run", "--recipe", "demo", "--workers", "none", "--output", str(tmp_path / "run"))
    assert done.returncode == 1 and "--workers 'none'" in done.stderr, "the next invalid option"


def test_invalid_registry_prefix_is_refused() -> None:
    done = mlgo("images", "build", "--registry", "bad registry")
    assert done.returncode == 1 and "--registry 'bad registry'" in done.stderr and "Traceback" not in done.stderr


def test_cli_does_not_import_tensorflow() -> None:
    modules = "sys, pipelines.cli.main, pipelines.local.run_locally, pipelines.local.scheduler"
    code = f"import {modules}; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_run_without_a_release_clang_says_so_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compared: dict[str, Any] = {"modules": 2, "modules_smaller": 1, "modules_equal": 1, "modules_larger": 0}
    sizes: dict[str, Any] = compared | {"baseline_bytes": 1000, "policy_bytes": 998, "reduction_percent": 0.2}
    group = SizeGroup(**sizes)
    metrics = SizeMetrics(
        **sizes, verdict="not better", min_reduction_percent=0.5, groups=Groups(group, group), per_project={}
    )
    run = tmp_path / "run"

    def skip_release(
        _pipeline: Path, _given: dict[str, str], output: Path, *_others: object, **_more: object
    ) -> set[str]:
        (output / "evaluation").mkdir(parents=True)
        (output / "evaluation" / "metrics.json").write_text(encode_json(metrics))
        with publish(output / "release", "toolchain") as directory:
            (directory / "toolchain.json").touch()
        return {REPORT_STEP}

    monkeypatch.setattr("pipelines.local.run_locally.run_locally", skip_release)
    for command in (["run", "--recipe", "demo"], ["pipeline", "run", "--param", "recipe=demo"]):
        shutil.rmtree(run, ignore_errors=True)
        cli.main([*command, "--output", str(run)], standalone_mode=False)
        said = capsys.readouterr().out
        assert "verdict: not better" in said and f"{run}/release is of an earlier run" in said
        assert "no release clang is built: this policy is not better" in said and "use stock clang" in said


def test_compiled_pipeline_replaces_no_member_of_an_artifact(tmp_path: Path) -> None:
    with publish(tmp_path / "policy", "policy") as directory:
        (directory / "policy.json").write_text("{}")
    with pytest.raises(UserError, match="lies within a policy"):
        cli.main(["pipeline", "compile", "--output", str(tmp_path / "policy" / "policy.json")], standalone_mode=False)
    assert (tmp_path / "policy" / "policy.json").read_text() == "{}"
