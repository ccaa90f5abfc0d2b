"""Tests the supervision of real child processes: none of them may remain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.processes import reaper, supervision
from tests.components.conftest import living
from tests.support.waiting import wait_until

# A child with descendants that would live for an hour; the marker is in all command lines.
FAMILY = 'sh -c "sleep 3600; : {word}" {word} & sh -c "sleep 3600 & wait" {word} & echo started {word} >&2; wait'


def family(word: str) -> list[str]:
    return ["/bin/sh", "-c", FAMILY.format(word=word)]


def test_status_stderr_and_time_are_returned() -> None:
    completed = supervision.run(["/bin/sh", "-c", "echo out; echo first >&2; echo last >&2; exit 7"], 30)
    assert completed.returncode == 7
    assert completed.stderr == "first\nlast"
    assert 0 < completed.wall_s < 30


def test_stdout_goes_to_the_given_descriptor(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        supervision.run(["/bin/echo", "a  b", "$HOME", '"'], 30, stdout=out.fileno(), cwd=tmp_path)
    assert (tmp_path / "out").read_text() == 'a  b $HOME "\n'


SECRETS = (
    *("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "aws_secret_access_key", "MLGO_NOTIFY_URL", "HF_TOKEN", "SIGNING_KEY"),
    *("AZURE_STORAGE_KEY", "GITHUB_PAT", "MYSQL_PWD", "DB_URL", "SLACK_WEBHOOK_URL", "SENTRY_DSN", "SSH_AUTH_SOCK"),
)


def test_child_does_not_inherit_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, "OF_THE_USER", "CCC_OVERRIDE_OPTIONS"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("MLGO_PROXY", "https://user:hidden@proxy:3128")
    monkeypatch.setenv("MLGO_SEEN", "shown")
    with open(tmp_path / "out", "wb") as out:
        supervision.run(["/usr/bin/env"], 30, stdout=out.fileno())
    seen = (tmp_path / "out").read_text()
    assert "hidden" not in seen and "MLGO_SEEN=shown" in seen and f"PATH={os.environ['PATH']}" in seen


def test_child_has_three_descriptors_and_inherits_no_ignored_signal(tmp_path: Path) -> None:
    """With the socket of the server, a compile could start commands that are not confined."""
    with open(tmp_path / "out", "wb") as out:
        command = ["/bin/sh", "-c", "ls /proc/self/fd; grep SigIgn /proc/self/status"]
        assert supervision.run(command, 30, stdout=out.fileno(), cwd=tmp_path).returncode == 0
    *descriptors, ignored = (tmp_path / "out").read_text().splitlines()
    assert descriptors == ["0", "1", "2", "3"]  # 3 is the directory that ls reads
    of_the_c_library = 0b11 << 31  # signals 32 and 33, which sigaction(2) refuses to change
    assert int(ignored.split()[1], 16) & ~of_the_c_library == 0


def test_many_children_start_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(100) as pool:
        done = pool.map(lambda number: supervision.run(["/bin/sh", "-c", f"exit {number}"], 60), range(100))
        assert [one.returncode for one in done] == list(range(100))


def test_missing_directory_and_missing_interpreter_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        supervision.run(["/bin/true"], 30, cwd=tmp_path / "gone")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(FileNotFoundError, match="script"):
        supervision.run([tmp_path / "script"], 30)


def test_dead_server_is_an_error_and_the_next_child_gets_another(marker: str) -> None:
    def kill() -> None:
        wait_until(lambda: living(marker))
        assert reaper.REAPER._server is not None
        reaper.REAPER._server.kill()

    helper = threading.Thread(target=kill)
    helper.start()
    with pytest.raises(ChildProcessError, match="was killed"):
        supervision.run(["/bin/sh", "-c", f"sleep 3600; : {marker}"], 60)
    helper.join()
    assert supervision.run(["/bin/sh", "-c", "exit 3"], 30).returncode == 3


def test_stdin_is_empty() -> None:
    assert supervision.run(["/bin/sh", "-c", "read line && exit 1; exit 0"], 30).returncode == 0


def test_stdin_is_the_given_file(tmp_path: Path) -> None:
    path = tmp_path / "a $(b) 'c'"
    path.write_text("one\ntwo\n")
    with open(tmp_path / "out", "wb") as out:
        assert supervision.run(["/bin/cat"], 30, stdout=out.fileno(), stdin=path).returncode == 0
    assert (tmp_path / "out").read_bytes() == path.read_bytes()


def test_signal_gives_a_negative_status_and_no_core_file(tmp_path: Path) -> None:
    assert supervision.run(["/bin/sh", "-c", "kill -SEGV $$"], 30, cwd=tmp_path).returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


def test_only_the_end_of_long_stderr_is_kept() -> None:
    completed = supervision.run(["/bin/sh", "-c", "yes 0123456789 | head -n 500000 >&2; echo the end >&2"], 60)
    assert len(completed.stderr) <= supervision.STDERR_TAIL_BYTES
    assert completed.stderr.endswith("the end")


@pytest.mark.parametrize("program", ["/no/such/clang", "/etc/passwd", "/tmp"])
def test_program_that_is_not_executable_is_refused(program: str) -> None:
    with pytest.raises(UserError, match=program):
        supervision.run([program], 30)


def test_timeout_kills_all_descendants(marker: str) -> None:
    started = time.monotonic()
    with pytest.raises(supervision.ProcessTimeout) as caught:
        supervision.run(family(marker), 5)
    assert time.monotonic() - started < 600  # less than the hour that they sleep
    assert f"started {marker}" in caught.value.stderr  # so there were descendants
    wait_until(lambda: not living(marker))


def test_time_limit_does_not_count_while_the_process_is_stopped(marker: str) -> None:
    """A trainer that was paused must not take the compile that it waits for for one that hangs."""
    command = ["/bin/sh", "-c", f"sleep 6; exit 7; : {marker}"]
    code = "from components.platform.processes import supervision; supervision._SLICE_S = 0.2; "
    code += f"print(supervision.run({command}, 3).returncode)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: any(pid != process.pid for pid in living(marker)))
        process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        process.send_signal(signal.SIGCONT)
        printed, _ = process.communicate(timeout=60)
    assert printed == "7\n"


def test_descendants_of_an_ended_child_are_killed(marker: str) -> None:
    completed = supervision.run(["/bin/sh", "-c", f"sh -c 'sleep 3600; : {marker}' & exit 3"], 30)
    assert completed.returncode == 3
    wait_until(lambda: not living(marker))


def test_exception_in_the_waiting_thread_kills_all_descendants(marker: str) -> None:
    def interrupt() -> None:
        wait_until(lambda: len(living(marker)) >= 3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        supervision.run(family(marker), 60)
    helper.join()
    wait_until(lambda: not living(marker))


def test_kill_running_kills_only_children_of_the_given_threads(marker: str, tmp_path: Path) -> None:
    outcomes: dict[str, object] = {}

    def work(name: str) -> None:
        script = f"while [ ! -e {tmp_path}/{name} ]; do sleep 0.05; done; : {marker}-{name}"
        try:
            outcomes[name] = supervision.run(["/bin/sh", "-c", script], 600).returncode
        except Exception as error:
            outcomes[name] = type(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("doomed", "spared")]
    for thread in threads:
        thread.start()
    wait_until(lambda: living(f"{marker}-doomed") and living(f"{marker}-spared"))
    supervision.kill_running({threads[0].ident or 0})
    (tmp_path / "spared").touch()
    for thread in threads:
        thread.join(timeout=60)
    assert outcomes == {"doomed": supervision.ProcessKilled, "spared": 0}


def test_kill_running_during_start_kills_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: Any) -> Any:
        supervision.kill_running({threading.get_ident()})
        return real_start(*arguments)

    real_start = reaper.REAPER.start
    monkeypatch.setattr(reaper.REAPER, "start", start)
    with pytest.raises(supervision.ProcessKilled):
        supervision.run(["/bin/sleep", "600"], 600)


def test_scratch_is_in_memory_only_if_there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reaper, "MEMORY_FILE_SYSTEM", tmp_path)
    monkeypatch.setattr(reaper, "MEMORY_BYTES", 1)
    assert reaper._memory_directory() == tmp_path
    monkeypatch.setattr(reaper, "MEMORY_BYTES", 1 << 80)
    assert reaper._memory_directory() is None
    monkeypatch.setattr(reaper, "MEMORY_FILE_SYSTEM", tmp_path / "none")
    assert reaper._memory_directory() is None


def test_scratch_is_removed_at_the_end_of_the_process() -> None:
    program = """
