"""Which places the launcher passes to a step for the artifacts that KFP copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.launcher.kfp_places import DIRECT_VARIABLE, use_kfp_directories


def executor_input(root: str) -> dict[str, Any]:
    def one(name: str) -> dict[str, Any]:
        return {"artifacts": [{"name": name, "uri": f"{root}/{name}"}]}

    return {
        "inputs": {"artifacts": {"corpus": one("corpus")}},
        "outputs": {"artifacts": {"ppo": one("ppo"), "policy": one("policy")}},
    }


def arguments(root: str) -> list[str]:
    return ["--corpus", f"{root}/corpus", "--root-dir", f"{root}/ppo", "--output", f"{root}/policy"]


@pytest.fixture(autouse=True)
def under_kfp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DIRECT_VARIABLE, raising=False)
    monkeypatch.setenv("ARTIFACT_LOCAL_PATH", str(tmp_path))


@pytest.mark.parametrize("scheme", ["minio", "s3"])
def test_artifacts_become_directories_and_the_working_directory_is_of_the_pod(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = f"{scheme}://bucket/run"
    found = use_kfp_directories(arguments(root), executor_input(root), "ppo")
    local = f"kfp-local://{scheme}/bucket/run"
    pod = f"{tmp_path}/{scheme}/bucket/run/ppo"
    assert found == ["--corpus", f"{local}/corpus", "--root-dir", pod, "--output", f"{local}/policy"]
    said = capsys.readouterr().out
    assert f"working directory {root}/ppo: " in said and "starts again from the beginning" in said


def test_only_uris_of_artifacts_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    root = "s3://bucket/run"
    given = ["--recipe", "s3://bucket/recipe.yaml", "--x", f"{root}/corpus2", "--part", f"{root}/corpus/a.bc"]
    found = use_kfp_directories(given, executor_input(root), "")
    assert found == [*given[:5], "kfp-local://s3/bucket/run/corpus/a.bc"] and capsys.readouterr().out == ""


@pytest.mark.parametrize("root", ["gs://bucket/run", "/runs/1"])
def test_places_that_steps_read_themselves_stay(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert use_kfp_directories(arguments(root), executor_input(root), "ppo") == arguments(root)
    assert capsys.readouterr().out == ""


def test_runners_without_kfp_keep_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECT_VARIABLE, "1")
    root = "s3://bucket/run"
    assert use_kfp_directories(arguments(root), executor_input(root), "ppo") == arguments(root)
