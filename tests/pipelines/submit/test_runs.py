"""Tests of `mlgo pipeline list | logs | artifacts | schedules` and --params with fakes of KFP and of storage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage import publish, verify
from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.uri import ObjectUri, mirror, parse_location
from pipelines.cli.flags import read_parameters
from pipelines.cli.main import cli
from pipelines.spec import COMPILED, load_spec, with_images
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.support.buckets import local_bucket

ROOT = "gs://there/kfp"
ATTEMPT = "11111111-2222-4333-8444-555555555555"
Start = Callable[..., str]


def mlgo(*arguments: object) -> str:
    """Return what `mlgo pipeline ...` prints; its UserError is raised."""
    words = ["pipeline", *map(str, arguments)]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


@pytest.fixture
def start(host: str) -> Start:
    """Return a function that starts a run, which is looked at so often, and returns its ID."""
    client = KfpClient(KfpAddress(host))

    def started(name: str = "n", experiment: str = "", looks: int = 0, root: str = ROOT, **parameters: str) -> str:
        images = {f"mlgo-{key}": f"r/{key}@sha256:{'1' * 64}" for key in ("toolchain", "training")}
        body = {
            "display_name": name,
            "pipeline_spec": with_images(load_spec(COMPILED), images),
            "runtime_config": {"parameters": parameters, "pipeline_root": root},
        }
        if experiment:
            made = client.ask("POST", "experiments", {"display_name": experiment})
            body["experiment_id"] = made["experiment_id"]
        identity = str(client.ask("POST", "runs", body)["run_id"])
        for _look in range(looks):
            client.ask("GET", f"runs/{identity}")
        return identity

    return started


def schedule(host: str, images: Path, name: str) -> None:
    mlgo(
        "schedule", "--host", host, "--images", images, "--param", "recipe=demo", "--name", name, "--cron", "0 3 * * 1"
    )


def test_runs_are_listed_newest_first(host: str, start: Start) -> None:
    first = start("first", "listed", looks=8)
    client = KfpClient(KfpAddress(host))
    (experiment,) = [client.ask("GET", f"runs/{first}")["experiment_id"]]
    spec = {"pipeline_spec": client.ask("GET", f"runs/{first}")["pipeline_spec"], "experiment_id": experiment}
    for name in ("second", "archived", "third", "fourth", "fifth"):
        client.ask("POST", "runs", {"display_name": name, **spec})
    lines = mlgo("list", "--host", host, "--experiment", "listed").splitlines()
    assert lines[0].split() == ["RUN", "NAME", "STATE", "BEGUN", "DURATION"]
    assert [line.split()[1] for line in lines[1:]] == ["fifth", "fourth", "third", "second", "first"]
    assert lines[-1].split()[0] == first and lines[-1].split()[2] == "succeeded" and lines[-1].endswith("1.5 h")
    options = ("list", "--host", host, "--experiment", "listed", "--limit", 1)
    assert "fifth" in mlgo(*options) and "fourth" not in mlgo(*options)
    assert first in mlgo(*options, "--state", "succeeded")
    assert mlgo(*options, "--state", "failed") == "no runs\n"


def test_unknown_experiment_is_named_with_those_that_exist(host: str, start: Start) -> None:
    start(experiment="existing")
    with pytest.raises(UserError, match="no experiment 'missing'") as refused:
        mlgo("list", "--host", host, "--experiment", "missing")
    assert "existing" in refused.value.remedy


def test_log_of_a_step_is_printed_without_kfps_launcher(host: str, start: Start) -> None:
    run = start("logged", looks=3)
    lines = mlgo("logs", run, "trace", "--host", host).splitlines()
    assert lines == [f"trace: line {number}" for number in range(100)]
    assert mlgo("logs", "logged", "vocab", "--host", host).startswith("vocab: line 0"), "it runs"


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("other", "no step 'other'"),
        ("ppo", "has not begun"),
        ("toolchain-training", "reused the result of another run"),
    ],
)
def test_step_without_a_log_is_refused(host: str, start: Start, task: str, named: str) -> None:
    run = start(looks=3)
    with pytest.raises(UserError, match=named) as refused:
        mlgo("logs", run, task, "--host", host)
    assert "corpus" in refused.value.remedy or task == "toolchain-training"


def test_lost_log_is_reported(host: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KfpClient, "get_text", lambda *_: "")
    with pytest.raises(UserError, match="no log") as refused:
        mlgo("logs", start(looks=3), "trace", "--host", host)
    assert "kubectl logs" in refused.value.remedy


def test_run_is_found_by_the_beginning_of_its_id_or_its_name(host: str, start: Start) -> None:
    start("twice", looks=2)
    newest = start("twice", looks=2)
    for ambiguous in ("run-", "twice"):
        with pytest.raises(UserError, match=f"'{ambiguous}' is ambiguous") as refused:
            mlgo("logs", ambiguous, "corpus", "--host", host)
        assert f"{newest} (twice)" in refused.value.remedy
    with pytest.raises(UserError, match="has no run missing") as refused:
        mlgo("cancel", "missing", "--host", host)
    assert f"{newest} (twice)" in refused.value.remedy
    named = start("only one")
    assert f"canceling: {named}" in mlgo("cancel", "only one", "--host", host)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Serve the bucket of ROOT."""
    with local_bucket("there", monkeypatch, tmp_path / "cache"):
        yield


