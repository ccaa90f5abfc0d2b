"""Tests exit statuses and messages of commands in subprocesses, as a shell sees them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from components.platform.command import INTERRUPTED
from components.platform.errors import UserError
from tests.support.waiting import wait_until

PRELUDE = """
import click, errno, sys, time
from components.platform.errors import UserError
from components.platform.command import run_step
@click.command()
@click.option("--number", type=int)
def main(number):
"""


def start(body: str, *arguments: str) -> subprocess.Popen[str]:
    code = PRELUDE + "\n".join(f"    {line}" for line in body.splitlines()) + "\nrun_step(main)\n"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(body: str, *arguments: str) -> tuple[int, str]:
    process = start(body, *arguments)
    _out, err = process.communicate(timeout=60)
    return process.returncode, err


def test_user_error_prints_one_message_with_its_remedy() -> None:
    assert run("pass") == (0, "")
    assert run("raise UserError('no clang', 'install it')") == (1, "error: no clang\n  remedy: install it\n")


def test_error_about_a_mirror_names_the_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path))
    corpus = tmp_path / "gs" / "bucket" / "runs" / "my%3Acorpus" / "@0123abcd" / "my%3Acorpus"
    body = f"raise UserError({str(corpus / 'a.bc')!r} + ' is no bitcode', 'make {corpus} again')"
    uri = "gs://bucket/runs/my:corpus"
    assert run(body) == (1, f"error: {uri}/a.bc is no bitcode\n  remedy: make {uri} again\n")


def test_wrong_usage_has_the_status_of_click() -> None:
    status, err = run("pass", "--number", "x")
    assert status == 2
    assert "'x'" in err


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_both_help_flags_print_help(flag: str) -> None:
    process = start("raise ValueError('run')", flag)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "") and "-h, --help" in out


def test_unknown_log_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_LOG_FORMAT", "json")
    remedy = "set it to plain or timestamps, or unset it"
    assert run("pass") == (1, f"error: MLGO_LOG_FORMAT is 'json'\n  remedy: {remedy}\n")


def test_every_command_prints_the_version_of_the_project() -> None:
    process = start("pass", "--version")
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert process.communicate(timeout=60) == (f"{project['name']} {project['version']}\n", "")
    assert process.returncode == 0


def test_missing_package_is_named() -> None:
    status, message = run("import no_such_package.part")
    problem = "error: this command needs the Python package no_such_package, which is missing"
    assert (status, message) == (1, f"{problem}\n  remedy: mlgo setup training\n")
    assert "Traceback" in run("import components.no_such_module")[1]


@pytest.mark.parametrize("step", ["trace", "vocab", "warmstart", "ppo", "evaluation", "tune", "policy"])
def test_help_needs_no_package_of_the_training(step: str) -> None:
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys(["pyarrow", "tensorflow", "tf_agents", "gin"]))
sys.argv = ["step", "--help"]
runpy.run_module("components.{step}", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage:" in done.stdout, done.stderr


def test_unexpected_exception_keeps_its_traceback() -> None:
    status, err = run("raise ValueError('a defect')")
    assert status == 1
    assert "Traceback" in err and "a defect" in err


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("open('/dev/full', 'w').write('x' * 100000)", "no space left"),
        ("open('/sys/kernel/notes', 'w')", "/sys/kernel/notes"),
        ("open('a' * 300, 'w')", "File name too long"),
    ],
)
def test_error_of_the_system_is_reported_without_traceback(body: str, named: str) -> None:
    status, err = run(body)
    assert status == 1 and err.startswith("error: ") and named in err
    assert "remedy: " in err and "Traceback" not in err


_MAKE = "from pathlib import Path; from components.platform.storage.cache import default_cache_dir as cache\n"


@pytest.mark.parametrize(
    ("cache", "body", "problem"),
    [
        ("/dev/null", "cache().mkdir(parents=True, exist_ok=True)", "Not a directory"),
        ("/dev/null", "(cache() / 'deb').mkdir(parents=True)", "/dev/null/deb: Not a directory"),
        ("/dev/null/x", "cache().mkdir(parents=True, exist_ok=True)", "Not a directory"),
        ("/proc/x/y", "cache().mkdir(parents=True, exist_ok=True)", "/proc/x: No such file or directory"),
        ("/sys/kernel", "open(cache() / 'notes', 'w')", "/sys/kernel/notes: Permission denied"),
        (
            "/dev/null",
            "from components.platform.storage.directory import make_directory\nmake_directory(cache() / 'llvm')",
            "/dev/null/llvm: Not a directory",
        ),
    ],
)
def test_variable_of_an_unusable_cache_is_named(
    cache: str, body: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLGO_CACHE_DIR", cache)
    remedy = "set MLGO_CACHE_DIR to a directory that you can write to"
    assert run(_MAKE + body) == (1, f"error: the cache {cache} cannot be used: {problem}\n  remedy: {remedy}\n")


def test_variable_of_the_cache_is_not_named_for_other_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path))
    for body in ("open('/sys/kernel/notes', 'w')", "open(cache() / 'gone')"):
        status, err = run(_MAKE + body)
        assert status == 1 and err.startswith("error: ") and "MLGO_CACHE_DIR" not in err, err


def test_directory_that_vanishes_is_reported_without_traceback(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    body = f"""
import os
listed = list(os.scandir({str(tmp_path)!r}))
os.rmdir({str(tmp_path / "gone")!r})
for entry in listed:
    os.listdir(entry)
