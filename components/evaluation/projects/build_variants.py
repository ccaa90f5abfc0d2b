"""Whole projects built as users build them, by stock clang and by a release clang that differs only in the policy."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.console import Progress, UserError, say
from components.core.formats.toolchain import Toolchain
from components.core.projects.build import BuiltProject, build_project, clang_version
from components.core.projects.debian.shipped import shipped_binaries
from components.core.projects.recipe import Recipe
from components.core.projects.source import fetch_recipe
from components.evaluation.projects.link_variants import LINK_VARIANTS, LinkVariant


@dataclass(frozen=True)
class BuildVariant:
    """One of the two builds: `title` as progress and errors call it, the compiler, and its flags."""

    title: str
    clang: Path
    flags: list[str]
    link_flags: tuple[str, ...] = ()


def build_variants(
    stock_clang: Path,
    release: Toolchain,
    problem: str,
    variant: LinkVariant = LINK_VARIANTS["default"],
    release_flags: Sequence[str] = (),
) -> tuple[BuildVariant, BuildVariant]:
    """Stock clang with nothing added, and the release clang with the policy for `problem` turned on and with
    `release_flags`, both at the level at which code is built that such a policy is for, with the flags of `variant`.

    Raises:
        UserError: the release clang embeds no such policy, or the compilers are not of one LLVM version.
    """
    if problem not in release.features:
        raise UserError(
            f"the release clang in {release.directory} embeds no policy for {problem}",
            f"name another problem ({', '.join(release.features)}), or build a release clang with such a policy",
        )
    require_same_version(stock_clang, release)
    flags = [problems.get(problem).optimization, *variant.compile_flags]
    policy_flags = Advisor("release").flags(problem, None, None)
    return (
        BuildVariant("stock clang", stock_clang, flags, variant.link_flags),
        BuildVariant("release clang", release.clang, [*flags, *policy_flags, *release_flags], variant.link_flags),
    )


@contextmanager
def whole_build(
    recipe: Recipe,
    side: BuildVariant,
    work: Path,
    cache: Path,
    jobs: int,
    fetched: Callable[[Path], None] | None = None,
) -> Iterator[tuple[Path, BuiltProject]]:
    """Builds in `work`, yields source tree and build, and empties `work` again: the next build has the same paths in
    its strings, and in its programs' arguments. `fetched` is called with the source tree before anything is built.

    Raises:
        UserError: the project cannot be fetched, configured or built.
    """
    place = work / recipe.name
    if recipe.debian:
        with _debian_build(recipe, side, cache, jobs) as built:
            yield built.directory, built
        return
    try:
        source = fetch_recipe(recipe, place, cache, say)
        if fetched is not None:
            fetched(source)
        with ExitStack() as stack:
            bar: Progress | None = None

            def watch(done: int, total: int) -> None:
                nonlocal bar
                if bar is None:  # ninja says the total with the first step
                    bar = stack.enter_context(Progress(f"building {recipe.name} with {side.title}", total))
                bar.advance(done - bar.done)

            built = build_project(
                recipe, source, place / "build", side.clang, side.flags, jobs, watch, ldflags=side.link_flags
            )
        if built.failed:
            say(f"{recipe.name}, {side.title}: {len(built.failed)} targets failed, such as {built.failed[0]}")
        yield source, built
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _debian_build(recipe: Recipe, side: BuildVariant, cache: Path, jobs: int) -> Iterator[BuiltProject]:
    """What a package ships, built by its own rules; its dependencies are installed for each build."""
    log = cache / "logs" / "debian" / f"{recipe.name}-{side.title.replace(' ', '-')}.log"
    with shipped_binaries(recipe, side.clang, side.flags, side.link_flags, cache, jobs, log) as directory:
        paths = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
        named = [path for path in paths if _is_named(path.relative_to(directory).as_posix(), recipe)]
        yield BuiltProject(directory, directory, tuple(named), (), log)


def _is_named(path: str, recipe: Recipe) -> bool:
    return not recipe.binaries or any(fnmatch.fnmatch(path, glob) for glob in recipe.binaries)


def find_stock_clang(release: Toolchain, given: Path | None) -> Path:
    """`given`, or the installed clang of the release clang's major version. UserError if there is none."""
    if given is not None:
        return given
    major = release.llvm_version.split(".")[0]
    found = shutil.which(f"clang-{major}")
    if found is None:
        raise UserError(
            f"no clang-{major} to build the baseline with", f"apt-get install clang-{major}, or pass --stock-clang"
        )
    return Path(found)


def require_same_version(stock_clang: Path, release: Toolchain) -> None:
    """UserError unless both compilers are of one LLVM version: else the difference would not be the policy's alone."""
    version = ".".join(map(str, clang_version(stock_clang, "pass the stock clang as --stock-clang")))
    if version != release.llvm_version:
        raise UserError(
            f"{stock_clang} is clang {version}, the release clang {release.llvm_version}: "
            "their difference would not be the policy's alone",
            f"pass a clang {release.llvm_version} as --stock-clang",
        )
