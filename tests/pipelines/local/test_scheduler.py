"""Tests of the scheduler with real processes: order, reuse, failure, kill and resumption."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from components.platform.command import INTERRUPTED
from components.platform.console.progress import LOG_FORMAT_VARIABLE
from components.platform.errors import UserError
from components.platform.launcher.notify import NOTIFY_VARIABLE
from components.platform.storage import publish
from pipelines.local.runners.process import ProcessRunner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import Condition, Step
from tests.support.waiting import wait_until


class Toys:
    """A chain one → two, and one → work (which resumes); `runs(name)` counts how often a step ran."""

    def __init__(self, tmp_path: Path, root: Path) -> None:
        self.counts = tmp_path / "counts"
        self.counts.mkdir()
        self.root = root
        self.directory = tmp_path / "run"

    def step(self, name: str, inputs: tuple[str, ...] = (), *more: str) -> Step:
        fed = [argument for source in inputs for argument in ("--in", f"{{{{$.inputs.artifacts['{source}'].uri}}}}")]
        output = f"{{{{$.outputs.artifacts['{name}'].uri}}}}"
        return Step(
            name=name,
            image="mlgo-training",
            module="components.toy",
            command=("python", "-m", "components.toy"),
            arguments=("--count", str(self.counts / name), *fed, *more, "--output", output),
            output=name,
            inputs={source: source for source in inputs},
            outputs={name: "system.Artifact"},
        )

    def working(self, *more: str) -> Step:
        """Return a step that resumes in the working directory `train-work`."""
        step = self.step("train", (), "--root-dir", "{{$.outputs.artifacts['train-work'].uri}}", *more)
        outputs = {**step.outputs, "train-work": "system.Artifact"}
        return replace(step, work="train-work", outputs=outputs, extends=("--minutes",))

    def runs(self, name: str) -> int:
        count = self.counts / name
        return len(count.read_text()) if count.exists() else 0

    def run(self, *steps: Step) -> set[str]:
        return run_pipeline(steps, self.directory, ProcessRunner(self.root))

    def number(self, name: str) -> int:
        return int((self.directory / name / "n").read_text())


@pytest.fixture
def toys(tmp_path: Path, toy_root: Path) -> Toys:
    return Toys(tmp_path, toy_root)


def test_steps_run_in_order_and_unchanged_steps_are_reused(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = toys.step("one", (), "--add", "1"), toys.step("two", ("one",), "--add", "2")
    toys.run(one, two)
    assert toys.number("two") == 3
    assert "[one] running" in capsys.readouterr().out
    assert "running" in (toys.directory / "logs" / "one.log").read_text()
    toys.run(one, two)
    assert (toys.runs("one"), toys.runs("two")) == (1, 1)
    assert capsys.readouterr().out.count("reused: its inputs have not changed") == 2


def test_steps_run_where_python_does_not_look_in_the_working_directory(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    toys.run(toys.step("one", (), "--add", "1"))
    assert toys.number("one") == 1


def test_changed_argument_reruns_step_and_its_dependents(toys: Toys) -> None:
    two = toys.step("two", ("one",), "--add", "2")
    toys.run(toys.step("one", (), "--add", "1"), two)
    toys.run(toys.step("one", (), "--add", "5"), two)
    assert toys.number("two") == 7


def test_identical_artifact_does_not_rerun_dependents(toys: Toys) -> None:
    one, two = toys.step("one", (), "--add", "1"), toys.step("two", ("one",), "--add", "2")
    toys.run(one, two)
    toys.run(replace(one, cache_inputs=("another compiler",)), two)
    assert (toys.runs("one"), toys.runs("two")) == (2, 1)


def test_changed_code_reruns_step(toys: Toys) -> None:
    one = toys.step("one")
    toys.run(one)
    with open(toys.root / "components" / "toy" / "__main__.py", "a") as stream:
        stream.write("# changed\n")
    toys.run(one)
    assert toys.runs("one") == 2
    platform = toys.root / "components" / "platform"
    real = platform.resolve()
    platform.unlink()
    shutil.copytree(real, platform)
    with open(platform / "storage" / "publish.py", "a") as stream:
        stream.write("# changed\n")
    toys.run(one)
    assert toys.runs("one") == 3


@pytest.mark.parametrize("damage", ["remove", "truncate", "other content"])
def test_damaged_artifact_is_rebuilt(toys: Toys, damage: str) -> None:
    one = toys.step("one", (), "--add", "12")
    toys.run(one)
    made = toys.directory / "one"
    if damage == "remove":
        (made / "manifest.json").unlink()
        (made / "n").unlink()
    elif damage == "truncate":
        (made / "n").write_text("1")
    else:
        from components.platform.storage import write_manifest

        (made / "n").write_text("99")
        write_manifest(made, kind="trace")
    toys.run(one)
    assert (toys.runs("one"), toys.number("one")) == (2, 12)


def test_failing_step_is_reported_with_log_and_stops_the_others(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    sleeper = toys.step("sleeper", (), "--sleep", "60")
    last, follows = toys.step("last", ("next",)), toys.step("next", ("bad",))
    bad = toys.step("bad", (), "--fail", "1", "--after", str(toys.directory / "logs" / "sleeper.log"))
    with pytest.raises(UserError, match=r"step bad failed \(exit status 1\).*logs/bad\.log") as raised:
        toys.run(last, sleeper, bad, follows)
    assert raised.value.problem.endswith("\n  not done: sleeper, next, last")
    out = capsys.readouterr().out
    assert out.endswith("[bad] error: the toy is broken\n[sleeper] stopped\n"), "output of a stopped step is not shown"
    assert children_of_run(toys) == [] and not (toys.directory / "sleeper").exists()
    assert "the toy is broken" in (toys.directory / "logs" / "bad.log").read_text()
    assert toys.runs("next") == 0
    assert not list(toys.directory.glob(".*partial*"))


@pytest.mark.timeout(120)
def test_independent_steps_run_in_parallel(toys: Toys, tmp_path: Path) -> None:
    (tmp_path / "meet").mkdir()
    toys.run(*(toys.step(name, (), "--meet", f"{tmp_path / 'meet'}:3") for name in ("one", "two", "three")))
    assert [toys.runs(name) for name in ("one", "two", "three")] == [1, 1, 1]


DRIVER = """
import sys
from pathlib import Path
from components.platform.command import run_step
from pipelines.local.runners.process import ProcessRunner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import Step
def main():
    run_pipeline([eval(text) for text in sys.argv[3:]], Path(sys.argv[1]), ProcessRunner(Path(sys.argv[2])))
