"""The compiled smoke test: its steps as processes, under KFP's launcher, and its table in `watch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.local.ir import steps_of
from pipelines.local.run_locally import local_steps
from pipelines.local.step import RunLocations, Step
from pipelines.parameters.check import checked_values
from pipelines.smoke.rows import TABLE_HEADING, process_start_s
from pipelines.spec import COMPILED_PIPELINES, load_spec
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import KfpAddress
from pipelines.submit.server import wait
from tests.servers.argo_nodes import Workflow
from tests.servers.http_server import JsonHandler, serving
from tests.servers.kfp_launcher import KfpLauncher
from tests.servers.s3_server import s3_server
from tests.support.buckets import names, use_s3

ROOT = Path(__file__).parents[3]
SMOKE = COMPILED_PIPELINES["smoke"]
SPEC = load_spec(SMOKE)
BUCKET = "mlpipeline"


def steps(**parameters: str) -> dict[str, Step]:
    return {step.name: step for step in steps_of(SPEC, checked_values(SPEC, parameters))}


def test_parameters_are_validated() -> None:
    with pytest.raises(UserError, match="fail_once=sometimes"):
        steps(fail_once="sometimes")
    with pytest.raises(UserError, match="there is no setting 'cpus'"):
        steps(ray_cluster_options="cpus=4")


def test_repeated_run_repeats_its_checks() -> None:
    first, second = (local_steps(SMOKE, {}) for _run in range(2))
    assert all(before.cache_inputs != after.cache_inputs for before, after in zip(first[:-1], second[:-1], strict=True))


def test_steps_load_in_the_toolchain_image() -> None:
    """It has no TensorFlow, no kfp, and no client of Kubernetes (docker/requirements/steps.txt)."""
    code = "import sys, pipelines.smoke.__main__\nprint(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"kubernetes", "tensorflow", "kfp"} & set(done.stdout.split())


def test_start_of_this_process_is_known() -> None:
    code = "import time; time.sleep(1)\nfrom pipelines.smoke.rows import process_start_s\nprint(process_start_s())"
    begin_s = time.time()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert begin_s - 0.1 <= float(done.stdout) < time.time() - 1
    assert process_start_s() < begin_s


@pytest.fixture
def launcher(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KfpLauncher]:
    with s3_server(BUCKET) as url:
        use_s3(url, monkeypatch)
        yield KfpLauncher(url, tmp_path / "pods")


@pytest.mark.toolchain
def test_steps_under_kfps_launcher_say_that_it_copies(launcher: KfpLauncher, tmp_path: Path) -> None:
    """KFP's default root, on a server whose version says nothing."""
    locations = RunLocations(f"minio://{BUCKET}/v2/artifacts/mlgo-smoke/7e1", str(tmp_path / "files"))
    step_of = steps()
    results: dict[str, dict[str, Any]] = {}
    for name in ("check-toolchain", "check-training", "check-ray", "check-retry", "smoke-report"):
        (tmp_path / "files" / name).mkdir(parents=True)
        done = launcher.run(step_of[name].argv(locations))
        assert done.returncode == 0, done.stdout + done.stderr
        if name != "smoke-report":
            uri = parse_location(locations.artifact(step_of[name].output).replace("minio", "s3"))
            assert isinstance(uri, ObjectUri)
            rows = json.loads((fetch(uri) / "checks.json").read_text())["rows"]
            results[name] = {row["what"]: row for row in rows}
    assert results["check-toolchain"]["clang"]["status"] == "works"
    assert results["check-toolchain"]["root"]["status"] == "not tried"
    assert "copies" in results["check-toolchain"]["root"]["found"]
    assert results["check-training"]["artifact of another step"]["status"] == "works"
    assert results["check-retry"]["step that fails"]["status"] == "not tried"
    lines = done.stdout.splitlines()
    (heading,) = (number for number, line in enumerate(lines) if line.startswith(TABLE_HEADING))
    assert (
        sum(line.startswith(("works ", "fails ", "not tried ")) for line in lines[heading:])
        == sum(map(len, results.values())) + 1
    ), "and the time between steps"
    page = (tmp_path / "files" / "smoke-report" / "page").read_text()
    assert page.startswith("<!DOCTYPE html>") and "artifact of another step" in page
    assert (tmp_path / "files" / "smoke-report" / "summary").read_text().startswith(f"**{TABLE_HEADING}")
    output = json.loads((tmp_path / "files" / "smoke-report" / "executor_output.json").read_text())
    (metrics,) = output["artifacts"]["smoke_metrics"]["artifacts"]
    assert metrics["metadata"]["works"] > 0 and metrics["metadata"]["seconds_between_steps"] > 0
    assert (tmp_path / "files" / "check-toolchain" / "next_step").read_text() == "run"


