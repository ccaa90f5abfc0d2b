"""The content of forecast.json."""

from __future__ import annotations

from msgspec import Struct

from components.core.formats.links import LinksSource

SMALLEST_SAMPLE = 4
"""Modules of a sample that can be split into two halves, so that its error is known."""


class Change(Struct, kw_only=True):
    """Bytes at -Oz by several compilers.

    Attributes:
        stock: by stock clang. policy: by the release clang without its outliner. release: by the release clang.
    """

    stock: int = 0
    policy: int = 0
    release: int = 0

    @property
    def percent(self) -> float:
        """The change by the release clang in percent; negative is smaller."""
        return self._percent(self.release)

    @property
    def policy_percent(self) -> float:
        return self._percent(self.policy)

    def _percent(self, size: int) -> float:
        return 100 * (size / self.stock - 1) if self.stock else 0.0


def percent_text(percent: float) -> str:
    """Return a change in percent with its sign and one digit, never -0.0%."""
    return f"{round(percent, 1) + 0.0:+.1f}%"


class ObjectsForecast(Struct, kw_only=True):
    """Sizes of the objects, each by itself, in sum.

    Attributes:
        modules: number of objects.
        text: text as llvm-size counts it. machine_code: instructions. unwind: unwind and exception tables.
    """

    modules: int
    text: Change
    machine_code: Change
    unwind: Change


class FileForecast(Struct, kw_only=True):
    """Sizes of a program or shared library of the build, without start-up code and system libraries.

    Attributes:
        name: path relative to the directory of the build.
        modules: number of its modules. compiled: how many of them were compiled.
        bytes: all sections that are loaded.
    """

    name: str
    modules: int
    compiled: int
    bytes: Change


class LinkedForecast(Struct, kw_only=True):
    """Sizes of the objects when linked: the sum over the files of the build, or of all together if they are unknown.

    Attributes:
        bytes: all sections that are loaded. machine_code, unwind: as of objects.
        names: names for the dynamic linker.
        margin: half of the width of the interval of the change of `bytes` that comes from sampling, in percentage
            points, by the formula of 95%, of which 85% hold; 0 if all modules were compiled, None if less than
            SMALLEST_SAMPLE of a larger program were.
    """

    bytes: Change
    machine_code: Change
    unwind: Change
    names: Change
    margin: float | None


class Forecast(Struct, kw_only=True):
    """Expected effect of the pretrained policy on a program.

    Attributes:
        modules: number of modules of the program.
        failed: modules that were tried and do not compile -> why.
        seed: of the order in which modules were compiled.
        compile_s: wall seconds of the compiles.
        functions: number of functions in the compiled modules.
        discardable_percent: share of text in functions that disappear once all their calls are inlined.
        unwind_percent: share of text in unwind and exception tables.
        decisions: number of decisions of the policy, 0 if unknown. departures: those unlike LLVM's heuristic.
        objects: all compiled modules. languages: those of each language.
        linked: None if they cannot be linked. not_linked: why, or why files of the build are not in `files`.
        links: who says how the build links; "none" if that is unknown.
        files: programs and shared libraries of the build, the largest first; [] if their links are unknown.
        unlinked: number of compiled modules that are in no such file, and do not count in `linked`.
        advice: what to do.
    """

    modules: int
    failed: dict[str, str]
    seed: int
    compile_s: float
    functions: int
    discardable_percent: float
    unwind_percent: float
    decisions: int
    departures: int
    objects: ObjectsForecast
    languages: dict[str, ObjectsForecast]
    linked: LinkedForecast | None
    not_linked: str = ""
    links: LinksSource = "none"
    files: list[FileForecast] = []
    unlinked: int = 0
    advice: list[str] = []
