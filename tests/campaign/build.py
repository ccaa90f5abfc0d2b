"""Builds a program by rows, runs it, and compares what it prints."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from components.core.compiler.forced_decisions import SECOND_ROUND_ORDINAL, ForcedDecisions, Key
from components.core.compiler.inline_plan import PlannedModule, write_plan
from tests.campaign.program import X86_FLAGS, Program
from tests.campaign.rows import ROWS, Row

STOCK = Path("/usr/lib/llvm-19/bin")
REFUSED = ("LLVM's IR outliner makes invalid code of this module", "Access past stack top!")
"""Messages where an experimental variant is refused; the second is of LLVM, with -enable-ipra and long double."""
OF_LINKS = ("-Wl", "-O", "-f", "--target", "-static", "-no-pie", "-mcmodel", "-mretpoline")
OF_X86 = (*X86_FLAGS, "-mcrc32")
NOT_OF_GCC = ("-fstrict-vtable-pointers", "-fno-slp-vectorize", "-fno-vectorize", "-fzero-call-used-regs=used")


@dataclass(frozen=True)
class Finding:
    """What a row did other than it should.

    Attributes:
        problem: `compile`, `link`, `output`, `exit`, `crash`, `timeout`, `text` (other code) or `cache` (other file).
        label: of the first line that differs: the kind, the number of the family and the unit.
        detail: the two lines, or what the tool said.
        stock: a row of stock tools that has the same problem; the problem is LLVM's then, or the program's.
    """

    row: str
    problem: str
    label: str
    detail: str
    stock: str = ""

    def is_like(self, other: Finding) -> bool:
        """Return whether both are the same problem of the same units."""
        alike = self.label == other.label or set(self.label.split()) & set(other.label.split())
        return self.problem == other.problem and bool(alike)


class _Failed(Exception):
    def __init__(self, problem: str, detail: str) -> None:
        super().__init__(problem, detail)
        self.problem, self.detail = problem, detail


def write_program(program: Program, directory: Path) -> None:
    """Write the files of a program into a new directory."""
    directory.mkdir(parents=True)
    for name, text in program.files.items():
        (directory / name).write_text(text)


class Builder:
    """Builds one program in a directory; equal compiles are done once.

    Args:
        bin_directory: `bin` of the release clang.
        directory: a directory with the files of the program.
    """

    def __init__(self, program: Program, bin_directory: Path, directory: Path) -> None:
        self.program, self.bin, self.directory = program, bin_directory, directory
        self.objects: dict[tuple[str, ...], str] = {}
        self.outputs: dict[str, tuple[int, str]] = {}

    def check(self, rows: Sequence[Row]) -> tuple[dict[str, str], list[Finding]]:
        """Return `ok`, `skip`, `refused` or the problem of each row, and the findings.

        A program that the reference does not build or run, or that takes it longer than a second, is skipped.
        """
        states: dict[str, str] = {}
        findings = []
        for row in rows:
            if self._unsuited(row) or states.get(row.reference, "ok") != "ok":
                states[row.name] = "skip"
                continue
            finding = self.check_row(row, states)
            # Some kinds are written for x86-64.
            elsewhere = row.emulator and finding is not None and finding.problem == "compile"
            if finding is not None and row.name == row.reference and (finding.problem == "timeout" or elsewhere):
                states[row.name] = "skip"
                continue
            if finding is not None and finding.problem == "refused":
                states[row.name] = "refused"
                continue
            states[row.name] = finding.problem if finding else "ok"
            if finding:
                findings.append(finding)
        if any(row.tool == "ours" and states[row.name] not in ("ok", "skip", "refused") for row in rows):
            findings = self._compared_with_stock(findings, states)
        return states, findings

    def _compared_with_stock(self, findings: list[Finding], states: dict[str, str]) -> list[Finding]:
        if "csmith" in self.program.kinds and self._is_undefined(states):
            return [replace(finding, stock="undefined behavior") for finding in findings]
        witnesses = []
        for row in ROWS.values():
            if row.reference not in self.outputs or row.name in (row.reference, "sanitize"):
                continue
            if row.tool == "stock":
                found = None if self._unsuited(row) else self.check_row(row, states)
                witnesses += [found] if found else []
        return [
            replace(f, stock=" ".join(w.row for w in witnesses if f.is_like(w))) if ROWS[f.row].tool == "ours" else f
            for f in findings
        ]

    def _is_undefined(self, states: dict[str, str]) -> bool:
        """Return whether the sanitizers find undefined behavior, such as Csmith's __builtin_clz(0)."""
        found = self.check_row(ROWS["sanitize"], states)
        return found is not None and "runtime error" in found.detail

    def check_row(self, row: Row, states: dict[str, str]) -> Finding | None:
        """Build and run the program by one row."""
        try:
            self._build(row)
            other = self.directory / (row.same_text or "")
            if row.same_text and other.exists() and not same_code(self.directory / row.name, other):
                raise _Failed("text", f"other code than by {row.same_text}")
            ran = self._run(row)
        except _Failed as failed:
            return Finding(row.name, failed.problem, "", failed.detail)
        self.outputs[row.name] = ran
        if row.name == row.reference:
            return Finding(row.name, "crash", "", f"exit status {ran[0]}") if ran[0] < 0 else None
        return compare(row.name, self.outputs[row.reference], ran)

    def _unsuited(self, row: Row) -> bool:
        program = self.program
        return (
            (program.identity and not row.identity)
            or (program.together and row.shared)
            or bool(set(row.unsafe) & set(program.kinds))
        )

    def _compiler(self, row: Row, cxx: bool) -> str:
        if row.tool == "gcc":
            return "g++" if cxx else "gcc"
        return str((STOCK if row.tool == "stock" else self.bin) / ("clang++" if cxx else "clang"))

    def _compile(self, row: Row) -> list[str]:
        objects = []
        for index, (name, flags) in enumerate(self.program.flags.items()):
            options = row.mixed[index % len(row.mixed)] if row.mixed else row.compile
            if "-O0" in row.compile:
                flags = tuple(flag for flag in flags if not flag.startswith("-O"))
            if row.tool == "gcc":
                flags = tuple(flag for flag in flags if flag not in NOT_OF_GCC)
            if row.emulator:
                flags = tuple(flag for flag in flags if flag not in OF_X86)
            key = (row.tool, *options, "", name)
            if key not in self.objects:
                output = f"{name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}.o"
                compiler = self._compiler(row, name.endswith(".cc"))
                self._tool([compiler, "-w", *options, *flags, "-c", name, "-o", output], "compile")
                self.objects[key] = output
            objects.append(self.objects[key])
        return objects

    def _build(self, row: Row) -> None:
        objects = self._compile(row)
        options = [o for o in (*row.compile, *row.link) if o.startswith(OF_LINKS)]
        options += [] if row.tool == "gcc" else ["-fuse-ld=lld"]
        if row.plan:
            write_random_plan(self.directory / "inline.plan", [self.directory / name for name in objects], self.program)
            options.append("-Wl,-mllvm,-mlgo-inline-plan=inline.plan")
        if row.cache:
            shutil.rmtree(self.directory / "cache", ignore_errors=True)
            options.append("-Wl,--thinlto-cache-dir=cache")
        # Objects of C++ need its libraries also where the row has no C++.
        compiler = self._compiler(row, cxx=any(name.endswith(".cc") for name in self.program.flags))
        if row.shared:
            half = len(objects) // 2
            library = f"lib{row.name}.so"
            parts = [o for o in objects if not o.startswith("main.c.")]
            objects = [o for o in objects if o not in parts[:half]]
            shared = ["-shared", *parts[:half], "-o", library]
            self._tool([compiler, *options, *shared, *self.program.libraries], "link")
            objects += [library, "-Wl,-rpath,."]
        if row.archive:
            parts = [o for o in objects if not o.startswith("main.c.")]
            self._tool([str(STOCK / "llvm-ar"), "rcs", f"lib{row.name}.a", *parts], "link")
            objects = [*(o for o in objects if o not in parts), f"lib{row.name}.a"]
        command = [compiler, *options, *objects, *self.program.libraries, "-o", row.name]
        self._tool(command, "link")
        if row.cache:
            first = (self.directory / row.name).read_bytes()
            self._tool(command, "link")
            if (self.directory / row.name).read_bytes() != first:
                raise _Failed("cache", "the link with a filled cache writes another file")

    def _tool(self, command: list[str], step: str) -> None:
        try:
            done = subprocess.run(
                command, cwd=self.directory, capture_output=True, text=True, errors="replace", timeout=120
            )
        except subprocess.TimeoutExpired:
            raise _Failed("timeout", f"{step}: {' '.join(command)}") from None
        if done.returncode:
            detail = f"{' '.join(command)}\n{_important(done.stderr)}"
            if any(message in done.stderr for message in REFUSED):
                raise _Failed("refused", detail)
            crashed = done.returncode < 0 or "PLEASE submit a bug report" in done.stderr
            raise _Failed(f"{step} crash" if crashed else step, detail)

    def _run(self, row: Row) -> tuple[int, str]:
        limit = 1 if row.name == row.reference and not row.emulator else 10
        try:
            done = subprocess.run(
                [*row.emulator, f"./{row.name}"],
                cwd=self.directory,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=0", "ASAN_OPTIONS": "detect_leaks=0"},
            )
        except subprocess.TimeoutExpired:
            raise _Failed("timeout", "the program") from None
        return done.returncode, done.stdout + done.stderr[:2000]


