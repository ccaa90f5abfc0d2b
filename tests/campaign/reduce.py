"""Makes a failing program smaller while it fails in the same way."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.campaign.build import Builder, Finding, write_program
from tests.campaign.program import Program
from tests.campaign.rows import ROWS, Row

GUARDS = ("stock-O2", "stock-lto", "sanitize")
"""Rows by which the smaller program has to be right, if the first one is."""


def reduce_program(program: Program, row: Row, bin_directory: Path) -> tuple[Program, Finding | None]:
    """Return a smaller program with the same problem by the row, in a line of the same kind; and the finding.

    Steps are lines of files (of halves, quarters, down to single lines), whole files, and flags.
    """
    rows = [ROWS[name] for name in dict.fromkeys(n for n in (row.reference, row.same_text, row.name) if n)]
    guards: list[Row] = []

    def find(candidate: Program) -> Finding | None:
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / "program"
            write_program(candidate, directory)
            builder = Builder(candidate, bin_directory, directory)
            states, findings = builder.check(rows)
            if states[row.reference] != "ok" or states[row.name] == "ok":
                return None
            if any(state != "ok" for state in builder.check(guards)[0].values()):
                return None
            return next(f for f in findings if f.row == row.name)

    first = find(program)
    if first is None:
        return program, None
    # Without these, a smaller program could have undefined behavior and fail for that.
    for guard in (ROWS[name] for name in GUARDS if ROWS[name].reference == row.reference):
        guards.append(guard)
        if find(program) is None:
            guards.remove(guard)

    def kind(finding: Finding) -> tuple[str, str]:
        return finding.problem, re.sub(r"\..*", "", finding.label)

    best, changed = program, True
    finding = first
    while changed:
        changed = False
        for candidate in _smaller(best):
            other = find(candidate)
            if other is not None and kind(other) == kind(first):
                best, finding, changed = candidate, other, True
                break
    return best, finding


def _smaller(program: Program) -> Iterator[Program]:
    for name in list(program.flags):
        if len(program.flags) > 1 and name != "main.c":
            flags = {n: f for n, f in program.flags.items() if n != name}
            uses = re.findall(r"\bvoid (use_\w+)\(void\)", program.files[name])
            files = {n: t for n, t in program.files.items() if n != name}
            for use in uses:
                files["main.c"] = files["main.c"].replace(f"  {use}();\n", "")
            yield replace(program, files=files, flags=flags)
    for use in dict.fromkeys(re.findall(r"  (use_\w+)\(\);\n", program.files["main.c"])):
        yield _with(program, "main.c", program.files["main.c"].replace(f"  {use}();\n", ""))
    for name, options in program.flags.items():
        for index in range(len(options)):
            yield replace(program, flags={**program.flags, name: options[:index] + options[index + 1 :]})
    for name in program.files:
        lines = program.files[name].splitlines(keepends=True)
        size = len(lines) // 2
        while size:
            for start in range(0, len(lines), size):
                yield _with(program, name, "".join(lines[:start] + lines[start + size :]))
            size //= 2


def _with(program: Program, name: str, text: str) -> Program:
    return replace(program, files={**program.files, name: text})
