"""What a compile leaves under the names of its outputs: files of its own are read, nothing else is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request, read_object
from components.core.compiler.compile_outputs import NoRegularFile, map_output, read_output, take_output
from components.core.formats.corpus import Corpus, Module

SECRET = "content of the user's file"


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, file: path.symlink_to(file),
    "dangling link": lambda path, file: path.symlink_to(file.with_name("nothing")),
    "hard link": lambda path, file: os.link(file, path),
    "pipe": lambda path, _file: os.mkfifo(path),
    "directory": lambda path, _file: path.mkdir(),
    "link to a device": lambda path, _file: path.symlink_to("/dev/zero"),
    "socket": lambda path, _file: _bind(path),
    "sparse file": lambda path, _file: os.truncate(path.open("w").name, 1 << 43),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", HOSTILE)
def test_anything_but_a_file_of_its_own_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(SECRET)
    path = tmp_path / "m.o"
    HOSTILE[kind](path, tmp_path / "file")
    with pytest.raises(NoRegularFile):
        read_output(path)
    with pytest.raises(NoRegularFile):
        map_output(path)
    with pytest.raises(NoRegularFile):
        take_output(path, tmp_path / "taken")
    assert not (tmp_path / "taken").exists() and (tmp_path / "file").read_text() == SECRET


def test_target_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "m.o").write_text("object")
    (tmp_path / "file").write_text(SECRET)
    target = tmp_path / "out.o"
    target.symlink_to(tmp_path / "file")
    take_output(tmp_path / "m.o", target)
    assert target.read_text() == "object" and not target.is_symlink() and (tmp_path / "file").read_text() == SECRET
    assert read_output(tmp_path / "m.o") == bytes(map_output(tmp_path / "m.o")) == b"object"
    with pytest.raises(FileNotFoundError):
        read_output(tmp_path / "none")
    (tmp_path / "empty").touch()
    assert read_output(tmp_path / "empty") == bytes(map_output(tmp_path / "empty")) == b""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("leave", ["ln -s {file} m.o", "mkfifo m.o", "ln -s /dev/zero m.o", "mkdir m.o"])
def test_compile_that_leaves_something_else_fails(
    leave: str, make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path
) -> None:
    (module,) = make_corpus(tmp_path / "corpus", {"p/a.c": "int f(int x) { return x; }"}).modules
    (tmp_path / "file").write_text(SECRET)
    clang = tmp_path / "clang"
    clang.write_text(
        f'#!/bin/sh\ncase "$*" in *-_-*) exec clang-19 "$@";; esac\n{leave.format(file=tmp_path / "file")}\n'
    )
    clang.chmod(0o755)
    request = Request(Module(module.name, module.directory), Advisor("default"))
    with pytest.raises(CompileError, match=r"no regular|\d names"):
        Compiler(clang, "inlining")(request)
    with pytest.raises((CompileError, FileNotFoundError)):
        Compiler(clang, "inlining").make_object(request, tmp_path / "out.o")
    assert not (tmp_path / "out.o").exists() and (tmp_path / "file").read_text() == SECRET
    with pytest.raises(FileNotFoundError):
        read_object(tmp_path / "out.o", want_functions=False)
