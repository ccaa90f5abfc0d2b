"""The content of shrink.json."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from components.core.projects.flags.types import Kind
from components.core.projects.speed.types import TimeChange

Measure = Literal["loaded", "file", "compressed"]
"""What is minimized: bytes of loaded sections, of files after strip, or of these compressed by xz."""

TITLE_OF_MEASURE: dict[Measure, str] = {"loaded": "loaded", "file": "after strip", "compressed": "after strip and xz"}
"""Ends of "N bytes ..."."""


class FileSizes(Struct, kw_only=True):
    """One file of a build, or several in sum, in bytes.

    Attributes:
        stripped: the file without symbols and debug data; for a static library, its sections.
        loaded: the sections that are loaded. The stripped file has headers and padding besides: GNU ld fills pages
            between code and constants with zeros, lld does not.
        text: machine code.
        compressed: the stripped file, compressed by xz; 0 if that was not asked for.
    """

    stripped: int = 0
    loaded: int = 0
    text: int = 0
    compressed: int = 0

    def __add__(self, other: FileSizes) -> FileSizes:
        return FileSizes(**{name: getattr(self, name) + getattr(other, name) for name in FileSizes.__struct_fields__})

    def by(self, measure: Measure) -> int:
        return self.stripped if measure == "file" else self.loaded if measure == "loaded" else self.compressed


class TriedBuild(FileSizes, kw_only=True):
    """One of the builds; its sizes are the sums over its files.

    Attributes:
        name: "own" for the user's, otherwise the name of a row.
        gives: short description.
        compiler: as of `CompilerOfRow`; "" for the user's own.
        build: environment for the user's build, as a shell reads it; "" for the user's own.
        files: sizes by path; empty if it failed.
        failure: why it is not used although it may be small; "" if it may be.
        dropped: options of the user's build that its compiler does not have, left out.
        searched: whether it has the decisions of a search.
        instructions: of the benchmark, if they were counted to hold a limit; else 0.
    """

    name: str
    gives: str
    compiler: str = ""
    build: str = ""
    files: dict[str, FileSizes] = {}
    failure: str = ""
    dropped: list[str] = []
    searched: bool = False
    instructions: int = 0


class SpeedChange(Struct, kw_only=True):
    """The speed of a command with the delivered build, against that with the user's own.

    Attributes:
        command: as the user gave it.
        counter: what counted the instructions; "" if nothing did.
        own_instructions, delivered_instructions: 0 if nothing counted them.
        time: of processor time; `stock_s` is of the user's own build, `policy_s` of the delivered one.
    """

    command: str
    counter: str
    own_instructions: int
    delivered_instructions: int
    time: TimeChange

    @property
    def instructions_percent(self) -> float:
        return 100.0 * (self.delivered_instructions / self.own_instructions - 1.0)


class ShrinkReport(Struct, kw_only=True):
    """All builds, and the one that was delivered.

    Attributes:
        command: the user's build. rebuild: the command that makes what was delivered, in the environment of its
            `build`.
        check: the user's check, "" if there is none. checked: how the delivered files were checked, in words.
        chosen: name of the delivered build.
        measure: what is minimized.
        reduction_percent: its reduction against the user's own build; 0 if that is delivered.
        kinds: kind of each file.
        builds: the user's own first.
        why: why nothing is smaller; "" if something is.
        notes: what the user should know of the delivered build.
        speed: its speed, if the user gave a command.
        max_slowdown: how many percent more instructions it may have, if that is limited.
    """

    command: str
    rebuild: str
    check: str
    chosen: str
    reduction_percent: float
    kinds: dict[str, Kind]
    builds: list[TriedBuild]
    why: str = ""
    checked: str = ""
    speed: SpeedChange | None = None
    max_slowdown: float | None = None
    measure: Measure = "file"
    notes: list[str] = []
