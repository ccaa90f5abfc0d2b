"""Tests the confinement of real child processes, and attacks by a corpus with a real clang."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus, Module
from components.platform.errors import UserError
from components.platform.processes import sandbox, supervision

DEFAULT = Advisor("default")
SOURCE = "int root(int x) { return x + 1; }\n"


def bubblewrap_works() -> bool:
    return shutil.which("bwrap") is not None and sandbox._bubblewrap_problem() is None


@pytest.fixture(params=["landlock", "bubblewrap"])
def confined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    works = sandbox._landlock_problem() is None if request.param == "landlock" else bubblewrap_works()
    if not works:
        pytest.skip(f"{request.param} does not work here")
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, request.param)
    return str(request.param)


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


CHANGES = {
    "create": "echo x > {outside}/new",
    "overwrite": "echo x > {outside}/file",
    "truncate": "truncate -s 0 {outside}/file",
    "remove": "rm -f {outside}/file",
    "rename": "mv inside {outside}/new",
    "link": "ln {outside}/file linked && echo x > linked",
    "symlink": "ln -s {outside}/file linked && echo x > linked",
    "make a directory": "mkdir {outside}/new",
    "make a FIFO": "mkfifo {outside}/new",
    "from a descendant": "setsid sh -c 'echo x > {outside}/new'",
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_outside_of_the_directory_cannot_be_changed(
    change: str, confined: str, scratch: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("content")
    (scratch / "inside").touch()
    command = ["/bin/sh", "-c", CHANGES[change].format(outside=outside)]
    assert supervision.run(command, 30, cwd=scratch, writable=scratch).returncode != 0
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "content"


def test_file_is_not_truncated_where_landlock_does_not_deny_it(
    landlock: None, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12's kernel has Landlock's second version."""
    rights = tuple(entry for entry in sandbox._WRITE_RIGHTS_BY_ABI if entry[0] < 3)
    monkeypatch.setattr(sandbox, "_WRITE_RIGHTS_BY_ABI", rights)
    (tmp_path / "file").write_text("content")
    code = f"import os; os.truncate({str(tmp_path / 'file')!r}, 0)"
    completed = supervision.run([sys.executable, "-c", code], 30, cwd=scratch, writable=scratch)
    assert "PermissionError" in completed.stderr and (tmp_path / "file").read_text() == "content"
    code = "import os; f = open('mine', 'w'); f.write('long'); f.flush(); os.ftruncate(f.fileno(), 2)"
    assert supervision.run([sys.executable, "-c", code], 30, cwd=scratch, writable=scratch).returncode == 0
    assert (scratch / "mine").read_text() == "lo"


def test_file_operations_inside_of_the_directory_work(confined: str, scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("read")
    script = f"""set -e
    mkdir deep; cat {tmp_path}/input > deep/a; mv deep/a b; ln b c; ln -s b d; mkfifo f; rm c
    (cat f > from-fifo & echo through > f; wait); echo gone > /dev/null; cut -c 1 < /dev/null; exit 7"""
    completed = supervision.run(["/bin/sh", "-c", script], 30, cwd=scratch, writable=scratch)
    assert completed.returncode == 7, completed.stderr
    assert (scratch / "b").read_text() == "read" and (scratch / "from-fifo").read_text() == "through\n"


@pytest.mark.parametrize(
    ("confined", "kind"),
    [  # bubblewrap gives an empty network instead, and sockets in the file system are files
        ("landlock", "AF_INET, socket.SOCK_STREAM"),
        ("landlock", "AF_INET, socket.SOCK_DGRAM"),
        ("landlock", "AF_UNIX"),
        ("bubblewrap", "AF_INET, socket.SOCK_STREAM"),
    ],
    indirect=["confined"],
)
def test_network_is_denied(confined: str, kind: str, scratch: Path, server: socket.socket) -> None:
    port = server.getsockname()[1]
    program = f"import socket\ns = socket.socket(socket.{kind})\ns.connect(('127.0.0.1', {port}))"
    completed = supervision.run([sys.executable, "-c", program], 30, cwd=scratch, writable=scratch)
    assert completed.returncode == 1 and "Error" in completed.stderr
    assert not can_connect(server)


def test_parent_process_is_not_confined(landlock: None, scratch: Path, tmp_path: Path, server: socket.socket) -> None:
    supervision.run(["/bin/true"], 30, writable=scratch)
    (tmp_path / "mine").touch()
    socket.create_connection(server.getsockname()).close()
    assert supervision.run(["/bin/sh", "-c", f"touch {tmp_path}/unconfined"], 30).returncode == 0


def test_confined_child_ends_by_signal_and_timeout(
    confined: str, scratch: Path, marker: str, living_with: Callable[[str], list[int]]
) -> None:
    with pytest.raises(supervision.ProcessTimeout):
        supervision.run(["/bin/sh", "-c", f"sh -c 'sleep 3600; : {marker}' & wait"], 1, writable=scratch)
    assert living_with(marker) == []
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
    with pytest.raises(UserError, match="jail is unknown"):
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
