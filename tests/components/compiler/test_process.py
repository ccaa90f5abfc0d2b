"""Real child processes: whatever happens, none of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.compiler import guard, process
from components.console import UserError

Living = Callable[[str], list[int]]

# A child with a grandchild and a great-grandchild that would live for an hour; the marker is in all command lines.
FAMILY = 'sh -c "sleep 3600; : {word}" {word} & sh -c "sleep 3600 & wait" {word} & echo started {word} >&2; wait'


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def family(word: str) -> list[str]:
    return ["/bin/sh", "-c", FAMILY.format(word=word)]


def test_status_messages_and_time() -> None:
    completed = process.run(["/bin/sh", "-c", "echo out; echo first >&2; echo last >&2; exit 7"], 30)
    assert completed.returncode == 7
    assert completed.stderr == "first\nlast"
    assert 0 < completed.wall_s < 30


def test_stdout_goes_where_it_is_told(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        process.run(["/bin/echo", "a  b", "$HOME", '"'], 30, stdout=out.fileno(), cwd=tmp_path)
    assert (tmp_path / "out").read_text() == 'a  b $HOME "\n'


def test_secrets_of_ours_are_not_the_childs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "aws_secret_access_key", "MLGO_NOTIFY_URL", "HF_TOKEN"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("MLGO_SEEN", "shown")
    with open(tmp_path / "out", "wb") as out:
        process.run(["/usr/bin/env"], 30, stdout=out.fileno())
    seen = (tmp_path / "out").read_text()
    assert "hidden" not in seen and "MLGO_SEEN=shown" in seen and f"PATH={os.environ['PATH']}" in seen


def test_stdin_is_empty() -> None:
    assert process.run(["/bin/sh", "-c", "read line && exit 1; exit 0"], 30).returncode == 0


def test_stdin_is_the_file_that_is_given(tmp_path: Path) -> None:
    given = tmp_path / "a $(b) 'c'"
    given.write_text("one\ntwo\n")
    with open(tmp_path / "out", "wb") as out:
        assert process.run(["/bin/cat"], 30, stdout=out.fileno(), stdin=given).returncode == 0
    assert (tmp_path / "out").read_bytes() == given.read_bytes()


def test_a_signal_is_a_negative_status_and_leaves_no_core(tmp_path: Path) -> None:
    assert process.run(["/bin/sh", "-c", "kill -SEGV $$"], 30, cwd=tmp_path).returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


def test_much_on_stderr_is_cut_to_its_end() -> None:
    completed = process.run(["/bin/sh", "-c", "yes 0123456789 | head -n 500000 >&2; echo the end >&2"], 60)
    assert len(completed.stderr) <= process.STDERR_TAIL_BYTES
    assert completed.stderr.endswith("the end")


@pytest.mark.parametrize("program", ["/no/such/clang", "/etc/passwd", "/tmp"])
def test_a_program_that_cannot_be_run(program: str) -> None:
    with pytest.raises(UserError, match=program):
        process.run([program], 30)


def test_a_timeout_kills_the_whole_family(marker: str, living_with: Living) -> None:
    started = time.monotonic()
    with pytest.raises(process.ProcessTimeout) as caught:
        process.run(family(marker), 5)
    assert time.monotonic() - started < 600  # not the hour that they would sleep
    assert f"started {marker}" in caught.value.stderr  # so there was a family
    wait_until(lambda: not living_with(marker))


def test_what_an_ended_child_leaves_behind_is_killed(marker: str, living_with: Living) -> None:
    completed = process.run(["/bin/sh", "-c", f"sh -c 'sleep 3600; : {marker}' & exit 3"], 30)
    assert completed.returncode == 3
    wait_until(lambda: not living_with(marker))


def test_an_exception_in_the_waiting_thread_kills_the_family(marker: str, living_with: Living) -> None:
    def interrupt() -> None:
        wait_until(lambda: len(living_with(marker)) >= 3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        process.run(family(marker), 60)
    helper.join()
    wait_until(lambda: not living_with(marker))


def test_kill_running_ends_only_what_the_named_threads_wait_for(
    marker: str, living_with: Living, tmp_path: Path
) -> None:
    outcomes: dict[str, object] = {}

    def work(name: str) -> None:
        script = f"while [ ! -e {tmp_path}/{name} ]; do sleep 0.05; done; : {marker}-{name}"
        try:
            outcomes[name] = process.run(["/bin/sh", "-c", script], 600).returncode
        except Exception as error:
            outcomes[name] = type(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("doomed", "spared")]
    for thread in threads:
        thread.start()
    wait_until(lambda: bool(living_with(f"{marker}-doomed")) and bool(living_with(f"{marker}-spared")))
    process.kill_running({threads[0].ident or 0})
    (tmp_path / "spared").touch()
    for thread in threads:
        thread.join(timeout=60)
    assert outcomes == {"doomed": process.ProcessKilled, "spared": 0}


def test_a_kill_while_a_child_is_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: Any) -> Any:
        process.kill_running({threading.get_ident()})
        return real_start(*arguments)

    real_start = guard.GUARD.start
    monkeypatch.setattr(guard.GUARD, "start", start)
    with pytest.raises(process.ProcessKilled):
        process.run(["/bin/sleep", "600"], 600)


def test_scratch_files_are_in_memory_only_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guard, "_MEMORY_FILE_SYSTEM", tmp_path)
    monkeypatch.setattr(guard, "_MEMORY_BYTES", 1)
    assert guard._scratch_place() == tmp_path
    monkeypatch.setattr(guard, "_MEMORY_BYTES", 1 << 80)
    assert guard._scratch_place() is None
    monkeypatch.setattr(guard, "_MEMORY_FILE_SYSTEM", tmp_path / "none")
    assert guard._scratch_place() is None


def test_scratch_files_go_with_us() -> None:
    program = """
import os, signal, sys
from components.compiler.guard import GUARD
(GUARD.scratch() / "log").write_text("large")
print(GUARD.scratch(), flush=True)
sys.stdin.readline()
"""
    for end in (signal.SIGKILL, None):
        with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as child:
            assert child.stdin and child.stdout
            scratch = Path(child.stdout.readline().strip())
            assert (scratch / "log").exists()
            child.stdin.close() if end is None else child.send_signal(end)
        wait_until(lambda: not scratch.exists())  # noqa: B023


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_orphan_when_we_die(killer: signal.Signals, marker: str, living_with: Living) -> None:
    """Our own death without any chance to clean up, at the hand of the kernel or of an impatient user."""
    program = f"from components.compiler import process; process.run({family(marker)!r}, 3600)"
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: len(living_with(marker)) >= 4)
        parent.send_signal(killer)
        assert parent.wait(timeout=20) == -killer
        wait_until(lambda: not living_with(marker))
    finally:
        parent.kill()
        parent.wait()


def test_a_forked_copy_of_us_has_a_guard_of_its_own(marker: str, living_with: Living) -> None:
    """A forked worker that dies takes its children with it, and does not keep ours waiting for the guard."""
    assert process.run(["/bin/true"], 30).returncode == 0  # our guard exists
    child = os.fork()
    if child == 0:
        try:
            process.run(family(marker), 3600)
        finally:
            os._exit(1)
    wait_until(lambda: len(living_with(marker)) >= 3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: not living_with(marker))
    assert process.run(["/bin/true"], 30).returncode == 0


def test_no_descriptor_leaks() -> None:
    process.run(["/bin/true"], 30)
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        process.run(["/bin/true"], 30)
    assert len(os.listdir("/proc/self/fd")) == len(before)