def test_attempt_that_fails_on_purpose_says_so(gs_uri: ObjectUri, tmp_path: Path) -> None:
    locations = RunLocations(str(gs_uri), str(tmp_path / "files"))
    step = steps(fail_once="yes")["check-retry"]
    (tmp_path / "files" / step.name).mkdir(parents=True)
    environment = os.environ | {"MLGO_DIRECT_STORAGE": "1", "MLGO_KFP_HOST": "http://127.0.0.1:1"}

    def attempt() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *step.argv(locations)[1:]]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120)

    first = attempt()
    assert first.returncode == 1 and "this attempt fails on purpose" in first.stderr and "Traceback" not in first.stderr
    assert names(gs_uri) == ["training_checks.failed-once"], "no artifact of a failed attempt"
    second = attempt()
    assert second.returncode == 0, second.stderr
    assert "works      step that fails: the step failed on purpose, and was started again after" in second.stdout
    assert "retry_checks/manifest.json" in names(gs_uri) and "training_checks.failed-once" not in names(gs_uri)


def test_step_behind_a_false_condition_fails() -> None:
    """A server that runs it has misunderstood the pipeline."""
    step = steps()["unreachable"]
    (condition,) = step.conditions
    assert not condition.holds("run") and steps()["check-retry"].conditions[0].holds("run")
    command = [sys.executable, *step.argv(RunLocations("/nowhere", "/nowhere"))[1:]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1 and "although its condition does not hold" in done.stderr


def test_watch_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("check-toolchain", "check-training", "check-ray", "check-retry", "smoke-report", "finish")
    workflow = Workflow(SPEC, dict.fromkeys(names, "SUCCEEDED"), "SUCCEEDED")
    run = {
        "run_id": "run-1",
        "state": "SUCCEEDED",
        "pipeline_spec": SPEC,
        "run_details": {"task_details": workflow.details("run-1")},
    }
    asked: list[str] = []

    class Kfp(JsonHandler):
        def do_GET(self) -> None:
            if "/log" in self.path:
                asked.append(self.path)
                self.send(f"works      x\n{TABLE_HEADING}of 1\nworks      x (a)\n".encode(), "text/plain", 200)
            else:
                self.send_json(run if self.path.endswith("runs/run-1") else {"tag_name": "2.17.0"})

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Kfp)) as url:
        wait(KfpPipelines(KfpAddress(url)), "run-1", 0.02)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"{TABLE_HEADING}of 1", "works      x (a)"] and "[finish] succeeded after 60 s" in lines
    assert len(asked) == 1 and workflow.pods["smoke-report"] in asked[0], "only the log of the report"


@pytest.mark.toolchain
def test_smoke_test_runs_on_this_machine(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "run", "--pipeline", "smoke"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "run")], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[unreachable] skipped: its condition does not hold" in done.stdout
    assert "[finish] the pipeline ended: SUCCEEDED" in done.stdout
    rows = [line.removeprefix("[smoke-report] ") for line in done.stdout.splitlines() if "[smoke-report] " in line]
    assert any(row.startswith("works      TensorFlow (training): TensorFlow 2.") for row in rows)
    assert any(row.startswith("works      root (toolchain)") for row in rows)
    assert any(row.startswith("not tried  RayJob of one pod (ray)") for row in rows)
    assert (tmp_path / "run" / "table" / "table.html").is_file()