def compare(row: str, expected: tuple[int, str], got: tuple[int, str]) -> Finding | None:
    """Return a finding if exit status or output differ."""
    if expected == got:
        return None
    wanted, printed = expected[1].splitlines(), got[1].splitlines()
    different = [(w, g) for w, g in zip(wanted, printed, strict=False) if w != g]
    if not different:
        common = min(len(wanted), len(printed))
        different = [(w, "(nothing)") for w in wanted[common:]] + [("(nothing)", g) for g in printed[common:]]
    labels = dict.fromkeys(w.rpartition(" ")[0] for w, _ in different if w.rpartition(" ")[0] != "trace")
    detail = "; ".join(f"{g!r}, not {w!r}" for w, g in different[:3])
    if got[0] != expected[0]:
        how = signal.Signals(-got[0]).name if got[0] < 0 else f"exit status {got[0]}, not {expected[0]}"
        detail = f"{how}; {detail}"
    problem = "crash" if got[0] < 0 else "output" if different else "exit"
    return Finding(row, problem, " ".join(list(labels)[:4]), detail)


def _important(text: str) -> str:
    """Return the lines of a tool's messages that say what is wrong."""
    lines = [
        line
        for line in text.splitlines()
        if any(
            word in line
            for word in ("error", "ERROR", "Running pass", "Assertion", "undefined", "fatal", ">>>", "Stack dump")
        )
    ]
    frames = [line[:150] for line in text.splitlines() if line.startswith(" #") and "llvm::" in line]
    return "\n".join([*lines[:8], *frames[:4]])[:2000] or text[:2000]


