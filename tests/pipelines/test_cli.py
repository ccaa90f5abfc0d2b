"""The command `mlgo`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import STEPS


def mlgo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_step() -> None:
    done = mlgo("--help")
    assert done.returncode == 0
    assert all(f"\n  {step} " in done.stdout for step in ("run", "pipeline", "images", "retrain", *STEPS))


@pytest.mark.parametrize("step", STEPS)
def test_each_step_answers_help_with_an_example(step: str) -> None:
    done = mlgo(step, "--help")
    assert done.returncode == 0, done.stderr
    assert f"python -m components.{step}" in done.stdout


def test_a_step_gets_its_arguments_untouched_and_gives_its_status(tmp_path: Path) -> None:
    done = mlgo("vocab", "--trace", str(tmp_path / "no where"), "--output", str(tmp_path / "v"))
    assert done.returncode == 1
    assert f"{tmp_path / 'no where'}" in done.stderr and "Traceback" not in done.stderr
    assert mlgo("trace", "export", "--format", "csv").returncode == 2


def test_a_run_without_code_says_what_to_pass(tmp_path: Path) -> None:
    done = mlgo("run", "--output", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "--compile-commands" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("run",), ("retrain", "run", "--state", "{}/s.json"), ("pipeline", "run")])
def test_a_run_in_object_storage_is_refused_as_it_was_written(command: tuple[str, ...], tmp_path: Path) -> None:
    done = mlgo(*(part.format(tmp_path) for part in command), "--output", "gs://b/run")
    assert done.returncode == 1 and "--output gs://b/run: a run keeps" in done.stderr
    assert "--pipeline-root gs://BUCKET/PATH" in done.stderr and list(tmp_path.iterdir()) == []


def test_a_recipe_that_there_is_not_has_ours_listed(tmp_path: Path) -> None:
    done = mlgo("run", "--recipe", "demmo", "--output", str(tmp_path / "run"))
    assert done.returncode == 1 and ", demo, " in done.stderr and list(tmp_path.iterdir()) == []


def test_one_of_our_recipes_is_taken_by_its_name(tmp_path: Path) -> None:
    done = mlgo("run", "--recipe", "demo", "--workers", "none", "--output", str(tmp_path / "run"))
    assert done.returncode == 1 and "--workers 'none'" in done.stderr, "the next thing that is wrong"


def test_a_registry_that_begins_no_name_is_refused() -> None:
    done = mlgo("images", "build", "--registry", "bad registry")
    assert done.returncode == 1 and "--registry 'bad registry'" in done.stderr and "Traceback" not in done.stderr


def test_nothing_heavy_is_imported_by_the_launcher() -> None:
    code = "import sys, pipelines.cli, pipelines.local, pipelines.run; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
