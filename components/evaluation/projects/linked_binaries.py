"""Held-out projects built whole, by stock clang and by the release clang: what users ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.core.compiler.source_language import Language
from components.core.console import UserError, say
from components.core.formats.toolchain import Toolchain
from components.core.projects.recipe import Recipe
from components.evaluation.comparison import reduction_percent
from components.evaluation.projects.build_variants import BuildVariant, build_variants, whole_build
from components.evaluation.projects.link_variants import LINK_VARIANTS, LinkVariant
from components.evaluation.projects.section_sizes import NOTHING, Kind, MeasuredBinary, SectionSizes, measure


@dataclass(frozen=True)
class Binary:
    """One library or program, as both compilers made it.

    Attributes:
        project: the recipe's name.
        name: path relative to the build directory.
        kind: static libraries are not linked, their members are summed.
        language: c++ if it needs a C++ library at run time; None if it is not linked.
        link_variant: of LINK_VARIANTS.
        stock, policy: sizes under either compiler.
    """

    project: str
    name: str
    kind: Kind
    language: Language | None
    link_variant: str
    stock: SectionSizes
    policy: SectionSizes

    def to_json(self) -> dict[str, Any]:
        """As it stands in metrics.json and binaries.json."""
        return {
            "project": self.project,
            "name": self.name,
            "kind": self.kind,
            "language": self.language,
            "link_variant": self.link_variant,
            **_compared(self.stock, self.policy),
        }


def compare_projects(
    recipes: Sequence[Recipe],
    stock_clang: Path,
    release: Toolchain,
    problem: str,
    work: Path,
    cache: Path,
    jobs: int,
    link_variants: Sequence[str] = tuple(LINK_VARIANTS),
    release_flags: Sequence[str] = (),
) -> list[Binary]:
    """Builds every project twice for each link variant and measures what it linked.

    Both builds are made of a fresh source tree at the same place, at the problem's level of optimization, and differ
    only in the compiler, its advisor's flags and `release_flags`. `work` is a directory for them, empty afterwards.

    A project that stock clang cannot build in another variant than its own is left out of that variant, where there
    are others.

    Raises:
        UserError: a project cannot be fetched or built, links nothing, or not the same under both compilers; or nothing
            is left to compare.
    """
    binaries: list[Binary] = []
    for name in dict.fromkeys(link_variants):
        variant = LINK_VARIANTS[name]
        sides = build_variants(stock_clang, release, problem, variant, release_flags)
        for recipe in recipes:
            if (changed := variant.apply(recipe)) is None:
                say(f"{recipe.name}: its recipe names no program, so it is not compared as {name}")
            else:
                binaries += _compare(changed, variant, sides, work, cache, jobs)
    if not binaries:
        raise UserError(
            f"no program of {', '.join(recipe.name for recipe in recipes)} can be compared as "
            f"{' or '.join(link_variants)}",
            "compare them as default, or name programs as `binaries` in the recipes",
        )
    return binaries


def linked_totals(binaries: Sequence[Binary]) -> dict[str, dict[str, dict[str, Any]]]:
    """Sum programs and shared libraries: link variant -> "all", "c" or "c++" -> files and a comparison."""
    totals: dict[str, dict[str, dict[str, Any]]] = {}
    for binary in binaries:
        if binary.language is not None:
            totals.setdefault(binary.link_variant, {}).update({"all": {}, binary.language: {}})
    for variant, languages in totals.items():
        for language in languages:
            chosen = [
                binary
                for binary in binaries
                if binary.link_variant == variant and binary.language and language in ("all", binary.language)
            ]
            stock, policy = sum((b.stock for b in chosen), NOTHING), sum((b.policy for b in chosen), NOTHING)
            languages[language] = {"files": len(chosen), **_compared(stock, policy)}
    return totals


def comparison_json(binaries: Sequence[Binary]) -> dict[str, Any]:
    """As it stands in metrics.json and in binaries.json."""
    return {"binaries": [binary.to_json() for binary in binaries], "linked": linked_totals(binaries)}


def _compared(stock: SectionSizes, policy: SectionSizes) -> dict[str, Any]:
    return {
        "stock": asdict(stock),
        "policy": asdict(policy),
        "reduction_percent": reduction_percent(stock.llvm_size_text, policy.llvm_size_text),
        "text_reduction_percent": reduction_percent(stock.text, policy.text),
    }


def _compare(
    recipe: Recipe, variant: LinkVariant, sides: tuple[BuildVariant, BuildVariant], work: Path, cache: Path, jobs: int
) -> list[Binary]:
    try:
        stock = _measure(recipe, sides[0], work, cache, jobs)
    except UserError as error:
        if variant.name == "default":
            raise
        say(f"{recipe.name} is not compared as {variant.name}: {error.problem.splitlines()[0]}")
        return []
    policy = _measure(recipe, sides[1], work, cache, jobs)
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
    return [
        Binary(recipe.name, name, found.kind, found.language, variant.name, found.sizes, policy[name].sizes)
        for name, found in stock.items()
    ]


def _measure(recipe: Recipe, side: BuildVariant, work: Path, cache: Path, jobs: int) -> dict[str, MeasuredBinary]:
    with whole_build(recipe, side, work, cache, jobs) as (_, built):
        root = built.directory.resolve()
        return {str(path.relative_to(root)): measure(path) for path in built.binaries}
