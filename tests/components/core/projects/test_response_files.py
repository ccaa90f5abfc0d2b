"""Response files that are written, as they are read by us and by clang."""

from __future__ import annotations

import subprocess
from pathlib import Path

from components.core.projects.response_files import split_response_file, write_response_file

WORDS = ["plain", "with space", 'a "quote"', "it's", "back\\slash\\", "\\"]


def test_arguments_are_read_as_they_were_written(tmp_path: Path) -> None:
    response = tmp_path / "words"
    write_response_file(response, WORDS)
    assert split_response_file(response.read_bytes(), response) == WORDS


def test_clang_reads_the_arguments(tmp_path: Path) -> None:
    source = tmp_path / 'of "mine"\\' / "main.c"
    source.parent.mkdir()
    source.write_text("int main(void) { return 0; }\n")
    write_response_file(tmp_path / "words", ["-c", source, "-o", source.with_name("main.o")])
    subprocess.run(["clang-19", f"@{tmp_path / 'words'}"], check=True)
    assert source.with_name("main.o").is_file()
