"""The launcher as a container calls it, around a real step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from components.launcher.__main__ import without_empty
from tests import bitcode as whole

ROOT = Path(__file__).parents[3]


def launch(*arguments: object, module: str = "components.launcher", **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | env, timeout=120)


@pytest.fixture
def bitcode(tmp_path: Path) -> Path:
    (tmp_path / "bitcode").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "bitcode" / f"{name}.bc").write_bytes(whole.bitcode(name.encode()))
    return tmp_path / "bitcode"


def test_a_step_runs_and_kfp_is_told(bitcode: Path, tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    artifacts = {name: {"artifacts": [{"name": name, "uri": "x"}]} for name in ("corpus", "metrics")}
    kfp = {"outputs": {"artifacts": artifacts, "outputFile": str(tmp_path / "out.json")}}
    done = launch(
        "--executor-input", json.dumps(kfp), "--time-limit-s", 60, "--copy", f"splits.json={tmp_path}/ui/page",
        "--value", f"corpus_description.json:has_thinlto={tmp_path}/ui/thin", "--metrics", "report.json=metrics",
        "corpus", "make", "--input", bitcode, "--default-args", "-cc1", "--heldout-project", "", "--output", output,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ui" / "page").read_bytes() == (output / "splits.json").read_bytes()
    assert (tmp_path / "ui" / "thin").read_text() == "False"
    told = json.loads((tmp_path / "out.json").read_text())["artifacts"]
    assert set(told) == {"corpus", "metrics"} and told["metrics"]["artifacts"][0]["metadata"]


def test_a_failing_step_gives_its_status_and_kfp_is_not_told(tmp_path: Path) -> None:
    kfp = json.dumps({"outputs": {"outputFile": str(tmp_path / "out.json")}})
    done = launch("--executor-input", kfp, "corpus", "make", "--input", tmp_path, "--output", tmp_path / "corpus")
    assert done.returncode == 1 and done.stderr.startswith("error: "), done.stderr
    assert not (tmp_path / "out.json").exists()
    assert launch("corpus", "make", "--nonsense").returncode == 2


def test_a_step_that_takes_too_long_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    code = "import time\nfrom components.console import run_step\nrun_step(lambda: time.sleep(60))\n"
    (tmp_path / "components" / "slow").mkdir(parents=True)
    (tmp_path / "components" / "slow" / "__main__.py").write_text(code)
    for path in (ROOT / "components").iterdir():
        (tmp_path / "components" / path.name).symlink_to(path)
    command = [sys.executable, "-m", "components.launcher", "--time-limit-s", "1", "slow"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and "took more than 1 s" in done.stderr, done.stderr


def test_an_unknown_step_is_named() -> None:
    done = launch("nowhere")
    assert done.returncode == 1 and "there is no step 'nowhere'" in done.stderr and "Traceback" not in done.stderr


def test_options_without_a_value_are_left_out() -> None:
    arguments = ["obtain", "--recipe", "", "--quiet", "true", "--force", "false", "--name", "x", "--output", "o"]
    assert without_empty(arguments) == ["obtain", "--quiet", "--name", "x", "--output", "o"]


def test_the_outcome_is_told_to_a_web_hook() -> None:
    told: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.handle_request)
    thread.start()
    status = json.dumps({"state": "FAILED", "error": {"message": "no clang"}, "pipelineJobResourceName": "run-1"})
    url = f"http://127.0.0.1:{server.server_port}/s3cret"
    done = launch("--status", status, module="components.launcher.finish", MLGO_NOTIFY_URL=url)
    thread.join()
    server.server_close()
    assert done.returncode == 0 and "the pipeline ended: FAILED: no clang" in done.stdout, done.stderr
    assert json.loads(told[0]) == {"pipeline": "run-1", "state": "FAILED", "error": "no clang"}
    refused = launch("--status", status, module="components.launcher.finish", MLGO_NOTIFY_URL=url)
    assert refused.returncode == 1 and "the webhook at 127.0.0.1 did not take the notice" in refused.stderr
    assert "Traceback" not in refused.stderr
    for said in (done, refused):
        assert "s3cret" not in said.stdout + said.stderr
    assert launch("--status", "x", module="components.launcher.finish").returncode == 1


def test_the_environment_of_kfp_is_not_needed() -> None:
    code = "import components.launcher.__main__, sys; assert not {'kfp', 'tensorflow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=os.environ, timeout=60)