import os, signal, sys
from components.platform.processes.reaper import REAPER
(REAPER.scratch() / "log").write_text("large")
print(REAPER.scratch(), flush=True)
sys.stdin.readline()
"""
    for ending in (signal.SIGKILL, None):
        with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as child:
            assert child.stdin and child.stdout
            scratch = Path(child.stdout.readline().strip())
            assert (scratch / "log").exists()
            child.stdin.close() if ending is None else child.send_signal(ending)
        wait_until(lambda: not scratch.exists())  # noqa: B023


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_children_die_with_their_parent(killer: signal.Signals, marker: str) -> None:
    """The parent is killed without any chance to clean up, by the kernel or by a user."""
    program = f"from components.platform.processes import supervision; supervision.run({family(marker)!r}, 3600)"
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: len(living(marker)) >= 4)
        parent.send_signal(killer)
        assert parent.wait(timeout=20) == -killer
        wait_until(lambda: not living(marker))
    finally:
        parent.kill()
        parent.wait()


def test_forked_process_has_its_own_reaper(marker: str) -> None:
    """The children of a forked worker die with it, and this process does not wait for the worker's reaper."""
    assert supervision.run(["/bin/true"], 30).returncode == 0  # starts the reaper of this process
    child = os.fork()
    if child == 0:
        try:
            supervision.run(family(marker), 3600)
        finally:
            os._exit(1)
    wait_until(lambda: len(living(marker)) >= 3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: not living(marker))
    assert supervision.run(["/bin/true"], 30).returncode == 0


def test_file_descriptors_do_not_leak() -> None:
    supervision.run(["/bin/true"], 30)
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        supervision.run(["/bin/true"], 30)
    assert len(os.listdir("/proc/self/fd")) == len(before)
