"""Tests the confinement of real child processes, and attacks by a corpus with a real clang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus, Module
from components.platform.errors import UserError
from components.platform.processes import sandbox, supervision
from components.platform.processes.cgroup import available_processors
from components.platform.processes.confinement import Confinement, Kind, has_seccomp, landlock_abi
from components.platform.processes.reaper import REAPER
from tests.components.conftest import living
from tests.support.waiting import wait_until

DEFAULT = Advisor("default")
SOURCE = "int root(int x) { return x + 1; }\n"


ABIS = (1, 2, 3, 5, 6)
"""Versions of Landlock that add something; older ones are tried by not using what the kernel has more."""
KINDS = [*(f"landlock-{abi}" for abi in ABIS), "bubblewrap", "none"]


def bubblewrap_works() -> bool:
    return shutil.which("bwrap") is not None and sandbox._bubblewrap_problem() is None


@pytest.fixture(params=["landlock", "bubblewrap"])
def confined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kind(request.param, monkeypatch)
    return str(request.param)


def use_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Kind, int]:
    """Select a kind of sandbox, "landlock-2" with the second version; return the kind and the version."""
    kind, _, wanted = name.partition("-")
    abi = 0
    if kind == "landlock":
        if sandbox._landlock_problem() is not None:
            pytest.skip("Landlock does not work here")
        abi = min(int(wanted or 99), landlock_abi())
        monkeypatch.setattr(sandbox, "landlock_abi", lambda: abi)
    elif kind == "bubblewrap" and not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, kind)
    return cast(Kind, kind), abi


@pytest.fixture
def landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    if sandbox._landlock_problem() is not None:
        pytest.skip("Landlock does not work here")
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, "landlock")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server on the loopback interface whose `accept` times out soon if there is no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


@pytest.fixture
def evil(clang: Path, tmp_path: Path, server: socket.socket) -> Path:
    """A shared object that, when loaded, creates the file `marker` next to it and connects to `server`."""
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <arpa/inet.h>\n#include <fcntl.h>\n#include <sys/socket.h>\n"
        "__attribute__((constructor)) static void attack(void) {\n"
        f'  open("{tmp_path}/marker", O_CREAT | O_WRONLY, 0666);\n'
        '  open("loaded", O_CREAT | O_WRONLY, 0666);\n'
        f"  struct sockaddr_in to = {{AF_INET, htons({server.getsockname()[1]}), {{htonl(0x7f000001)}}, {{0}}}};\n"
        "  connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to);\n}\n"
    )
    subprocess.run([clang, "-shared", "-fPIC", source, "-o", tmp_path / "evil.so"], check=True)
    return tmp_path / "evil.so"


def can_connect(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except TimeoutError:
        return False
    return True


ATTEMPTS = {
    "files": [
        "open(f'{outside}/new', 'w')",
        "open(f'{outside}/file', 'r+')",
        "os.truncate(f'{outside}/file', 1)",
        "os.open(f'{outside}/file', os.O_RDONLY | os.O_TRUNC)",
        "os.open(f'{outside}/file', 3 | os.O_TRUNC)",
        "os.rename('mine', f'{outside}/mine')",
        "os.rename(f'{outside}/file', 'theirs')",
        "os.link(f'{outside}/kept', 'linked')",
        "[os.symlink(f'{outside}/kept', 'symlink'), open('symlink', 'r+')]",
        "os.mkdir(f'{outside}/directory')",
        "os.mkfifo(f'{outside}/fifo')",
        "os.symlink('x', f'{outside}/symlink')",
        "subprocess.run(['sh', '-c', f'(echo x > {outside}/new) 2> /dev/null'], check=True)",
        "os.remove(f'{outside}/kept')",
    ],
    "attributes": [
        "os.chmod(f'{outside}/kept', 0o777)",
        "os.fchmod(os.open(f'{outside}/kept', os.O_RDONLY), 0o777)",
        "os.utime(f'{outside}/kept')",
        "os.utime(os.open(f'{outside}/kept', os.O_RDONLY))",
        "os.chown(f'{outside}/kept', os.getuid(), os.getgid())",
        "os.setxattr(f'{outside}/kept', 'user.x', b'y')",
        "fcntl.ioctl(os.open(f'{outside}/kept', os.O_RDONLY), 0x40086602, b'\\x40' + bytes(7))",  # FS_IOC_SETFLAGS
    ],
    "network": [
        "socket.create_connection(('127.0.0.1', port))",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",  # sends to any address
    ],
    "signals": [
        "os.kill(target, 0)",
        "signal.pidfd_send_signal(os.pidfd_open(target), 0)",
        "call(libc.syscall, TGKILL, target, target, 0)",
        "call(libc.syscall, TKILL, target, 0)",
        "[fcntl.fcntl(r, fcntl.F_SETOWN, target), fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC), os.write(w, b'x'),"
        " time.sleep(0.1), os.stat(f'/proc/{target}/exe')]",  # SIGIO ends it
        "os.setpriority(os.PRIO_PROCESS, target, 19)",
        "os.setpriority(os.PRIO_PROCESS, os.getpid(), 19)",  # as root, the kernel itself denies the one before
        "os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))",
        "os.sched_setscheduler(os.getpid(), os.SCHED_OTHER, os.sched_param(0))",
        "resource.prlimit(target, resource.RLIMIT_CPU, (1, 1))",
    ],
    "other processes": [
        "open(f'/proc/{target}/environ').read()",
        "open(f'/proc/{target}/mem', 'rb')",
        "call(libc.ptrace, 16, target, 0, 0)",
        "call(libc.shmctl, libc.shmget(0, 4096, 0o1600), 0, 0)",
    ],
    "capabilities": [
        "require(int(status('CapEff'), 16) & ~2)",
        "[call(libc.unshare, 0x10000000), require(int(status('CapEff'), 16) & ~2)]",
    ],
    "environment": ["os.environ['OF_THE_USER']"],
    "memory": ["require(open('/proc/self/oom_score_adj').read() != '1000\\n')"],
    "disk": ["os.truncate(os.open('mine', os.O_RDWR), (4 << 30) + 1)"],
}
"""Subject of a rule -> what a confined process tries; it fails by an exception."""
ATTACKER = """
import ctypes, fcntl, json, os, resource, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
attempts, outside, port, target, TGKILL, TKILL = json.loads(sys.argv[1])
r, w = os.pipe()
def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), '')
def require(condition):
    if not condition:
        raise OSError