def publish_outputs(root: str, run: str) -> None:
    """Publish the corpus and a page of a run, and what is no artifact, where KFP's driver puts them."""
    for name in ("corpus", "unfinished"):
        location = parse_location(f"{root}/mlgo-training/{run}/corpus/{ATTEMPT}/{name}")
        assert isinstance(location, ObjectUri)
        with publish(mirror(location), "corpus") as directory:
            (directory / "a.bc").write_text("bitcode")


def test_artifacts_are_listed_and_downloaded(bucket: None, host: str, start: Start, tmp_path: Path) -> None:
    run = start(looks=8)
    publish_outputs(ROOT, run)
    page = parse_location(f"{ROOT}/mlgo-training/{run}/evaluation/{ATTEMPT}/page")
    assert isinstance(page, ObjectUri)
    (tmp_path / "page").write_text("<html>")
    gcs.GcsStore().upload([(tmp_path / "page", page)])
    lines = mlgo("artifacts", run, "--host", host).splitlines()
    assert [line.split() for line in lines[1:-1]] == [
        ["corpus", "corpus", "Dataset", f"{ROOT}/mlgo-training/{run}/corpus/{ATTEMPT}/corpus"],
        ["evaluation", "page", "HTML", str(page)],
    ]
    assert "reused" in lines[-1] and "toolchain-training" in lines[-1]
    target = tmp_path / "downloads"
    assert f"{target}/evaluation/page" in mlgo("artifacts", run, "page", "--download", target, "--host", host)
    assert (target / "evaluation" / "page").read_text() == "<html>" and not (target / "corpus").exists()
    mlgo("artifacts", run, "--download", target, "--host", host)
    verify(target / "corpus" / "corpus")
    for name in ("policy", "corpus/page"):
        with pytest.raises(UserError, match=f"has published no artifact '{name}'") as refused:
            mlgo("artifacts", run, name, "--host", host)
        assert "corpus/corpus, evaluation/page" in refused.value.remedy
    with pytest.raises(UserError, match="has published no artifact") as refused:
        mlgo("artifacts", start(looks=1), "--download", target, "--host", host)
    assert "watch" in refused.value.remedy