"""
    status, err = run(body)
    assert status == 1 and err.startswith(f"error: {tmp_path}/gone: No such file or directory\n  remedy: ")


@pytest.mark.parametrize(
    ("limit", "body", "named"),
    [
        ("RLIMIT_AS", "bytearray(1 << 33)", "out of memory"),
        ("RLIMIT_NOFILE", "[open('/dev/null') for _ in range(99)]", "too many open files"),
        ("RLIMIT_FSIZE", "print('x' * 99, file=open('f', 'w'), flush=True)", "File too large"),
    ],
)
def test_limits_are_reported_without_traceback(
    limit: str, body: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"RLIMIT_AS": 1 << 30, "RLIMIT_NOFILE": 50, "RLIMIT_FSIZE": 10}
    status, err = run(f"import resource\nresource.setrlimit(resource.{limit}, 2 * ({sizes[limit]},))\n{body}")
    assert status == 1 and named in err and "remedy: " in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("number", "remedy"),
    [("EMFILE", "raise the limit (ulimit -n)"), ("ENOMEM", "free memory"), ("EAGAIN", "wait"), ("ENOENT", "wait")],
)
def test_remedy_of_an_error_that_a_limit_caused_is_to_raise_it(number: str, remedy: str) -> None:
    """Another place does not help. EAGAIN is what a lock gives that another process holds."""
    raised = (
        f"try:\n    raise OSError(errno.{number}, 'no')\nexcept OSError:\n    raise UserError('a', 'wait') from None"
    )
    status, err = run(raised)
    assert status == 1 and err.startswith(f"error: a\n  remedy: {remedy}"), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_signals_run_finally_blocks_and_print_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    process = start(
        f"try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        f"finally:\n    open({str(tmp_path / 'cleaned')!r}, 'w').close()"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    _out, err = process.communicate(timeout=90)
    assert (process.returncode, err.strip()) == (128 + number, INTERRUPTED)
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_work_that_is_kept_is_continued(number: signal.Signals) -> None:
    kept = "from components.platform.console.interrupts import continues_when_rerun\nwith continues_when_rerun():\n"
    status, err = run(f"import signal\n{kept}    signal.raise_signal({number.value})\n    time.sleep(60)")
    assert (status, err.strip()) == (128 + number, f"{INTERRUPTED} to continue")


def test_signal_after_the_end_of_a_command_ends_the_process_at_once() -> None:
    process = start(
        "import atexit\nfrom components.platform.processes.reaper import REAPER\n"
        "scratch = REAPER.scratch()\n"
        "atexit.register(lambda: (print('ending', flush=True), time.sleep(60)))\n"
        "print(scratch, flush=True)\ntime.sleep(60)"
    )
    assert process.stdout is not None
    scratch = Path(process.stdout.readline().strip())
    assert scratch.is_dir()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "ending\n"
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (128 + signal.SIGINT, INTERRUPTED)
    wait_until(lambda: not scratch.exists(), "the reaper")


@pytest.mark.tf
def test_signal_while_tensorflow_converts_values_ends_as_elsewhere(tmp_path: Path) -> None:
    """TensorFlow replaces an exception from Python code that its conversion calls, or ends the process."""
    status, err = run(
        f"""\
import signal
import tensorflow as tf
class Values:
    def __len__(self):
        return 3
    def __getitem__(self, index):
        if index > 2:
            raise IndexError
        signal.raise_signal(signal.SIGTERM)
        return 1.0
try:
    tf.constant([Values(), Values()])
    while True:
        time.sleep(0.01)
finally:
    open({str(tmp_path / "cleaned")!r}, "w").close()"""
    )
    assert status == 128 + signal.SIGTERM and err.strip().endswith(INTERRUPTED), err
    assert (tmp_path / "cleaned").exists()


def test_closed_output_pipe_prints_no_traceback() -> None:
    process = start("for _ in range(100000): print('line')")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(90)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.returncode == 1


def test_text_of_user_error_with_and_without_remedy() -> None:
    assert str(UserError("a is missing", "install a")) == "a is missing\n  remedy: install a"
    assert str(UserError("a is missing")) == "a is missing"


def test_user_error_pickles_with_problem_and_remedy() -> None:
    error = pickle.loads(pickle.dumps(UserError("a is missing", "install a")))
    assert (error.problem, error.remedy) == ("a is missing", "install a")
