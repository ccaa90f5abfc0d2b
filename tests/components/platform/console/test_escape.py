"""Text from outside is escaped wherever it is printed or written: terminal, CI logs, Markdown, CSV."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.evaluation.report.formatting import markdown_table
from components.platform.command import _status_of
from components.platform.console import say
from components.platform.console.escape import csv_text, escape_line, escape_lines, markdown_code, markdown_text
from components.platform.console.tables import table_console
from components.platform.errors import UserError

ROOT = Path(__file__).parents[4]
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
"""What GitHub, Azure and TeamCity obey."""
UNSAFE = re.compile("[\0-\b\v-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
HOSTILE = st.text(st.characters() | st.sampled_from("\n\r\t\x1b:#[\u202e|`<&*_=\udcff"), max_size=30)
NAMES = (
    "::error::x",
    "a\n::error file=x::y",
    "\t::set-output name=a::b",
    "##[error]x",
    "x##vso[task.complete]",
    "##teamcity[x]",
    "\x1b[2J\x1b]0;t\x07",
    "a\rb",
    "\u202egnp.exe",
    "a\u2028::error::b",
    "\udcff\udc80",
    "\x9b31m",
)


@given(HOSTILE)
@example("##" * 3 + "##[")
def test_escaped_text_is_safe_and_stays_the_same(text: str) -> None:
    line, lines = escape_line(text), escape_lines(text)
    assert not COMMAND.search(line) and not UNSAFE.search(line) and "\n" not in line
    assert not COMMAND.search(lines) and not UNSAFE.search(lines)
    assert all(not other or other[0] in " \t" for other in lines.split("\n")[1:])
    assert escape_line(line) == line and escape_lines(lines) == lines


def test_ordinary_text_is_unchanged() -> None:
    for text in ("zstd/lib/x.c.o: 3 → 4, “ü”", "a::b(c&)", "[step] 100%", "# x", "C:\\x"):
        assert escape_line(text) == text
    assert escape_lines("error: a\n  remedy: b") == "error: a\n  remedy: b"
    assert escape_line("a\n\x1b\x85\u202e\U000e0001\udcff") == "a\\n\\x1b\\x85\\u202e\\U000e0001\\xff"


def test_users_and_passwords_in_urls_are_not_shown() -> None:
    for text, shown in {
        "cannot clone https://me:secret@example.com/x.git: 403": "cannot clone https://***@example.com/x.git: 403",
        "https://ghp_token@example.com": "https://***@example.com",
        "(HTTP://u:p@ss@host:80/a@b) ssh://me:secret@h/x": "(HTTP://***@host:80/a@b) ssh://***@h/x",
    }.items():
        assert escape_line(text) == escape_line(shown) == shown
        assert escape_lines(f"error: x\n{text}") == f"error: x\n  {shown}"
    for text in (
        *("ssh://git@example.com/x", "s3://bucket/a:b@c", "https://host/a@b", "docker://r:5000/x@sha256:12"),
        *("docker://r:5000@sha256:12", '{"a":"https://host"},{"b":"me@x.org"}', "<a href=https://host>me@x.org</a>"),
        *("redis://h:6379,me@x", "http://registry:4873|foo@1.2"),
    ):
        assert escape_line(text) == text
    assert "secret" not in markdown_text("http://u:secret@h/") + csv_text("http://u:secret@h/")


@pytest.mark.timeout(20)
def test_long_lines_are_escaped_in_linear_time() -> None:
    for part in (":", "a:", "http://", "x://a:", "@"):
        escape_line("x://" + part * 100_000)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_escaped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    def fail() -> None:
        raise UserError(f"there is no {name}", f"name another than {name}")

    say(name)
    assert _status_of(fail) == 1
    table = Table("name", title=name)
    table.add_row(name)
    table.add_row("[red]markup[/red] :smile:")
    console = table_console(100)
    console.print(table)
    console.print(name)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert text and not COMMAND.search(text) and not UNSAFE.search(text)
    assert "[red]markup[/red] :smile:" in shown.out


@pytest.mark.parametrize("name", NAMES[:-2])
def test_usage_errors_are_escaped(name: str) -> None:
    command = [sys.executable, "-P", "-m", "components.vocab", "--trace", "t", "--output", "o", f"--{name}", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and not COMMAND.search(done.stderr) and not UNSAFE.search(done.stderr)


@given(HOSTILE)
def test_a_csv_cell_is_no_formula_and_can_be_read_again(text: str) -> None:
    cell = csv_text(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) and "\n" not in cell
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow([cell, -1.5])
    stream.seek(0)
    assert next(csv.reader(stream)) == [cell, "-1.5"]
    assert csv_text("zstd/lib/x.c.o") == "zstd/lib/x.c.o"


@given(HOSTILE)
@example("<script>alert(1)</script>")
@example(".gcc_except_table")  # KFP's web page makes italics of it
@example("[a](javascript:b) ![c](d) **e** `f` |g| ~~h~~ &lt; $x$")
def test_markdown_has_no_markup_from_names(text: str) -> None:
    shown = markdown_text(text)
    unescaped = re.sub(r"\\[\\`*_\[\]<>|~&$#+=-]", "", shown)
    assert not set(unescaped) & set("\\`*_[]<>|~&$#") and "\n" not in shown
    assert not shown.startswith(("-", "+", "="))
    code = markdown_code(text)
    assert code.count("`") == 2 and "\n" not in code
    (row,) = markdown_table(["a", "b"], [[text, "+1.5%"]])[2:]
    assert len(re.sub(r"\\.", "", row).split("|")) == 4 and row.endswith(" +1.5% |")
