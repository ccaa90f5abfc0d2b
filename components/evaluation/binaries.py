"""Held-out projects built whole, by stock clang and by the release clang: what users ship."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.compiler.advisor import Advisor
from components.console import Progress, UserError, say
from components.evaluation.comparison import reduction_percent
from components.evaluation.sections import Kind, SectionSizes, measure
from components.formats.toolchain import Toolchain
from components.projects.build import build_project
from components.projects.recipe import Recipe
from components.projects.source import fetch_recipe

OPTIMIZATION = "-Oz"


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

    Both builds are made of a fresh source tree at the same place, at -Oz, and differ only in the compiler and its
    advisor's flags. `work` is a directory for them, empty again afterwards.

    Raises:
        UserError: a project cannot be fetched or built, links nothing, or not the same under both compilers.
    """
    require_same_version(stock_clang, release)
    release_flags = Advisor("release").flags(problem, None, None)
    binaries = []
    for recipe in recipes:
        stock = _build(recipe, stock_clang, [OPTIMIZATION], "stock clang", work, cache, jobs)
        policy = _build(
            recipe, release.clang, [OPTIMIZATION, *release_flags], "release clang", work, cache, jobs
        )
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


def find_stock_clang(release: Toolchain) -> Path:
    """The installed clang of the release clang's major version. UserError if there is none."""
    major = release.llvm_version.split(".")[0]
    found = shutil.which(f"clang-{major}")
    if found is None:
        raise UserError(
            f"no clang-{major} to build the baseline with", f"apt-get install clang-{major}, or pass --stock-clang"
        )
    return Path(found)


def require_same_version(stock_clang: Path, release: Toolchain) -> None:
    """UserError unless both compilers are of one LLVM version: else the difference would not be the policy's alone."""
    try:
        said = subprocess.run(
            [stock_clang, "--version"], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{stock_clang} does not run: {error}", "pass the stock clang as --stock-clang") from None
    found = re.search(r"clang version (\d+\.\d+\.\d+)", said)
    version = found[1] if found else "unknown"
    if version != release.llvm_version:
        raise UserError(
            f"{stock_clang} is clang {version}, the release clang {release.llvm_version}: "
            "their difference would not be the policy's alone",
            f"pass a clang {release.llvm_version} as --stock-clang",
        )


def _build(
    recipe: Recipe, clang: Path, flags: list[str], title: str, work: Path, cache: Path, jobs: int
) -> dict[str, tuple[Kind, SectionSizes]]:
    """Builds in `work`, measures, and empties it: the next build has the same paths in its strings."""
    place = work / recipe.name
    try:
        source = fetch_recipe(recipe, place, cache, say)
        build_dir = place / "build"
        with ExitStack() as stack:
            bar: Progress | None = None

            def watch(done: int, total: int) -> None:
                nonlocal bar
                if bar is None:  # ninja says the total with the first step
                    bar = stack.enter_context(Progress(f"building {recipe.name} with {title}", total))
                bar.advance(done - bar.done)

            built = build_project(recipe, source, build_dir, clang, flags, jobs, watch)
        if built.failed:
            say(f"{recipe.name}, {title}: {len(built.failed)} targets failed, such as {built.failed[0]}")
        root = built.directory.resolve()
        return {str(path.relative_to(root)): measure(path) for path in built.binaries}
    finally:
        shutil.rmtree(place, ignore_errors=True)