def status(name):
    return open('/proc/self/status').read().split(name + ':')[1].split()[0]
for attempt in attempts:
    open('mine', 'w').close()
    try:
        eval(attempt)
        print(attempt, flush=True)
    except (OSError, KeyError, subprocess.CalledProcessError):
        pass
"""


@pytest.mark.parametrize("subject", ATTEMPTS)
@pytest.mark.parametrize("name", KINDS)
def test_each_rule_is_kept_by_each_kind_as_described(
    name: str, subject: str, scratch: Path, tmp_path: Path, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rule is not kept, all attempts must succeed, so that they test something."""
    kind, abi = use_kind(name, monkeypatch)
    monkeypatch.setenv("OF_THE_USER", "x")
    outside = tmp_path / "outside"
    outside.mkdir()
    for file in ("file", "kept"):
        (outside / file).write_text("content")
    before = [os.stat(outside / "kept")[:2], sorted(os.listdir(outside))]
    numbers = {"x86_64": (234, 200), "aarch64": (131, 130)}[os.uname().machine]
    with open(tmp_path / "out", "w+b") as out, subprocess.Popen(["sleep", "600"], env={"SECRET": "x"}) as target:
        try:
            task = [ATTEMPTS[subject], str(outside), server.getsockname()[1], target.pid, *numbers]
            command = [sys.executable, "-I", "-S", "-c", ATTACKER, json.dumps(task)]
            done = supervision.run(command, 60, out.fileno(), cwd=scratch, writable=scratch)
            died = target.poll()
        finally:
            target.kill()
    succeeded = (tmp_path / "out").read_text().splitlines()
    assert done.returncode == 0, done.stderr
    rule = next(rule for rule in sandbox.RULES if rule.subject == subject)
    if rule.kept_by(kind, abi, has_seccomp()):
        tolerated = [attempt for attempt in succeeded if kind == "landlock" and abi >= 6 and "F_SETOWN" in attempt]
        assert succeeded == tolerated and died is None
        assert [os.stat(outside / "kept")[:2], sorted(os.listdir(outside))] == before
        assert (outside / "file").read_text() == "content"
    else:
        refused = {attempt for attempt in ATTEMPTS[subject] if attempt not in succeeded}
        depends = ("chown", "CapEff", "F_SETOWN", "ioctl")  # on the user, the kernel and the file system
        assert all(any(word in attempt for word in depends) for attempt in refused)


DAEMON = """
import os, sys, time
for _ in range(2):
    if os.fork():
        {leader}
    for leave in (os.setsid, lambda: os.setpgid(0, 0)):
        try:
            leave()
        except OSError:
            pass
os.execvp("sh", ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done", sys.argv[1]])
"""


