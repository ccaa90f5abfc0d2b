"""Objects of a compilation database and the names of their modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.console import UserError
from components.corpus.sources.objects import from_compile_commands


def write(path: Path, *entries: dict[str, Any]) -> Path:
    (path / "compile_commands.json").write_text(json.dumps(list(entries)))
    return path / "compile_commands.json"


def entry(directory: str, output: str, **more: Any) -> dict[str, Any]:
    return {"directory": directory, "file": "a.c", "arguments": ["clang", "-c", "a.c", "-o", output], **more}


def test_module_names_are_the_outputs_in_the_commands(tmp_path: Path) -> None:
    objects, rest = from_compile_commands(write(tmp_path, entry("/b", "x/a.o"), entry("/b", "./y.o")))
    assert [(item.path, item.name) for item in objects] == [("/b/x/a.o", "x/a.o"), ("/b/./y.o", "./y.o")]
    assert rest == []


def test_absolute_outputs_are_named_relative_to_the_command_directory(tmp_path: Path) -> None:
    objects, _ = from_compile_commands(write(tmp_path, entry("/b", "/b/x/a.o")))
    assert objects[0].name == "x/a.o" and objects[0].path == "/b/x/a.o"


def test_base_directory_distinguishes_objects_of_several_builds(tmp_path: Path) -> None:
    path = write(tmp_path, entry("/r/b1", "a.o"), entry("/r/b2", "a.o"), entry("/r/b2/c", "../d.o"))
    objects, _ = from_compile_commands(path, Path("/r"))
    assert [item.name for item in objects] == ["b1/a.o", "b2/a.o", "b2/d.o"]


def test_name_clash_is_refused_but_repeated_entries_are_not(tmp_path: Path) -> None:
    objects, _ = from_compile_commands(write(tmp_path, entry("/b", "a.o"), entry("/b", "a.o")))
    assert len(objects) == 1
    with pytest.raises(UserError, match=r"would both become the module a\.o") as caught:
        from_compile_commands(write(tmp_path, entry("/b", "a.o"), entry("/c", "a.o")))
    assert "--obj-base-dir" in caught.value.remedy


@pytest.mark.parametrize(("output", "base"), [("../a.o", None), ("/elsewhere/a.o", None), ("a.o", Path("/other"))])
def test_objects_outside_of_the_base_are_refused(tmp_path: Path, output: str, base: Path | None) -> None:
    with pytest.raises(UserError, match="lies outside of"):
        from_compile_commands(write(tmp_path, entry("/b", output)), base)


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
    objects, _ = from_compile_commands(write(tmp_path, {"directory": "/b", "file": "a.c", "command": command}))
    assert objects[0].name == name


def test_commands_without_output_are_reported(tmp_path: Path) -> None:
    bare = {"directory": "/b", "file": "gen.py", "command": "python gen.py"}
    last = {"directory": "/b", "file": "odd.c", "command": "clang odd.c -o"}
    named = {"directory": "/b", "file": "c.c", "command": "cl c.c", "output": "c.o"}
    objects, rest = from_compile_commands(write(tmp_path, bare, last, named))
    assert [item.name for item in objects] == ["c.o"] and rest == ["gen.py", "odd.c"]


@pytest.mark.parametrize(("file", "assembly"), [("a.S", True), ("a.s", True), ("a.asm", True), ("as.c", False)])
def test_assembly_is_recognized_by_its_source(tmp_path: Path, file: str, assembly: bool) -> None:
    objects, _ = from_compile_commands(write(tmp_path, entry("/b", "a.o", file=file)))
    assert objects[0].assembly is assembly


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{}", "not a list"),
        ("[]", "is empty"),
        ("[3]", "entry 0"),
        ('[{"file": "a"}]', "entry 0"),
    ],
)
def test_invalid_compilation_database_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "compile_commands.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        from_compile_commands(path)
    assert caught.value.remedy


def test_missing_compilation_database_has_a_remedy(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.json", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(UserError, match=words) as caught:
            from_compile_commands(path)
        assert "CMAKE_EXPORT_COMPILE_COMMANDS" in caught.value.remedy
