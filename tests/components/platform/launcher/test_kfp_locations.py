"""Which places the launcher passes to a step for the artifacts that KFP copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.platform.launcher.kfp_locations import (
    DIRECT_VARIABLE,
    copied_bytes,
    locate_outputs,
    resolve_locations,
)


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
    resolved = resolve_locations(arguments(root), executor_input(root), "ppo")
    local = f"kfp-local://{scheme}/bucket/run"
    pod = f"{tmp_path}/{scheme}/bucket/run/ppo"
    assert resolved == ["--corpus", f"{local}/corpus", "--root-dir", pod, "--output", f"{local}/policy"]
    said = capsys.readouterr().out
    assert f"working directory {root}/ppo: " in said and "starts again" in said


def test_only_uris_of_artifacts_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    root = "s3://bucket/run"
    step_arguments = ["--recipe", "s3://bucket/recipe.yaml", "--x", f"{root}/corpus2", "--part", f"{root}/corpus/a.bc"]
    resolved = resolve_locations(step_arguments, executor_input(root), "")
    assert resolved == [*step_arguments[:5], "kfp-local://s3/bucket/run/corpus/a.bc"] and capsys.readouterr().out == ""


@pytest.mark.parametrize("root", ["gs://bucket/run", "/runs/1"])
def test_places_that_steps_read_themselves_stay(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve_locations(arguments(root), executor_input(root), "ppo") == arguments(root)
    assert capsys.readouterr().out == ""


def test_runners_without_kfp_keep_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECT_VARIABLE, "1")
    root = "s3://bucket/run"
    assert resolve_locations(arguments(root), executor_input(root), "ppo") == arguments(root)


ROOTS = ["minio://mlpipeline/v2/artifacts", "s3://bucket/kfp", "gs://bucket/kfp"]
TASK = "mlgo-training/7e1c0a52-8f0b-4a55-9a0e-3f2c7f1f5d11/ppo/0b9d3c1e-2f60-4d0e-8f7a-6f1f3a2b4c5d"


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("own", ["s3://own/mlgo", "gs://own/mlgo/"])
def test_below_an_artifact_root_the_place_is_that_below_the_pipeline_root(
    root: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kfp = executor_input(f"{root}/{TASK}")
    kfp["inputs"]["artifacts"]["corpus"]["artifacts"][0]["metadata"] = {"location": "s3://own/other/corpus"}
    resolved = resolve_locations(arguments(f"{root}/{TASK}"), kfp, "ppo", own)
    location = f"{own.rstrip('/')}/{TASK}"
    assert resolved == [
        "--corpus",
        "s3://own/other/corpus",
        "--root-dir",
        f"{location}/ppo",
        "--output",
        f"{location}/policy",
    ]
    assert capsys.readouterr().out == "", "a lost pod does not start again"


def test_artifacts_of_a_run_with_another_root_are_read_where_they_are() -> None:
    root = "minio://mlpipeline/v2/artifacts/run"
    kfp = executor_input(root)
    corpus = kfp["inputs"]["artifacts"]["corpus"]["artifacts"][0]
    local = "kfp-local://minio/mlpipeline/v2/artifacts/run/corpus"
    for metadata, location in (
        ({}, local),
        ({"location": "kfp-local://minio/elsewhere"}, local),
        ({"location": 3}, local),
        ({"location": "gs://old/corpus"}, "gs://old/corpus"),
    ):
        corpus["metadata"] = metadata
        assert resolve_locations(["--corpus", f"{root}/corpus"], kfp, "", "s3://own/mlgo") == ["--corpus", location]
        assert resolve_locations(["--corpus", f"{root}/corpus"], kfp, "") == ["--corpus", location]


def test_pages_that_kfp_copies_have_no_location() -> None:
    root = f"minio://mlpipeline/{TASK}"
    resolved = locate_outputs(["--output", f"{root}/policy"], executor_input(root), "s3://own/mlgo")
    assert resolved == {"policy": {"location": f"s3://own/mlgo/{TASK}/policy"}}
    assert locate_outputs(["--output", f"{root}/policy"], executor_input(root), "") == {}


def test_unknown_layout_of_kfp_keeps_its_path() -> None:
    resolved = locate_outputs(["minio://b/a/ppo/policy"], executor_input("minio://b/a/ppo"), "s3://own/mlgo")
    assert resolved["policy"] == {"location": "s3://own/mlgo/b/a/ppo/policy"}


@pytest.mark.parametrize("scheme", ["minio", "s3", "oci"])
def test_bytes_that_kfp_copies_are_those_in_its_directories(scheme: str, tmp_path: Path) -> None:
    document = executor_input(f"{scheme}://bucket/run")
    assert copied_bytes(document, "inputs") == copied_bytes(document, "outputs") == 0, "no directories"
    run = tmp_path / scheme / "bucket" / "run"
    corpus = run / "corpus" if scheme != "oci" else tmp_path / "oci" / "bucket_run_corpus" / "models"
    corpus.mkdir(parents=True)
    for name, size in (("a", 10), ("b", 7)):
        (corpus / name).write_bytes(b"x" * size)
    assert (copied_bytes(document, "inputs"), copied_bytes(document, "outputs")) == (17, 0)
    if scheme != "oci":
        (run / "policy").write_bytes(b"x" * 5)  # a page is a file
        (run / "ppo" / "deep").mkdir(parents=True)
        (run / "ppo" / "deep" / "c").write_bytes(b"x" * 6)
        assert copied_bytes(document, "outputs") == 11


def test_nothing_is_copied_of_places_that_steps_read_themselves(tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text("local")
    for root in ("gs://bucket/run", str(tmp_path), "odd:// b"):
        assert copied_bytes(executor_input(root), "inputs") == 0
    assert copied_bytes({}, "inputs") == 0
