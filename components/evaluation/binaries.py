"""Held-out projects built whole, by stock clang and by the release clang: what users ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.console import UserError
from components.evaluation.builds import Side, two_sides, whole_build
from components.evaluation.comparison import reduction_percent
from components.evaluation.sections import Kind, SectionSizes, measure
from components.formats.toolchain import Toolchain
from components.projects.recipe import Recipe


@dataclass(frozen=True)
class Binary:
    """One linked library or program, as both compilers made it. `name` is relative to the build directory."""

    project: str
    name: str
    kind: Kind
    stock: SectionSizes
    policy: SectionSizes

    def to_json(self) -> dict[str, Any]:
        """As it stands in metrics.json and binaries.json."""
        return {
            "project": self.project,
            "name": self.name,
            "kind": self.kind,
            "stock": asdict(self.stock),
            "policy": asdict(self.policy),
            "reduction_percent": reduction_percent(self.stock.llvm_size_text, self.policy.llvm_size_text),
        }


def compare_projects(
    recipes: Sequence[Recipe], stock_clang: Path, release: Toolchain, problem: str, work: Path, cache: Path, jobs: int
) -> list[Binary]:
    """Builds every project twice and measures what it linked.

    Both builds are made of a fresh source tree at the same place, at the problem's level of optimization, and differ
    only in the compiler and its advisor's flags. `work` is a directory for them, empty again afterwards.

    Raises:
        UserError: a project cannot be fetched or built, links nothing, or not the same under both compilers.
    """
    sides = two_sides(stock_clang, release, problem)
    binaries = []
    for recipe in recipes:
        stock, policy = (_measure(recipe, side, work, cache, jobs) for side in sides)
        if stock.keys() != policy.keys():
            odd = ", ".join(sorted(stock.keys() ^ policy.keys()))
            raise UserError(
                f"{recipe.name}: only one of the two compilers could build {odd}",
                "build the project by hand with both; its recipe may need flags",
            )
        if not stock:
            raise UserError(
                f"{recipe.name}: the recipe names no binary that its build makes",
                "list the linked libraries and programs as `binaries` in the recipe",
            )
        binaries += [Binary(recipe.name, name, *stock[name], policy[name][1]) for name in stock]
    return binaries


def _measure(
    recipe: Recipe, side: Side, work: Path, cache: Path, jobs: int
) -> dict[str, tuple[Kind, SectionSizes]]:
    with whole_build(recipe, side, work, cache, jobs) as (_, built):
        root = built.directory.resolve()
        return {str(path.relative_to(root)): measure(path) for path in built.binaries}
