"""The content of forecast.json."""

from __future__ import annotations

from msgspec import Struct

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
        """The change by the policy alone in percent."""
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


class LinkedForecast(Struct, kw_only=True):
    """Sizes of the objects when linked together.

    Attributes:
        bytes: all sections that are loaded. machine_code, unwind: as of objects.
        names: names for the dynamic linker.
        margin: half of the width of the 95% interval of the change of `bytes` that comes from sampling, in percentage
            points; 0 if all modules were compiled, None if less than SMALLEST_SAMPLE of a larger program were.
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
        linked: None if they cannot be linked. not_linked: why.
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
    advice: list[str] = []
