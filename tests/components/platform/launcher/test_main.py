"""The launcher's command line, run as in a container with a real step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.platform.launcher.__main__ import drop_empty_options
from components.platform.storage import digest
from tests.support import bitcode as whole

ROOT = Path(__file__).parents[4]


def launch(
    *arguments: object, module: str = "components.platform.launcher", **env: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | env, timeout=120)


@pytest.fixture
def bitcode(tmp_path: Path) -> Path:
    (tmp_path / "bitcode").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "bitcode" / f"{name}.bc").write_bytes(whole.bitcode(name.encode()))
    return tmp_path / "bitcode"


def test_step_runs_and_its_outputs_are_reported_to_kfp(bitcode: Path, tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    artifacts = {
        name: {"artifacts": [{"name": name, "uri": uri}]} for name, uri in (("corpus", str(output)), ("metrics", "x"))
    }
    kfp = {"outputs": {"artifacts": artifacts, "outputFile": str(tmp_path / "out.json")}}
    options = ["--executor-input", json.dumps(kfp), "--time-limit-s", 60]
    options += ["--copy", f"splits.json={tmp_path}/ui/page"]
    options += ["--value", f"corpus_description.json:has_thinlto={tmp_path}/ui/thin"]
    options += ["--metrics", "report.json=metrics", "corpus", "make", "--input", bitcode, "--default-args", "-cc1"]
    options += ["--heldout-project", "", "--output", output]
    done = launch(*options, MLGO_GIT_COMMIT="abc")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ui" / "page").read_bytes() == (output / "splits.json").read_bytes()
    assert (tmp_path / "ui" / "thin").read_text() == "False"
    reported = json.loads((tmp_path / "out.json").read_text())["artifacts"]
    assert set(reported) == {"corpus", "metrics"} and reported["metrics"]["artifacts"][0]["metadata"]
    metadata = reported["corpus"]["artifacts"][0]["metadata"]
    assert metadata["digest"] == digest(output) and metadata["files"] >= 6 and metadata["git_commit"] == "abc"


def test_failing_step_returns_its_status_and_reports_nothing_to_kfp(tmp_path: Path) -> None:
    kfp = json.dumps({"outputs": {"outputFile": str(tmp_path / "out.json")}})
    done = launch("--executor-input", kfp, "corpus", "make", "--input", tmp_path, "--output", tmp_path / "corpus")
    assert done.returncode == 1 and done.stderr.startswith("error: "), done.stderr
    assert not (tmp_path / "out.json").exists()
    assert launch("corpus", "make", "--nonsense").returncode == 2


def test_step_is_stopped_after_its_time_limit(tmp_path: Path) -> None:
    code = "import time\nfrom components.platform.command import run_step\nrun_step(lambda: time.sleep(60))\n"
    (tmp_path / "components" / "slow").mkdir(parents=True)
    (tmp_path / "components" / "slow" / "__main__.py").write_text(code)
    for path in (ROOT / "components").iterdir():
        (tmp_path / "components" / path.name).symlink_to(path)
    command = [sys.executable, "-m", "components.platform.launcher", "--time-limit-s", "1", "slow"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and "than 1 s" in done.stderr, done.stderr


def test_options_without_a_value_are_omitted() -> None:
    arguments = ["obtain", "--recipe", "", "--quiet", "true", "--force", "false", "--name", "x", "--output", "o"]
    assert drop_empty_options(arguments) == ["obtain", "--quiet", "--name", "x", "--output", "o"]


def test_launcher_does_not_import_kfp() -> None:
    code = "import components.platform.launcher.__main__, sys; assert not {'kfp', 'tensorflow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=os.environ, timeout=60)


@pytest.mark.parametrize(
    "step", ["nowhere", "pipelines.nowhere", "nowhere.retrain", "pipelines..retrain", "../retrain"]
)
def test_unknown_step_or_package_is_named(step: str) -> None:
    done = launch(step)
    assert done.returncode == 1 and step in done.stderr and "Traceback" not in done.stderr
