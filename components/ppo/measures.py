"""What PPO makes of a compile's outcome, by what the problem is judged by.

A measure says what the outcome of a sample is, what a decision of it is worth, and how outcomes compare with those of
the heuristic, which the trace has. All of them are less-is-better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from components.compiler.compile import Sample
from components.ppo import scores
from components.ppo.credit import Float64, function_advantages, module_advantages


class Measure(Protocol):
    """Of one kind of outcome; "outcome" is an int (bytes) or a dict (function -> score), of one sample of a module.

    needs_log: whether a compile has to log for its outcome to be known. comparative: "smaller" and "larger", or what
    else less and more of it are.
    """

    needs_log: bool
    comparative: tuple[str, str]

    def baselines(self, trace: Path) -> dict[str, Any]:
        """Module -> outcome under the heuristic, of those that can be judged and have decisions."""

    def outcome(self, sample: Sample) -> Any: ...

    def advantages(self, samples: Sequence[Sample], by_function: bool, module_weight: float) -> list[Float64]:
        """Per sample of one module float64 [decisions], positive is better; see `credit.py` and `scores.py`."""

    def wants_functions(self, by_function: bool) -> bool:
        """Whether the advantages take the sizes of functions."""

    def extent(self, baseline: Any) -> str:
        """How large a module is, for people."""

    def reward(self, outcome: Any, baseline: Any) -> float:
        """By which share a module's outcome is below its baseline."""

    def reduction(self, outcomes: Mapping[str, Any], baselines: Mapping[str, Any]) -> float:
        """The same of all modules of `outcomes` together."""


class Size:
    """Bytes of text: what counts is their sum."""

    needs_log = False
    comparative = ("smaller", "larger")

    def baselines(self, trace: Path) -> dict[str, int]:
        from components.formats.trace import read_modules  # not above: nodes of a cluster have no pyarrow

        # A module that failed in the trace has nothing to be judged by; one without decisions teaches nothing.
        table = read_modules(trace)
        counts = zip(table["module"].tolist(), table["text_size_bytes"].tolist(), table["decisions"], strict=True)
        return {name: size for name, size, decisions in counts if size > 0 and decisions > 0}

    def outcome(self, sample: Sample) -> int:
        return sample.text_size_bytes

    def advantages(self, samples: Sequence[Sample], by_function: bool, module_weight: float) -> list[Float64]:
        return function_advantages(samples, module_weight) if by_function else module_advantages(samples)

    def wants_functions(self, by_function: bool) -> bool:
        return by_function

    def extent(self, baseline: int) -> str:
        return f"{baseline} bytes"

    def reward(self, outcome: int, baseline: int) -> float:
        return 1 - outcome / baseline

    def reduction(self, outcomes: Mapping[str, int], baselines: Mapping[str, int]) -> float:
        before = sum(baselines[name] for name in outcomes)
        return 1 - sum(outcomes.values()) / before if before else 0.0


class Score:
    """A score for each function: what counts is its change, of every function alike; see `scores.py`."""

    needs_log = True
    comparative = ("lower scores", "higher scores")

    def baselines(self, trace: Path) -> dict[str, dict[str, float]]:
        from components.formats.trace import read_columns  # not above: nodes of a cluster have no pyarrow

        columns = read_columns(trace, ["module", "context", "step", "reward"])
        first = columns["step"] == 0
        result: dict[str, dict[str, float]] = {}
        rows = zip(columns["module"][first], columns["context"][first], columns["reward"][first].tolist(), strict=True)
        for module, function, score in rows:
            result.setdefault(module, {})[function] = score
        return result

    def outcome(self, sample: Sample) -> dict[str, float]:
        return sample.readable_scores()

    def advantages(self, samples: Sequence[Sample], by_function: bool, module_weight: float) -> list[Float64]:
        return scores.function_advantages(samples) if by_function else scores.module_advantages(samples)

    def wants_functions(self, by_function: bool) -> bool:
        return False

    def extent(self, baseline: dict[str, float]) -> str:
        return f"{len(baseline)} functions"

    def reward(self, outcome: dict[str, float], baseline: dict[str, float]) -> float:
        return scores.reduction([(outcome, baseline)])

    def reduction(
        self, outcomes: Mapping[str, dict[str, float]], baselines: Mapping[str, dict[str, float]]
    ) -> float:
        return scores.reduction([(outcome, baselines[name]) for name, outcome in outcomes.items()])


MEASURES: dict[str, Measure] = {"size": Size(), "score": Score()}
"""By `Problem.measure`."""
