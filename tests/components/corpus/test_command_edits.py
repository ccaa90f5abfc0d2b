"""--cmd-add, --cmd-remove and --cmd-replace edit the arguments of a corpus's modules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.replay.replay_options import MissingValue, group_options, select_options
from components.core.formats.corpus import Corpus, load_corpus, write_description
from components.corpus.__main__ import main
from components.corpus.command_edits import CommandEdits
from components.platform.errors import UserError

RECORDED = [
    "-cc1",
    "-triple",
    "x86_64",
    "-O2",
    "-mllvm",
    "-inline-threshold=5",
    "-fvisibility=hidden",
    "-target-cpu",
    "x86-64",
]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (
            CommandEdits(remove=("-O2",)),
            "-cc1 -triple x86_64 -mllvm -inline-threshold=5 -fvisibility=hidden -target-cpu x86-64",
        ),
        (CommandEdits(remove=("-target-cpu", "-fvisibility=")), "-cc1 -triple x86_64 -O2 -mllvm -inline-threshold=5"),
        (
            CommandEdits(remove=("-mllvm  -inline-threshold",)),
            "-cc1 -triple x86_64 -O2 -fvisibility=hidden -target-cpu x86-64",
        ),
        (
            CommandEdits(replace=(("-O2", "-Oz"), ("-target-cpu", "znver4"), ("-fvisibility", "default"))),
            "-cc1 -triple x86_64 -Oz -mllvm -inline-threshold=5 -fvisibility=default -target-cpu znver4",
        ),
        (
            CommandEdits(add=("-mllvm '-x=a b'",), replace=(("-mllvm -inline-threshold", "9"),)),
            "-cc1 -triple x86_64 -O2 -mllvm -inline-threshold=9 -fvisibility=hidden -target-cpu x86-64 -mllvm -x=a_b",
        ),
    ],
)
def test_options_are_edited_by_name_with_their_values(edits: CommandEdits, expected: str) -> None:
    changed, matched = edits.apply(RECORDED)
    assert changed == [word.replace("_b", " b") for word in expected.split(" ")]
    assert matched == edits.names()


def test_value_is_not_mistaken_for_an_option() -> None:
    changed, matched = CommandEdits(remove=("-O2",)).apply(["-cc1", "-main-file-name", "-O2"])
    assert changed == ["-cc1", "-main-file-name", "-O2"] and not matched


@pytest.mark.parametrize(
    "arguments", [["-Xassembler", "--foo"], ["-Xassembler", "-I/f"], ["-Wa,--foo"], ["-mllvm", "@f"]]
)
def test_option_that_a_replay_refuses_is_removed_by_the_name_in_the_message(arguments: list[str]) -> None:
    recorded = ["-Oz", *arguments, "-g"]
    (refused,) = select_options(recorded, False).refused
    assert CommandEdits(remove=(refused,)).apply(recorded) == (["-Oz", "-g"], {refused})
    if not refused.endswith("@f"):
        assert select_options(recorded, False, [refused]).arguments == recorded


@given(st.lists(st.sampled_from([*RECORDED, "-o", "-D", "-Dx", "-mllvm", ""])))
def test_option_groups_preserve_arguments_and_order(arguments: list[str]) -> None:
    try:
        groups = list(group_options(arguments))
    except MissingValue:
        return
    assert [word for group in groups for word in group] == arguments


def run(*arguments: object) -> None:
    main(list(map(str, arguments)), standalone_mode=False)


def test_import_edits_only_the_copy(make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path) -> None:
    source = make_corpus(tmp_path / "source", {f"{name}.c": f"int {name};" for name in "abc"})
    before = [module.cmd.read_bytes() for module in source]
    options = ["--input", source.directory, "--output", tmp_path / "copy", "--cmd-replace", "-target-cpu", "znver4"]
    options += ["--cmd-add", "-mllvm -inline-threshold=3"]
    run("import", *options)
    assert [module.cmd.read_bytes() for module in source] == before
    for module in load_corpus(tmp_path / "copy"):
        arguments = module.arguments()
        assert arguments[arguments.index("-target-cpu") + 1] == "znver4"
        assert arguments[-2:] == ("-mllvm", "-inline-threshold=3") and module.cmd.read_bytes().endswith(b"\0")


def test_global_command_override_is_edited(
    make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path
) -> None:
    source = make_corpus(tmp_path / "source", {"a.c": "int a;"}).directory
    names = json.loads((source / "corpus_description.json").read_text())["modules"]
    write_description(source, names, command_override=["-cc1", "-O2"])
    run("import", "--input", source, "--output", tmp_path / "copy", "--cmd-replace", "-O2", "-Oz")
    assert load_corpus(tmp_path / "copy").modules[0].arguments() == ("-cc1", "-Oz")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--cmd-remove", "-O7"], "no module is compiled with -O7"),
        (["--cmd-replace", "-mllvm -nothing", "3"], "no module is compiled with -mllvm -nothing"),
        (["--cmd-add", "'"], "--cmd-add"),
        (["--cmd-add", " "], "adds nothing"),
    ],
)
def test_invalid_edits_are_refused(
    make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path, flags: list[str], message: str
) -> None:
    source = make_corpus(tmp_path / "source", {"a.c": "int a;"}).directory
    with pytest.raises(UserError, match=message):
        run("import", "--input", source, "--output", tmp_path / "copy", *flags)
    assert not (tmp_path / "copy").exists()
