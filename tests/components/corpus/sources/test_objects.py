"""Objects of a compilation database and the names of their modules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from components.corpus.sources.objects import read_compile_commands
from components.platform.errors import UserError


def write(path: Path, *entries: Any) -> Path:
    (path / "compile_commands.json").write_text(json.dumps(list(entries)))
    return path / "compile_commands.json"


def entry(directory: str, output: str, **more: Any) -> dict[str, Any]:
    return {"directory": directory, "file": "a.c", "arguments": ["clang", "-c", "a.c", "-o", output], **more}


@pytest.mark.parametrize(
    ("entries", "base", "names"),
    [
        ([("/b", "x/a.o"), ("/b", "./y.o"), ("/b", "/b/x/c.o")], None, ["x/a.o", "./y.o", "x/c.o"]),
        ([("/r/b1", "a.o"), ("/r/b2", "a.o"), ("/r/b2/c", "../d.o")], "/r", ["b1/a.o", "b2/a.o", "b2/d.o"]),
        ([("/b", "a.o"), ("/b", "/b/a.o"), ("/b", "a.o")], None, ["a.o"]),
        ([("/r/a", "u.o"), ("/r/b/c", "u.o"), ("/r", "main.o")], None, ["a/u.o", "b/c/u.o", "main.o"]),
        # As CMake writes `..`; a corpus cannot have files outside of it.
        ([("/b/s", "x.o"), ("/b/s", "../o/x.o"), ("/b/s", "/tmp/y.o")], None, ["x.o", "__/o/x.o", "__/__/tmp/y.o"]),
        ([("/r/a", "x.o"), ("/r/b", "x.o"), ("/r/a", "../../o/z.o")], None, ["a/x.o", "b/x.o", "__/o/z.o"]),
    ],
    ids=["outputs", "base", "repeated", "equal names", "outside", "outside and equal"],
)
def test_modules_are_named_by_the_outputs_of_their_commands(
    entries: list[tuple[str, str]], base: str | None, names: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path, *(entry(directory, output) for directory, output in entries))
    objects, left = read_compile_commands(path, Path(base) if base else None)
    assert [item.name for item in objects] == names and left == []
    assert {item.path for item in objects} <= {os.path.join(*words) for words in entries}


def test_objects_outside_of_a_given_base_are_left_out_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, entry("/b", "a.o"), entry("/other", "b.o"))
    objects, left = read_compile_commands(path, Path("/b"))
    assert [item.name for item in objects] == ["a.o"]
    assert left == [("/other/b.o", "outside", "it lies outside of /b")]


def test_relative_directory_starts_from_the_database(tmp_path: Path) -> None:
    objects, _ = read_compile_commands(write(tmp_path, entry("build", "a.o"), entry(".", "b.o"), entry("", "c.o")))
    assert [item.path for item in objects] == [f"{tmp_path}/build/a.o", f"{tmp_path}/./b.o", f"{tmp_path}/c.o"]


ODD: list[Any] = [
    3,
    None,
    [],
    {},
    {"file": "odd.c"},
    {"directory": 3, "file": "odd.c", "arguments": ["cc", "-c", "odd.c"]},
    {"directory": "/b", "file": "odd.c"},
    {"directory": "/b", "file": ["odd.c"], "command": None, "arguments": [], "output": 4},
    {"directory": "/b", "file": "odd.c", "arguments": ["cc", "-c", 3]},
    {"directory": "/b", "file": "odd.c", "command": "cc -c 'odd.c"},
    {"directory": "/b", "file": "odd.c", "command": "cc -c odd.c -o"},
    {"directory": "/b", "file": "odd.c", "arguments": ["cc", "-c", "odd.c", "-o", "/dev/null"]},
    {"directory": "/b", "file": "odd.c", "arguments": ["cc", "-c", "odd.c", "-o", "a\0b.o"]},
    {"directory": "/b", "file": "odd.c", "arguments": ["cc", "-c", "odd.c", "-o", "\ud800.o"]},
    {"directory": "/b", "file": "odd.c", "arguments": ["cc", "-c", "odd.c", "-o", "\udc80.o"]},
    {"directory": "/\udc80", "file": "odd.c", "arguments": ["cc", "-c", "odd.c", "-o", "/elsewhere/x.o"]},
    {"directory": "/b", "file": "odd\ud800\x1b[31m\n::error::.c", "command": "python3 gen.py"},
    {"directory": "/b", "file": "odd.c", "command": "cc -c @gone.rsp"},
    {"directory": "/b", "file": "odd.c", "command": "cc -E odd.c -o odd.o"},
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("base", [None, Path("/b")])
def test_odd_entry_is_left_out_by_name_and_stops_nothing(tmp_path: Path, odd: Any, base: Path | None) -> None:
    objects, left = read_compile_commands(write(tmp_path, entry("/b", "a.o"), odd, entry("/b", "c.o")), base)
    assert [item.name for item in objects if "elsewhere" not in item.name] == ["a.o", "c.o"]
    assert len(objects) + len(left) == 3
    for name, _kind, detail in left:
        assert name.startswith(("odd", "entry 1", "/elsewhere")) and detail and (name + detail).isprintable()
        (name + detail).encode()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("clang -c a.c -o a.o", "a.o"),
        ("clang -c a.c -o 'with space.o'", "with space.o"),
        ('clang -DX=\\"y\\" -o "q/a.o" -c a.c', "q/a.o"),
        ("clang '-DX= -o z.o' -o a.o -c a.c", "a.o"),
    ],
)
def test_commands_are_split_like_a_shell(tmp_path: Path, command: str, name: str) -> None:
    objects, _ = read_compile_commands(write(tmp_path, {"directory": "/b", "file": "a.c", "command": command}))
    assert objects[0].name == name


def test_output_key_names_the_object_of_commands_that_do_not(tmp_path: Path) -> None:
    unknown = {"directory": "/b", "file": "c.c", "command": "cl c.c", "output": "c.o"}
    implied = {"directory": "/b", "file": "d.c", "command": "clang -c d.c", "output": "obj/d.o"}
    other = {"directory": "/b", "file": "e.c", "command": "clang -c e.c -o e.o", "output": "x.o"}
    objects, left = read_compile_commands(write(tmp_path, unknown, implied, other))
    assert [item.name for item in objects] == ["c.o", "obj/d.o", "e.o"] and left == []


def test_file_selects_the_object_of_a_command_that_compiles_several(tmp_path: Path) -> None:
    command = {"directory": "/b", "command": "clang -c x.c ../s/y.c"}
    entries = [{**command, "file": "/b/x.c"}, {**command, "file": "/s/y.c"}, {**command, "file": "z.c"}]
    objects, left = read_compile_commands(write(tmp_path, *entries))
    assert [item.name for item in objects] == ["x.o", "y.o"] and [name for name, _kind, _detail in left] == ["z.c"]


@pytest.mark.parametrize(("file", "assembly"), [("a.S", True), ("a.s", True), ("a.asm", True), ("as.c", False)])
def test_assembly_is_recognized_by_its_source(tmp_path: Path, file: str, assembly: bool) -> None:
    objects, _ = read_compile_commands(write(tmp_path, entry("/b", "a.o", file=file)))
    assert objects[0].assembly is assembly


@pytest.mark.parametrize(("text", "words"), [("", "not valid JSON"), ("{}", "not a list"), ("[]", "is empty")])
def test_invalid_compilation_database_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "compile_commands.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_compile_commands(path)
    assert caught.value.remedy


def test_missing_compilation_database_has_a_remedy(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.json", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(UserError, match=words) as caught:
            read_compile_commands(path)
        assert "CMAKE_EXPORT_COMPILE_COMMANDS" in caught.value.remedy
