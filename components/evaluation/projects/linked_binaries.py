"""Compares the linked binaries of whole held-out projects, built with stock clang, with the release clang and, if there
is a plan, with the release clang and the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from components.core.compiler.inline_plan import plan_flags
from components.core.compiler.source_language import Language
from components.core.formats.toolchain import Toolchain
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.build_variants import BuildVariant, build_variants, by_heuristic, whole_build
from components.core.projects.flags.link_variants import LINK_VARIANTS, LinkVariant
from components.core.projects.flags.types import Kind, SectionSizes
from components.core.projects.recipe import Recipe
from components.evaluation.metrics_types import (
    BinariesComparison,
    BinaryEntry,
    FunctionChange,
    LinkedTotal,
    LinkedTotals,
    PlanSizes,
)
from components.evaluation.projects.function_changes import compare_functions, largest_changes
from components.evaluation.projects.measured_builds import MeasuredFile, measure_file
from components.platform.console import say
from components.platform.errors import UserError

MAX_FUNCTIONS = 10
"""Functions of each direction that are listed."""


@dataclass(frozen=True)
class Binary:
    """Sizes of one library or program in all builds; attributes as in `BinaryEntry`, with None for UNSET.

    functions: functions with the largest changes from `stock` to `policy`; () if the file is stripped.
    """

    project: str
    name: str
    kind: Kind
    language: Language | None
    link_variant: str
    stock: SectionSizes
    policy: SectionSizes
    plan: SectionSizes | None = None
    heuristic: SectionSizes | None = None
    functions: tuple[FunctionChange, ...] = field(default=(), kw_only=True)

    def entry(self) -> BinaryEntry:
        """Return the entry of metrics.json and binaries.json."""
        return BinaryEntry(
            project=self.project,
            name=self.name,
            kind=self.kind,
            language=self.language,
            link_variant=self.link_variant,
            **_figures(self.stock, self.policy, self.plan, self.heuristic),
        )


def compare_projects(
    recipes: Sequence[Recipe],
    stock_clang: Path,
    release: Toolchain,
    problem: str,
    work: Path,
    cache: Path,
    jobs: int,
    link_variants: Sequence[str] = tuple(LINK_VARIANTS),
    plan: Path | None = None,
) -> list[Binary]:
    """Build every project with each compiler and for each link variant, and measure its binaries.

    All builds use a fresh source tree at the same path and the problem's optimization level, and differ only in the
    compiler and its advisor's flags. `work` is their directory, empty afterwards. With the file `plan`, the release
    clang builds every project twice: with the policy alone, and with the plan.

    A project that stock clang cannot build in a variant other than "default" is left out of that variant. So is a
    Debian package that cannot be fetched or built, or ships nothing that the variant compares.

    Raises:
        UserError: a project cannot be fetched or built otherwise, has no binaries, or not the same ones in all builds;
            or nothing remains to compare.
    """
    binaries: list[Binary] = []
    for name in dict.fromkeys(link_variants):
        link_variant = LINK_VARIANTS[name]
        stock, policy = build_variants(stock_clang, release, problem, link_variant)
        variants = {"policy": policy}
        if plan is not None:
            flags = [*policy.flags, *plan_flags(plan)]
            variants["plan"] = replace(policy, title="release clang with the plan", flags=flags)
        for recipe in recipes:
            if (changed := link_variant.apply(recipe)) is None:
                say(f"{recipe.name}: its recipe names no program, so it is not compared as {name}")
            else:
                # A package takes minutes. A plan, and a variant of links, is compared as a whole.
                is_split = problem == "inlining" and plan is None and name == "default" and not recipe.debian
                apart = {"heuristic": by_heuristic(policy)} if is_split else {}
                binaries += _compare(changed, link_variant, stock, variants | apart, work, cache, jobs)
    if not binaries:
        raise UserError(
            f"no program of {', '.join(recipe.name for recipe in recipes)} can be compared as "
            f"{' or '.join(link_variants)}",
            "use --link-variant default, or list programs as `binaries` in the recipes",
        )
    return binaries


def linked_totals(binaries: Sequence[Binary]) -> LinkedTotals:
    """Sum programs and shared libraries: link variant -> "all", "c" or "c++" -> their number and sizes."""
    groups: dict[str, dict[str, list[Binary]]] = {}
    for binary in binaries:
        for language in ("all", binary.language) if binary.language is not None else ():
            groups.setdefault(binary.link_variant, {}).setdefault(language, []).append(binary)
    return {
        variant: {language: _total(chosen) for language, chosen in languages.items()}
        for variant, languages in groups.items()
    }


def _total(binaries: Sequence[Binary]) -> LinkedTotal:
    stock = sum((binary.stock for binary in binaries), SectionSizes())
    policy = sum((binary.policy for binary in binaries), SectionSizes())
    planned = [binary.plan for binary in binaries if binary.plan is not None]
    plan = sum(planned, SectionSizes()) if planned else None
    known = [binary.heuristic for binary in binaries if binary.heuristic is not None]
    heuristic = sum(known, SectionSizes()) if len(known) == len(binaries) else None
    return LinkedTotal(
        files=len(binaries),
        policy_part_percent=UNSET if heuristic is None else _reduction_percent(heuristic, policy),
        **_figures(stock, policy, plan, heuristic),
    )


def _figures(
    stock: SectionSizes, policy: SectionSizes, plan: SectionSizes | None, heuristic: SectionSizes | None
) -> dict[str, Any]:
    """Return the sizes and reductions of a file, or of several in sum: fields of BinaryEntry and of LinkedTotal."""
    return {
        "stock": stock,
        "policy": policy,
        "reduction_percent": _reduction_percent(stock, policy),
        "text_reduction_percent": reduction_percent(stock.text, policy.text),
        "plan": _plan_sizes(stock, policy, plan),
        "heuristic": UNSET if heuristic is None else heuristic,
    }


def summarize_binaries(binaries: Sequence[Binary]) -> BinariesComparison:
    """Return the part of metrics.json, and the content of binaries.json."""
    variants = [binary.link_variant for binary in binaries if binary.functions]
    chosen = "default" if "default" in variants else variants[0] if variants else ""
    changes = [change for binary in binaries if binary.link_variant == chosen for change in binary.functions]
    return BinariesComparison(
        [binary.entry() for binary in binaries], linked_totals(binaries), largest_changes(changes, MAX_FUNCTIONS)
    )


def _reduction_percent(stock: SectionSizes, policy: SectionSizes) -> float | None:
    return reduction_percent(stock.llvm_size_text, policy.llvm_size_text)


def _plan_sizes(stock: SectionSizes, policy: SectionSizes, plan: SectionSizes | None) -> PlanSizes | UnsetType:
    if plan is None:
        return UNSET
    return PlanSizes(
        sizes=plan,
        reduction_percent=_reduction_percent(stock, plan),
        text_reduction_percent=reduction_percent(stock.text, plan.text),
        against_policy_percent=_reduction_percent(policy, plan),
    )


def _compare(
    recipe: Recipe,
    link_variant: LinkVariant,
    stock_clang: BuildVariant,
    variants: Mapping[str, BuildVariant],
    work: Path,
    cache: Path,
    jobs: int,
) -> list[Binary]:
    try:
        stock = _measure(recipe, stock_clang, work, cache, jobs)
    except UserError as error:
        # A distribution's archive loses packages, and a set of many must not fail with one of them.
        if link_variant.name == "default" and not recipe.debian:
            raise
        say(f"{recipe.name} is not compared as {link_variant.name}: {error.problem.splitlines()[0]}")
        return []
    if not stock and recipe.debian:
        say(f"{recipe.name}: it ships no program, so it is not compared as {link_variant.name}")
        return []
    try:
        released: dict[str, dict[str, MeasuredFile]] = {}
        for key, variant in variants.items():
            built = released[key] = _measure(recipe, variant, work, cache, jobs)
            if differing := ", ".join(sorted(stock.keys() ^ built.keys())):
                raise UserError(
                    f"{recipe.name}: only one of {stock_clang.title} and {variant.title} could build {differing}",
                    "build the project by hand with both; the recipe may need flags",
                )
    except UserError as error:
        if not recipe.debian:
            raise
        say(f"warning: {recipe.name} is left out, although stock clang builds it: {error.problem.splitlines()[0]}")
        return []
    if not stock:
        raise UserError(
            f"{recipe.name}: the recipe lists no binary that the build makes",
            "list the linked libraries and programs as `binaries` in the recipe",
        )
    return [
        Binary(
            recipe.name,
            name,
            binary.kind,
            binary.language,
            link_variant.name,
            binary.sizes,
            released["policy"][name].sizes,
            plan=released["plan"][name].sizes if "plan" in released else None,
            heuristic=released["heuristic"][name].sizes if "heuristic" in released else None,
            functions=_changed_functions(f"{recipe.name}/{name}", binary, released["policy"][name]),
        )
        for name, binary in stock.items()
    ]


def _changed_functions(name: str, stock: MeasuredFile, policy: MeasuredFile) -> tuple[FunctionChange, ...]:
    if not (stock.functions and policy.functions):
        return ()
    changes = compare_functions(name, stock.functions, policy.functions)
    changes.sort(key=lambda change: change.old - change.new)
    return tuple(changes if len(changes) <= 2 * MAX_FUNCTIONS else changes[:MAX_FUNCTIONS] + changes[-MAX_FUNCTIONS:])


def _measure(recipe: Recipe, variant: BuildVariant, work: Path, cache: Path, jobs: int) -> dict[str, MeasuredFile]:
    with whole_build(recipe, variant, work, cache, jobs) as (_, built):
        root = built.directory.resolve()
        return {str(path.relative_to(root)): measure_file(path) for path in built.binaries}
