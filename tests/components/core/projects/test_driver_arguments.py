"""Outputs of a driver's command: what clang's own driver says (clang -###), in its arguments and in response files."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from components.core.projects.build_links.driver import make_link
from components.core.projects.driver_arguments import read_arguments, without_outputs
from components.core.projects.response_files import split_response_file, write_response_file
from components.platform.errors import UserError

CLANG = "clang-19"
OUTPUTS = [
    *(["-o", name] for name in ("app", "sub/b", "with space", "-L")),
    *(["-oapp"], ["-osub/k.so"], ["-objc"], ["--output", "l"], ["--output=m"], ["--output=with space"]),
]
OTHERS = [
    *([flag] for flag in ("-c", "-E", "-S", "-M", "-MM", "-fsyntax-only", "--version", "-O2", "-shared", "-Wl,-o,z")),
    *([flag, "-o"] for flag in ("-L", "-Xlinker", "-include-pch", "-T", "-u", "-e", "-l", "-MF", "-MT", "-z", "-x")),
    *(["-objcmt-migrate-all"], ["-object"], ["-lm"], ["-Llib"], ["-L", "lib"], ["--", "main.o"]),
]
INPUTS = [["main.o"], ["part.o"], ["lib/c.o"]]
COMMANDS = st.lists(st.sampled_from(OUTPUTS + OTHERS + INPUTS * 4), min_size=1, max_size=6).map(
    lambda groups: [word for group in groups for word in group]
)
WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)) | COMMANDS


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("objects")
    for folder in ("lib", "sub"):
        (directory / folder).mkdir()
    for (name,) in INPUTS:
        (directory / name).touch()
    return directory


def linked_by_clang(arguments: list[str], directory: Path) -> str | None:
    """Return the file that clang's driver would link, "" if it would not link; None for a command that it refuses."""
    done = subprocess.run([CLANG, "-###", *arguments], capture_output=True, text=True, cwd=directory, check=False)
    if "error:" in done.stderr:
        return None
    jobs = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith(' "')]
    return jobs[-1][jobs[-1].index("-o") + 1] if jobs else ""


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(arguments=COMMANDS, split=st.integers(0, 7))
def test_linked_file_is_that_of_the_real_driver(directory: Path, arguments: list[str], split: int) -> None:
    arguments = ["main.o", *arguments]
    expected = linked_by_clang(arguments, directory)
    assume(expected is not None)
    link = make_link(CLANG, arguments, str(directory))
    assert (link and link.output) == (str(directory / expected) if expected else None)
    rest = arguments[split:]
    write_response_file(directory / "a.rsp", rest)
    assert make_link(CLANG, [*arguments[:split], "@a.rsp"], str(directory)) == link
    assert make_link(CLANG, [*arguments[:split], "@gone.rsp"], str(directory), rest) == link
    assert make_link(CLANG, [*arguments[:split], "@gone.rsp"], str(directory)) is None


@given(arguments=WORDS)
def test_arguments_are_read_or_refused(arguments: list[str]) -> None:
    try:
        options = read_arguments(arguments, "/dev/null")
    except UserError:
        return
    assert len(options.words) == len(arguments) and (options.output is None or options.output in "\0".join(arguments))


@given(arguments=COMMANDS)
def test_arguments_without_outputs_name_none(arguments: list[str]) -> None:
    assume("-Xlinker" not in arguments and "--" not in arguments)
    options = read_arguments(list(without_outputs(arguments)), "/")
    assert options.output is None and not options.compiles


QUOTED = ["plain", "with space", 'a "quote"', "it's", "back\\slash\\", "\\"]


def test_arguments_are_read_as_they_were_written(tmp_path: Path) -> None:
    response = tmp_path / "words"
    write_response_file(response, QUOTED)
    assert split_response_file(response.read_bytes(), response) == QUOTED


def test_clang_reads_the_arguments(tmp_path: Path) -> None:
    source = tmp_path / 'of "mine"\\' / "main.c"
    source.parent.mkdir()
    source.write_text("int main(void) { return 0; }\n")
    write_response_file(tmp_path / "words", ["-c", source, "-o", source.with_name("main.o")])
    subprocess.run(["clang-19", f"@{tmp_path / 'words'}"], check=True)
    assert source.with_name("main.o").is_file()