def same_code(one: Path, other: Path) -> bool:
    """Return whether two programs have the same instructions; places of data may differ, as unwind tables do by -g."""
    return text_section(one) == text_section(other) or _instructions(one) == _instructions(other)


def _instructions(path: Path) -> list[str]:
    command: list[str | Path] = [
        STOCK / "llvm-objdump",
        "-d",
        "--no-show-raw-insn",
        "--no-leading-addr",
        "-j",
        ".text",
        path,
    ]
    listed = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    lines = (re.sub(r"\s+#.*|<[^>]*>|-?0x[0-9a-f]+(?=\(%rip\))", "", line) for line in listed if str(path) not in line)
    return [re.sub(r"^(\s*(?:j|call)\w*\s+)0x[0-9a-f]+", r"\1", line) for line in lines]


def text_section(path: Path) -> bytes:
    """Return the bytes of an ELF64 file's `.text`."""
    data = path.read_bytes()
    offset = struct.unpack_from("<Q", data, 0x28)[0]
    size, number, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(number)]
    strings = headers[names][4]
    for name, _, _, _, start, length in headers:
        end = data.index(b"\0", strings + name)
        if data[strings + name : end] == b".text":
            return data[start : start + length]
    return b""


def write_random_plan(path: Path, objects: Sequence[Path], program: Program) -> None:
    """Write a plan with random decisions about calls between functions of bitcode objects, for both rounds."""
    listed = subprocess.run(
        [STOCK / "llvm-nm", "--defined-only", "-P", *objects], capture_output=True, text=True
    ).stdout
    names = sorted({line.split()[0] for line in listed.splitlines() if " t " in line.lower() and ":" not in line})
    rng = random.Random(program.seed)
    actions: dict[Key, int] = {}
    for caller in names:
        for callee in names:
            for ordinal in (0, 1, 2, SECOND_ROUND_ORDINAL, SECOND_ROUND_ORDINAL + 1):
                if rng.random() < 0.8:
                    actions[caller, callee, ordinal] = int(rng.random() < 0.5)
    write_plan(path, [PlannedModule("ld-temp.o", ForcedDecisions.of(actions))], 19)
