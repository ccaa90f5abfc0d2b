"""Tests of the command `mlgo`, called as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli.main import STEPS


def mlgo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_step() -> None:
    done = mlgo("--help")
    assert done.returncode == 0
    assert all(f"\n  {step} " in done.stdout for step in ("run", "pipeline", "images", "retrain", *STEPS))


@pytest.mark.parametrize("step", STEPS)
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
