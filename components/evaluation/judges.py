"""What an evaluation does differently by what its problem is judged by.

Imports nothing heavy at import time, see table.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from components.evaluation.scores import Scores
from components.evaluation.sizes import Sizes

if TYPE_CHECKING:
    from components.evaluation.config import EvaluationConfig
    from components.evaluation.variants import Variant
    from components.formats.corpus import Module
    from components.formats.toolchain import Toolchain
    from components.projects.recipe import Recipe
    from components.workers.pool import WorkerPool


class Judge(Protocol):
    """Of one measure. `metrics` is what metrics.json holds, `measured` a `Measured` of this measure.

    figures: keys without which a metrics.json is none. swept: whether there is a sweep of -inline-threshold.

    Words. comparative: what a reduction is, and its opposite. title: of the table. cases, judged: what is compared, and
    what of it. worst, worst_key, none_worse: what cases are called that got worse, in the card for people and in that
    for programs, and what is said if there are none. reward: what 1% of a training's reward is.

    Projects built whole. listed: what a recipe lists of one, by its key, so that there is something to compare.
    of_projects: what is then compared.
    """

    figures: frozenset[str]
    swept: bool
    comparative: tuple[str, str]
    title: str
    cases: str
    judged: str
    worst: str
    worst_key: str
    none_worse: str
    reward: str
    listed: str
    of_projects: str

    def plan(
        self, config: EvaluationConfig, training: Toolchain, release: Toolchain | None
    ) -> tuple[Variant, ...]:
        """All variants, the baseline first."""

    def compiled_by(self, release: Toolchain | None) -> str:
        """Whose figures the policy's are: of the "training" or of the "release" clang."""

    def measure(
        self, pool: WorkerPool, config: EvaluationConfig, variants: Sequence[Variant], modules: Sequence[Module],
        heldout_projects: Collection[str], earlier: Any,
    ) -> Any:  # fmt: skip
        """What `modules` come to; of `earlier` measurements, or None, is taken over what need not be compiled again."""

    def require_tools(self, config: EvaluationConfig, release: Toolchain, recipes: Sequence[Recipe]) -> None:
        """UserError if this machine, or every recipe, lacks what build_projects needs."""

    def build_projects(
        self, config: EvaluationConfig, recipes: Sequence[Recipe], release: Toolchain, work: Path
    ) -> Any:
        """Builds held-out projects whole, in `work`, and says what `summarize` wants to know of them. `recipes` all
        have what is `listed`."""

    def summarize(self, measured: Any, config: EvaluationConfig, built: Any) -> dict[str, Any]:
        """metrics.json, but for what says where it all came from. built: of build_projects; None if nothing was."""

    def agreement(self, measured: Any, earlier: Any) -> dict[str, Any]:
        """What metrics.json says of `measured` beside the `earlier` measurements that it completes."""

    def write_csv(self, path: Path, measured: Any) -> None:
        """Writes report.csv."""

    def worst_cases(self, measured: Any) -> list[dict[str, Any]]:
        """What the policy makes worse than the heuristic does, the worst first, for card and page."""

    def case_line(self, case: Mapping[str, Any]) -> str:
        """One of worst_cases for people."""

    def page(self, metrics: dict[str, Any], measured: Any) -> tuple[str, dict[str, Any]]:
        """Template of report.html, and the values that it wants beside those of every page."""

    def extent(self, part: Mapping[str, Any]) -> str:
        """How much a comparison is of, for people."""

    def cells(self, metrics: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
        """Rows of the closing table: title, then a cell for each of `groups`."""

    def programs(self, metrics: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the programs of whole projects execute, where they were run."""


JUDGES: dict[str, Judge] = {"size": Sizes(), "score": Scores()}
"""By `Problem.measure`."""


def judge_of(metrics: Mapping[str, Any]) -> Judge:
    """The judge who made them. KeyError if there is none; those before there were scores do not say it."""
    return JUDGES[metrics.get("measure", "size")]
