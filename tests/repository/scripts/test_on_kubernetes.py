"""`.ci/on-kubernetes` with commands that answer as a server does, and `.ci/with-kind` with recorders of its programs.

What both do on a real cluster, the workflow `kubernetes` shows.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli.main import cli
from tests.support.workflows import FOLDER, ROOT, load

SCRIPT = ROOT / ".ci" / "on-kubernetes"
CHECKS = ["images", "cluster", "admission", "smoke", "training", "canceled", "retried", "results", "schedules"]
PYTHON = """\
#!/bin/bash
cd "$(dirname "$0")"
printf '%q ' "${@:3}" >>calls; echo >>calls
[[ "${*:3}" != *"$BROKEN"* ]] || { echo "broken on purpose"; exit 1; }
case "$3 $4" in
  "pipeline submit")
    id=run-$(wc -l <calls)
    [[ "$*" != *fail_once=yes* ]] || echo 1 >"$id"
    echo "run n: http://kfp/#/runs/details/$id" ;;
  "pipeline cancel") echo 3 >"$5" ;;
  "pipeline retry") rm "$5" ;;
  "pipeline watch") [ ! -e "$5" ] || exit "$(<"$5")" ;;
  "pipeline list") sed -n 's/^pipeline watch \\(run-[0-9]*\\).*/\\1/p' calls ;;
  "pipeline artifacts") mkdir -p "$8/ppo/policy"; touch "$8/ppo/policy/manifest.json" ;;
esac
"""


def try_cluster(directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script; the commands that it calls are in `directory`/bin/calls."""
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / "python").write_text(PYTHON)
    (directory / "bin" / "python").chmod(0o755)
    variables = {"MLGO_TEST_KFP_HOST": "http://kfp", "MLGO_TEST_ARTIFACT_ROOT": "s3://bucket/root"}
    variables |= {
        "MLGO_TEST_REGISTRY": "r:5000",
        "MLGO_TEST_KFP_OPTIONS": "--small --label a=b",
        "BROKEN": "no call",
        "MLGO_TEST_IMAGES": "i.json",
    }
    environment = {**os.environ, **variables, "VENV": str(directory), **more}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=120)


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the result of each check in the table."""
    lines = [line.split() for line in done.stdout.splitlines() if line.endswith(" s")]
    return {name: result for result, name, *_time in lines}


def test_everything_that_holds_is_in_the_table(tmp_path: Path) -> None:
    done = try_cluster(tmp_path)
    assert done.returncode == 0 and rows(done) == dict.fromkeys(CHECKS, "held"), done.stdout + done.stderr
    calls = [shlex.split(line) for line in (tmp_path / "bin" / "calls").read_text().splitlines()]
    for words in calls:
        # --help prints only after all other options are parsed.
        shown = CliRunner().invoke(cli, [*words, "--help"])
        assert shown.exit_code == 0 and shown.output.startswith("Usage:"), shown.output
    assert all("--small" in words for words in calls if words[:2] == ["pipeline", "submit"])
    without = {"MLGO_TEST_REGISTRY": "", "MLGO_TEST_KFP_OPTIONS": ""}
    assert list(rows(try_cluster(tmp_path, **without))) == CHECKS[1:]


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        ("cluster check", ["cluster"]),
        ("pipeline watch", ["training", "canceled"]),
        ("pipeline cancel", ["canceled"]),
        ("pipeline retry", ["retried"]),
        ("pipeline logs", ["results"]),
        ("schedules resume", ["schedules"]),
    ],
)
def test_what_does_not_hold_fails(tmp_path: Path, broken: str, failed: list[str]) -> None:
    done = try_cluster(tmp_path, BROKEN=broken)
    assert done.returncode == 1 and "broken on purpose" in done.stderr
    assert [name for name, result in rows(done).items() if result == "FAILED"] == failed


@pytest.mark.parametrize("variable", ["MLGO_TEST_KFP_HOST", "MLGO_TEST_ARTIFACT_ROOT"])
def test_missing_variable_is_named(tmp_path: Path, variable: str) -> None:
    done = try_cluster(tmp_path, **{variable: ""})
    assert done.returncode == 1 and done.stderr.startswith(f"error: {variable} ") and "remedy" in done.stderr
    help_text = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    assert variable in help_text and "shellcheck" not in help_text


def test_cluster_of_kind_is_removed_after_the_command(tmp_path: Path) -> None:
    (step,) = [
        step for step in load(FOLDER / "kubernetes.yml")["jobs"]["kubernetes"]["steps"] if "kind" in step.get("run", "")
    ]
    assert step["run"] == ".ci/with-kind .ci/on-kubernetes"
    key = base64.b64encode(b"minio").decode()
    for program in ("docker", "kind", "kubectl", "curl"):
        path = tmp_path / program
        path.write_text(
            f'#!/bin/bash\necho "{program} $*" >>{tmp_path}/calls\ncase $1 in\n'
            f"  port-forward) exec sleep 98764 ;;\n  get) echo -n {key} ;;\nesac\n"
        )
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(ROOT / ".ci" / "with-kind"), "bash", "-c", "env; exit 7"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 7 and "AWS_ACCESS_KEY_ID=minio\n" in done.stdout, done.stderr
    documented = set(SCRIPT.read_text().partition("set -uo")[0].split())
    assert {line.partition("=")[0] for line in done.stdout.splitlines() if line.startswith("MLGO_TEST_")} <= documented
    calls = (tmp_path / "calls").read_text()
    assert calls.index("kind create cluster --name mlgo") < calls.index("kubectl wait") < calls.index("kind delete")
    assert "docker rm --force" in calls
    for _ in range(100):  # a killed process takes a moment
        if not (left := _runs(b"sleep\x0098764\x00")):
            break
        time.sleep(0.1)
    assert not left


def _runs(command: bytes) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_bytes() == command:
                return True
    return False