def test_artifacts_in_the_clusters_storage_need_its_address(
    host: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in s3.ENDPOINT_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    unknown = start(looks=8, root="")
    with pytest.raises(UserError, match="default pipeline root") as refused:
        mlgo("artifacts", unknown, "--host", host)
    assert "--pipeline-root" in refused.value.remedy
    root = ("--pipeline-root", "minio://mlpipeline/v2/artifacts", "--host", host)
    with pytest.raises(UserError, match="minio://mlpipeline/v2/artifacts/mlgo-training") as refused:
        mlgo("artifacts", unknown, *root)
    assert "AWS_ENDPOINT_URL_S3" in refused.value.remedy
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    with s3_server("mlpipeline") as url:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": url}.items():
            monkeypatch.setenv(name, value)
        s3._client.cache_clear()
        publish_outputs("s3://mlpipeline/v2/artifacts", unknown)
        assert f"s3://mlpipeline/v2/artifacts/mlgo-training/{unknown}/corpus" in mlgo("artifacts", unknown, *root)
        mlgo("artifacts", unknown, "corpus/corpus", "--download", tmp_path, *root)
    s3._client.cache_clear()
    assert (tmp_path / "corpus" / "corpus" / "a.bc").read_text() == "bitcode"


def test_schedules_are_paused_resumed_and_deleted(host: str, images: Path) -> None:
    for name in ("weekly runs", "nightly-a", "nightly-b", "nightly-b"):
        schedule(host, images, name)

    def state(name: str) -> str:
        return next(line for line in mlgo("schedules", "list", "--host", host).splitlines() if name in line)

    assert state("weekly runs").endswith("0 0 3 * * 1") and "active" in state("weekly runs")
    assert "paused: schedule-" in mlgo("schedules", "pause", "weekly runs", "--host", host)
    assert "paused" in state("weekly runs") and "active" in state("nightly-a")
    mlgo("schedules", "resume", "weekly runs", "--host", host)
    assert "active" in state("weekly runs")
    with pytest.raises(UserError, match="'nightly-b' is ambiguous"):
        mlgo("schedules", "delete", "nightly-b", "--host", host)
    assert "deleted" in mlgo("schedules", "delete", "weekly runs", "--host", host)
    with pytest.raises(UserError, match="no schedule 'weekly runs'") as refused:
        mlgo("schedules", "pause", "weekly runs", "--host", host)
    assert "nightly-a" in refused.value.remedy


@pytest.mark.parametrize(
    "words", ["list", "logs", "artifacts", *(f"schedules {name}" for name in ("list", "pause", "resume", "delete"))]
)
def test_help_of_each_command_has_example(words: str) -> None:
    assert f"  mlgo pipeline {words} " in mlgo(*words.split(), "--help")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("recipe: [", "not valid YAML"),
        ("- recipe", "is not one mapping"),
        ("", "is not one mapping"),
        ("recipe: {a: b}", "recipe is a list or a mapping"),
        ("corpus: [a]", "corpus is a list or a mapping"),
    ],
)
def test_damaged_file_of_parameters_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match=named) as refused:
        mlgo("submit", "--host", "http://x", "--params", tmp_path / "p.yaml")
    assert "NAME: VALUE" in refused.value.remedy
    with pytest.raises(UserError, match="recipe=demo does not exist") as refused:
        mlgo("submit", "--host", "http://x", "--params", "recipe=demo")
    assert "--param " in refused.value.remedy


def test_values_in_a_file_are_text_as_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("fail_once: no\nseed: 007\nrun: 1e3\nempty:\nnote: 'a: b'\n")
    values = read_parameters(str(tmp_path / "p.yaml"))
    assert values == {"fail_once": "no", "seed": "007", "run": "1e3", "empty": "", "note": "a: b"}


def test_parameters_of_the_command_line_win(
    host: str, images: Path, tmp_path: Path, last_request: Callable[[str], dict[str, Any]]
) -> None:
    (tmp_path / "p.yaml").write_text("recipe: demo\nseed: 3\npreset: small\n")
    options = ("--host", host, "--images", images, "--params", tmp_path / "p.yaml", "--param", "preset=demo")
    given = {"recipe": "demo", "seed": 3, "preset": "demo"}
    for command in (("submit",), ("schedule", "--cron", "0 3 * * 1")):
        mlgo(*command, *options)
        route = "runs" if command == ("submit",) else "recurringruns"
        assert last_request(route)["body"]["runtime_config"]["parameters"] == given
    (tmp_path / "p.yaml").write_text(json.dumps({"recipee": "demo"}))
    with pytest.raises(UserError, match="no parameter 'recipee'") as refused:
        mlgo("submit", *options)
    assert "did you mean recipe?" in refused.value.remedy