run_step(main)
"""


def start(toys: Toys, *steps: Step) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVER, str(toys.directory), str(toys.root), *(repr(step) for step in steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"never said {text!r}: {process.communicate()[1]}")


def children_of_run(toys: Toys) -> list[int]:
    """Return the IDs of processes whose command line names the run directory."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and str(toys.directory).encode() in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_step_outlives_a_stopped_run(toys: Toys, number: signal.Signals) -> None:
    process = start(toys, toys.step("one", (), "--sleep", "60"))
    wait_for(process, "[one] running")
    assert len(children_of_run(toys)) == 2
    os.kill(process.pid, number)
    _out, err = process.communicate(timeout=90)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or err.strip() == f"{INTERRUPTED} to continue"
    wait_until(lambda: not children_of_run(toys))


def test_killed_step_resumes_in_its_working_directory(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    step = toys.working("--sleep", "60", "--minutes", "1")
    process = start(toys, step)
    wait_for(process, "[train] begun")
    process.kill()
    process.communicate(timeout=90)
    toys.run(replace(step, arguments=tuple("5" if a == "1" else a for a in step.arguments)))
    assert (toys.directory / "logs" / "train.log").read_text().count("begun\n") == 1
    assert "[train] starts: resumes in" in capsys.readouterr().out


def test_working_directory_of_other_inputs_is_moved_aside(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    step = toys.working("--add", "1")
    toys.run(step)
    toys.run(replace(step, cache_inputs=("other",)))
    assert "earlier work is kept in" in capsys.readouterr().out
    assert (toys.directory / "train-work.old-1" / "begun").exists()
    assert (toys.directory / "train-work" / "begun").exists()


def test_second_run_in_same_directory_is_refused(toys: Toys) -> None:
    process = start(toys, toys.step("one", (), "--sleep", "60"))
    wait_for(process, "[one] running")
    try:
        with pytest.raises(UserError, match=f"another mlgo run \\(process {process.pid}\\)"):
            toys.run(toys.step("one"))
    finally:
        process.terminate()
        process.communicate(timeout=90)


@pytest.mark.parametrize(
    ("value", "equal", "skipped"), [("yes", True, False), ("no", True, True), ("no", False, False)]
)
def test_conditions_decide_which_steps_run(toys: Toys, value: str, equal: bool, skipped: bool) -> None:
    one = replace(toys.step("one", (), "--say", "{{$.outputs.parameters['good'].output_file}}"), parameters=("good",))
    two = replace(toys.step("two", ("one",)), conditions=(Condition("one", "good", value, equal),))
    three = toys.step("three", ("two",))
    assert toys.run(one, two, three) == ({"two", "three"} if skipped else set())
    assert toys.runs("three") == (0 if skipped else 1)
    toys.run(one, two, three)
    assert toys.runs("one") == 1, "reused while its output parameter exists"
    (toys.directory / ".files" / "one" / "good").unlink()
    toys.run(one, two, three)
    assert toys.runs("one") == 2, "not reused without its output parameter"


def test_missing_output_parameter_of_a_condition_is_reported(toys: Toys) -> None:
    two = replace(toys.step("two", ("one",)), conditions=(Condition("one", "good", "yes"),))
    with pytest.raises(UserError, match="step one succeeded but wrote no value of good"):
        toys.run(replace(toys.step("one"), parameters=("good",)), two)


@pytest.mark.parametrize("directory", ["/proc/run", "/proc", "{}/file"])
def test_unusable_run_directory_is_refused(toys: Toys, tmp_path: Path, directory: str) -> None:
    (tmp_path / "file").touch()
    toys.directory = Path(directory.format(tmp_path))
    why = "cannot be created: |exists and is not a directory|is not the directory of an earlier run"
    with pytest.raises(UserError, match=f"^{toys.directory} ({why})"):
        toys.run(toys.step("one"))
    assert toys.runs("one") == 0


@pytest.mark.parametrize("subdirectory", ["", "run"])
def test_run_directory_in_an_artifact_is_refused_before_anything_is_written(
    toys: Toys, tmp_path: Path, subdirectory: str
) -> None:
    with publish(tmp_path / "trace", "trace") as directory:
        (directory / "file").touch()
    toys.directory = tmp_path / "trace" / subdirectory
    with pytest.raises(UserError, match=r"is or lies within .*trace"):
        toys.run(toys.step("one"))
    assert not toys.runs("one") and not (tmp_path / "trace" / "logs").exists() and not (tmp_path / "trace/run").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_exit_handler_gets_final_status(toys: Toys, fails: bool, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys, json; print('state', json.loads(sys.argv[1])['state'])"
    last = Step("finish", "mlgo-toolchain", "components.toy", ("python", "-c", code), ("{{status}}",), "", always=True)
    one = toys.step("one", (), *(("--fail", "1") if fails else ()))
    if fails:
        with pytest.raises(UserError, match="step one failed"):
            toys.run(last, one)
    else:
        toys.run(last, one)
    output = f"state {'FAILED' if fails else 'SUCCEEDED'}"
    assert output in (toys.directory / "logs" / "finish.log").read_text()
    assert (f"[finish] {output}" in capsys.readouterr().out) is not fails, "the error already says so"


def test_only_exit_handler_gets_webhook_url(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, "https://hooks.example.com/s3cret")
    code = f"import os; print('webhook:', os.environ.get({NOTIFY_VARIABLE!r}, 'unknown')[:14])"
    last = Step("finish", "mlgo-toolchain", "components.toy", ("python", "-c", code), (), "", always=True)
    toys.run(last, replace(last, name="compile", always=False))
    logs = toys.directory / "logs"
    assert "webhook: https://hooks." in (logs / "finish.log").read_text()
    assert "webhook: unknown" in (logs / "compile.log").read_text()


def test_lines_of_steps_have_one_timestamp(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "timestamps")
    code = "from components.platform.console import say; say('warning: x')"
    last = Step("finish", "mlgo-toolchain", "components.toy", ("python", "-c", code), (), "", always=True)
    toys.run(last, replace(last, name="compile", always=False))
    assert re.search(r"^\d\S+Z WARNING \[compile\] warning: x$", capsys.readouterr().out, re.MULTILINE)


FAILS = ("python", "-c", "import sys; sys.exit(3)")
LAST = Step("finish", "mlgo-toolchain", "components.toy", FAILS, (), "", always=True)


@pytest.mark.parametrize(
    ("last", "named"),
    [
        (LAST, r"step finish failed \(exit status 3\).*logs/finish\.log"),
        (replace(LAST, command=("/no/such/program",)), r"step finish failed: .*/no/such/program"),
        (
            replace(LAST, arguments=("{{$.inputs.artifacts['x'].uri}}",)),
            "step finish failed: the step finish has an unknown placeholder",
        ),
    ],
)
def test_failing_exit_handler_does_not_hide_the_error(
    toys: Toys, last: Step, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=rf"^step bad failed \(exit status 1\).*bad\.log\n  and then {named}") as raised:
        toys.run(last, replace(last, name="again"), toys.step("bad", (), "--fail", "1"))
    assert "fix the cause" in raised.value.remedy and "and then step again failed" in raised.value.problem
    toys.run(last, toys.step("good"))
    assert re.search(rf"^warning: {named}", capsys.readouterr().out, re.MULTILINE)


def test_interrupted_exit_handler_does_not_hide_the_error(toys: Toys) -> None:
    sleeper = replace(LAST, command=("python", "-c", "import time; print('late', flush=True); time.sleep(60)"))
    process = start(toys, sleeper, toys.step("bad", (), "--fail", "1"))
    log = toys.directory / "logs" / "finish.log"
    wait_until(lambda: log.exists() and "\nlate" in log.read_text(), process=process)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 130 and "error: step bad failed" in out and err.strip() == f"{INTERRUPTED} to continue"
