"""Nothing that a command starts outlives it: daemons in other sessions, double forks, processes that ignore SIGTERM."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.platform.processes import supervision, tree_supervisor
from components.platform.processes.build_tools import run_logged
from components.platform.processes.process_tree import ProcessTree
from tests.components.conftest import living
from tests.support.waiting import wait_until

# As daemon(3) does, and then waits for an hour; the marker is in the command line.
DOUBLE_FORK = """
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/")
if "quiet" in sys.argv: [os.dup2(os.open("/dev/null", os.O_RDWR), number) for number in range(3)]
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(3600)
"""
LEAVES = {
    "in the background": "sh -c 'sleep 3600; : {marker}' &",
    "in its own session": "setsid sh -c 'sleep 3600; : {marker}' &",
    "in its own session, without the pipe": "setsid sh -c 'sleep 3600; : {marker}' >/dev/null 2>&1 </dev/null &",
    "without SIGHUP": "nohup sh -c 'sleep 3600; : {marker}' &",
    "a daemon": "{daemon} {marker};",
    "a daemon without the pipe": "{daemon} {marker} quiet;",
    "a daemon that ignores SIGTERM": "{daemon} {marker} stubborn;",
}


def leave(how: str, marker: str, status: int, directory: Path) -> list[str]:
    (directory / "daemon.py").write_text(DOUBLE_FORK)
    line = LEAVES[how].format(marker=marker, daemon=f"{sys.executable} {directory}/daemon.py")
    return ["sh", "-c", f"echo before; {line} sleep 0.5; exit {status}"]


@pytest.mark.parametrize(("how", "status"), zip(LEAVES, itertools.cycle([0, 1]), strict=False))
def test_what_a_build_leaves_running_is_stopped_and_named(
    how: str, status: int, marker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.monotonic()
    assert run_logged(leave(how, marker, status, tmp_path), tmp_path, tmp_path / "log") == status
    assert time.monotonic() - began_s < 100, "it waited for the hour"
    assert living(marker) == []
    for text in (capsys.readouterr().out, (tmp_path / "log").read_text()):
        *_, last = text.splitlines()
        assert "left running" in last and marker in last
    assert "before\n" in (tmp_path / "log").read_text()


def test_what_ends_soon_after_the_command_is_awaited_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_logged(["sh", "-c", "(sleep 0.5; echo late) & exit 4"], tmp_path, tmp_path / "log") == 4
    assert (tmp_path / "log").read_text().endswith("late\n") and capsys.readouterr().out == ""


STEP = """\
import sys
from pathlib import Path
from components.platform.command import run_step
from components.platform.processes.build_tools import run_logged
run_step(lambda: run_logged(sys.argv[2:], Path(sys.argv[1]), Path(sys.argv[1], "log")))
"""


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("in its own session", signal.SIGTERM),
        ("a daemon", signal.SIGINT),
        *(("a daemon that ignores SIGTERM", number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)),
    ],
)
def test_signal_to_a_step_ends_daemons_of_its_command(
    how: str, number: signal.Signals, marker: str, tmp_path: Path
) -> None:
    line = leave(how, marker, 0, tmp_path)[2].replace("exit 0", "echo ready; sleep 3600; :")
    step = subprocess.Popen([sys.executable, "-c", STEP, str(tmp_path), "sh", "-c", line])
    try:
        log = tmp_path / "log"
        wait_until(lambda: log.exists() and "\nready\n" in log.read_text(), process=step)
        assert len(living(marker)) >= 2, "the shell and its daemon"
        step.send_signal(number)
        assert step.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    finally:
        step.kill()
    assert number == signal.SIGKILL or not living(marker)
    wait_until(lambda: not living(marker))


def test_ordinary_users_leave_nothing_behind_either(marker: str, tmp_path: Path) -> None:
    """The supervisor needs no privileges."""
    script = Path(shutil.copy(tree_supervisor.__file__, "/tmp")).rename(f"/tmp/{marker}.py")
    try:
        report = os.memfd_create("report")
        command = [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(report), ""]
        user = 65534 if os.geteuid() == 0 else None
        daemon = leave("in its own session", marker, 5, tmp_path)
        command[0] = "/usr/bin/python3"
        done = subprocess.run([*command, *daemon], user=user, pass_fds=[report], cwd="/", timeout=60, check=False)
    finally:
        script.unlink()
    assert done.returncode == 5 and living(marker) == []
    assert marker in os.pread(report, 10_000, 0).decode()
    os.close(report)


def test_supervised_program_leaves_no_daemon_and_is_ended_after_its_time(marker: str, tmp_path: Path) -> None:
    shell, *rest = leave("a daemon", marker, 3, tmp_path)
    done = supervision.run([shutil.which(shell) or shell, *rest], 60, daemons=True)
    assert done.returncode == 3 and len(done.left_running) == 1 and marker in done.left_running[0]
    rest[1] = rest[1].replace("exit 3", "sleep 3600")
    with pytest.raises(supervision.ProcessTimeout):
        supervision.run([shutil.which(shell) or shell, *rest], 2, daemons=True)
    assert living(marker) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGHUP])
def test_signal_that_ends_the_command_is_its_status(number: signal.Signals, tmp_path: Path) -> None:
    assert run_logged(["sh", "-c", f"kill -{number} $$"], tmp_path, tmp_path / "log") == -number
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"], "no core file"


def test_command_gets_pipes_signals_and_lines_as_without_a_supervisor(tmp_path: Path) -> None:
    ignored = "import signal; print(signal.getsignal(signal.SIGPIPE), signal.pthread_sigmask(0, []))"
    code = f"{ignored}; import os; print(os.getsid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd'))[:-1])"
    tree = ProcessTree(["/usr/bin/python3", "-I", "-S", "-c", "import signal\n" + code.replace("; ", "\n")], tmp_path)
    try:
        # Python itself ignores SIGPIPE when it starts, which tells that it was not inherited as ignored.
        assert [line.rstrip() for line in tree.lines()][1:] == ["True ['0', '1', '2']"] and tree.wait() == 0
    finally:
        tree.close()
    tree = ProcessTree(["printf", "a\\r\\nb\\rc\\n\\303\\n\\303\\244"], tmp_path)
    try:
        assert list(tree.lines()) == ["a\n", "b\n", "c\n", "\ufffd\n", "ä"]
    finally:
        tree.close()


def test_missing_program_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-tool"):
        run_logged(["no-such-tool"], tmp_path, tmp_path / "log")
    assert run_logged([str(tmp_path / "gone")], tmp_path, tmp_path / "log") == 127
    assert f"{tmp_path}/gone" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("status", [0, 1])
def test_recipe_whose_build_starts_a_daemon_ends_with_a_message(status: int, marker: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/x.c").write_text("int f(int x) { return x; }\n")
    line = LEAVES["in its own session"].format(marker=marker)
    (tmp_path / "recipe.yaml").write_text(
        "name: p\nsource: {path: source}\ncommands:\n"
        f"- $CC $CFLAGS -c x.c -o x.o; cp x.o y.o\n- {json.dumps(f'{line} sleep 0.3; exit {status}')}\n"
    )
    command = [sys.executable, "-m", "components.corpus", "build", "--recipe", tmp_path / "recipe.yaml"]
    options = ["--cache-dir", tmp_path / "cache", "--heldout-fraction", "0", "--output", tmp_path / "corpus"]
    done = subprocess.run([*map(str, command + options)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    assert living(marker) == []
    assert "left running" in done.stdout
    if status:
        assert "p cannot" in done.stderr and "left running" in done.stderr, "the end of the log"