@pytest.mark.parametrize("leader", ["os._exit(7)", "time.sleep(3600)"])
@pytest.mark.parametrize("name", KINDS)
def test_no_process_outlives_its_command(
    name: str,
    leader: str,
    scratch: Path,
    marker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kind(name, monkeypatch)
    command = [sys.executable, "-I", "-S", "-c", DAEMON.format(leader=leader), marker]
    if "sleep" in leader:
        with pytest.raises(supervision.ProcessTimeout):
            supervision.run(command, 1, writable=scratch)
    else:
        assert supervision.run(command, 60, writable=scratch).returncode == 7
    assert living(marker) == []


def test_daemon_of_a_killed_parent_ends(marker: str, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", DAEMON.format(leader="time.sleep(3600)"), marker]
    code = f"from components.platform.processes import supervision\nsupervision.run({command!r}, 3600)"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_until(lambda: len([pid for pid in living(marker) if pid != parent.pid]) >= 3)
        parent.kill()
    wait_until(lambda: not living(marker))


def test_processor_time_is_limited(scratch: Path) -> None:
    """Of a command that is not ended in time because its parent is stopped, or of one that has several threads."""
    command = [sys.executable, "-I", "-S", "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"]
    with open(scratch / "out", "w+b") as out:
        supervision.run(command, 30, out.fileno(), writable=scratch)
    limit_s = 30 * available_processors() + 1
    assert (scratch / "out").read_text() == f"({limit_s}, {limit_s})\n"
    with open(os.devnull, "wb") as sink:
        child = REAPER.start(["sh", "-c", "while :; do :; done"], -3, sink.fileno(), None, None, Confinement(cpu_s=1))
        assert child.wait() == -signal.SIGKILL
        child.close()


def test_rules_say_what_an_older_kernel_or_another_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 2)
    assert sandbox._missing("landlock") == "" and sandbox._missing("bubblewrap") == ""
    monkeypatch.setattr(sandbox, "has_seccomp", lambda: False)
    expected = "truncate files, change modes and times of files, use the network, end your processes, read them"
    assert sandbox._missing("landlock") == f"{expected}, make user namespaces"
    assert "network" in sandbox._missing("bubblewrap")
    subjects = {rule.subject for rule in sandbox.RULES}
    assert subjects == {*ATTEMPTS, "processes", "time"}


def test_linker_may_change_modes(confined: str, scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    script = f"touch program && chmod 755 program && ! echo x > {tmp_path}/theirs"
    done = supervision.run(["/bin/sh", "-c", script], 30, cwd=scratch, writable=scratch, makes_programs=True)
    assert done.returncode == 0, done.stderr


def test_file_operations_inside_of_the_directory_work(confined: str, scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("read")
    script = f"""set -e
    mkdir deep; cat {tmp_path}/input > deep/a; mv deep/a b; ln b c; ln -s b d; mkfifo f; rm c
    (cat f > from-fifo & echo through > f; wait); echo gone > /dev/null; cut -c 1 < /dev/null; exit 7"""
    completed = supervision.run(["/bin/sh", "-c", script], 30, cwd=scratch, writable=scratch)
    assert completed.returncode == 7, completed.stderr
    assert (scratch / "b").read_text() == "read" and (scratch / "from-fifo").read_text() == "through\n"


def test_parent_process_is_not_confined(landlock: None, scratch: Path, tmp_path: Path, server: socket.socket) -> None:
    supervision.run(["/bin/true"], 30, writable=scratch)
    (tmp_path / "mine").touch()
    socket.create_connection(server.getsockname()).close()
    assert supervision.run(["/bin/sh", "-c", f"touch {tmp_path}/unconfined"], 30).returncode == 0


def test_confined_child_ends_by_signal_and_timeout(confined: str, scratch: Path, marker: str) -> None:
    with pytest.raises(supervision.ProcessTimeout):
        supervision.run(["/bin/sh", "-c", f"sh -c 'sleep 3600; : {marker}' & wait"], 1, writable=scratch)
    assert living(marker) == []
    status = supervision.run(["/bin/sh", "-c", "kill -SEGV $$"], 30, cwd=scratch, writable=scratch).returncode
    assert status == (-11 if confined == "landlock" else 128 + 11)


def test_missing_confinement_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scratch: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv(sandbox.SANDBOX_VARIABLE, raising=False)
    monkeypatch.setattr(sandbox, "_landlock_problem", lambda: "no Landlock: Function not implemented")
    monkeypatch.setattr(sandbox, "_bubblewrap_problem", lambda: "bubblewrap is not installed")
    sandbox._kind.cache_clear()
    try:
        for name in "ab":
            assert supervision.run(["/bin/sh", "-c", f"touch {tmp_path}/{name}"], 30, writable=scratch).returncode == 0
    finally:
        sandbox._kind.cache_clear()
    output = capsys.readouterr().out
    assert output.count("not confined (no Landlock: Function not implemented; bubblewrap is not installed)") == 1


def test_unknown_or_unavailable_kind_is_refused(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, "jail")
    with pytest.raises(UserError, match="jail"):
        supervision.run(["/bin/true"], 30, writable=scratch)
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, "bubblewrap")
    monkeypatch.setattr(sandbox, "_bubblewrap_problem", lambda: "bubblewrap is not installed")
    sandbox._kind.cache_clear()
    try:
        with pytest.raises(UserError, match="not installed"):
            supervision.run(["/bin/true"], 30, writable=scratch)
    finally:
        sandbox._kind.cache_clear()


# Arguments that run code, as a malicious .cmd may have them; {options} is a file with options.
CODE_ATTACKS = {
    "-load": ["-cc1", "-load", "{so}"],
    "-fpass-plugin=": ["-cc1", "-fpass-plugin={so}"],
    "-mllvm": ["-cc1", "-O2", "-mllvm", "-print-changed=diff", "-mllvm", "-print-changed-diff-path={program}"],
    "-fplugin=": ["-fplugin={so}"],
    "-load of the driver": ["-Xclang", "-load", "-Xclang", "{so}"],
    "@": ["-cc1", "@{options}"],
    "@ as a value": ["-cc1", "-main-file-name", "@{options}"],
}


def module_with_attack(corpus: Corpus, attack: list[str], evil: Path) -> Module:
    """Return the first module of the corpus with the options of the attack."""
    options = evil.with_name("options")
    options.write_text(f"a.c -load {evil}")
    program = evil.with_name("program")
    program.write_text(f"#!/bin/sh\ntouch loaded {evil.with_name('marker')}\n")
    program.chmod(0o755)
    arguments = tuple(word.format(so=evil, options=options, program=program) for word in attack)
    return replace(corpus.modules[0], command_override=arguments)


@pytest.mark.parametrize("attack", CODE_ATTACKS)
def test_options_that_load_code_are_refused(
    attack: str, evil: Path, make_corpus: Callable[..., Corpus], clang: Path, tmp_path: Path
) -> None:
    module = module_with_attack(make_corpus(tmp_path / "c", {"p/a.c": SOURCE}), CODE_ATTACKS[attack], evil)
    # Check that the attack works: clang itself loads the object, even if the compile fails.
    action = ["-emit-obj"] if module.arguments()[0] == "-cc1" else ["-c"]
    command = [clang, *module.arguments(), *action, "-x", "ir", module.bitcode, "-o", tmp_path / "m.o"]
    subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True)
    (tmp_path / "marker").unlink()
    (tmp_path / "loaded").unlink()
    with pytest.raises(UserError, match="--cmd-remove"):
        Compiler(clang, "inlining")(Request(module, DEFAULT))
    assert not (tmp_path / "marker").exists()


def test_loaded_code_is_confined(
    landlock: None, evil: Path, make_corpus: Callable[..., Corpus], clang: Path, tmp_path: Path, server: socket.socket
) -> None:
    module = module_with_attack(make_corpus(tmp_path / "c", {"p/a.c": SOURCE}), CODE_ATTACKS["-load"], evil)
    compiler = Compiler(clang, "inlining", allowed_options=("-load",))
    assert compiler(Request(module, DEFAULT)).samples[0].text_size_bytes > 0
    assert not (tmp_path / "marker").exists() and not can_connect(server)
    # Without the sandbox the attack succeeds.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sandbox.SANDBOX_VARIABLE, "none")
        compiler(Request(module, DEFAULT))
    assert (tmp_path / "marker").exists() and can_connect(server)


def test_profile_outside_of_the_corpus_is_refused(
    make_corpus: Callable[..., Corpus], clang: Path, tmp_path: Path
) -> None:
    corpus = make_corpus(tmp_path / "c", {"p/a.c": SOURCE})
    profile = tmp_path / "profile"
    profile.write_text("root:100:100\n")
    arguments = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-O2", f"-fprofile-sample-use={profile}")
    module = replace(corpus.modules[0], command_override=arguments)
    with pytest.raises(UserError, match="-fprofile-sample-use=: ") as caught:
        Compiler(clang, "inlining")(Request(module, DEFAULT))
    assert "--allow-cc1-option=-fprofile-sample-use=" in caught.value.remedy
    allowed = Compiler(clang, "inlining", allowed_options=("-fprofile-sample-use=",))
    assert allowed(Request(module, DEFAULT)).samples[0].text_size_bytes > 0


def test_inline_assembly_can_read_files(clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path) -> None:
    """A documented limit of the sandbox: bitcode may contain assembly, and the assembler has .incbin."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 1000)
    asm = f'__asm__(".section .text\\n.incbin \\"{secret}\\"\\n");\n'
    (module,) = make_corpus(tmp_path / "c", {"p/a.c": asm + SOURCE})
    assert Compiler(clang, "inlining")(Request(module, DEFAULT)).samples[0].text_size_bytes > 1000
