"""Builds whole projects as users do, with stock clang and with a release clang that differs only in the policy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.clang_programs import clang_version, gnu_binutils, llvm_binutils
from components.core.formats.toolchain import Toolchain
from components.core.projects.build import BuiltProject, build_progress, build_project
from components.core.projects.debian_build.package import build_shipped_binaries
from components.core.projects.flags.link_variants import LINK_VARIANTS, LinkVariant
from components.core.projects.flags.linked_files import matches
from components.core.projects.recipe import Recipe
from components.core.projects.source import fetch_recipe
from components.platform.console import say
from components.platform.errors import UserError

HEURISTIC_OPTION = "-enable-ml-inliner=default"
"""Option of LLVM by which a release clang decides by LLVM's heuristic, also after those of its policy."""
HEURISTIC = ("-mllvm", HEURISTIC_OPTION)
"""The same as flags of clang."""


@dataclass(frozen=True)
class BuildVariant:
    """One of the builds.

    Attributes:
        title: name in progress and errors.
        flags: they replace the build's own options.
        default_flags: flags of C only, which the build's own options replace.
        gnu: whether it is gcc, whose linker and binutils are GNU's.
    """

    title: str
    clang: Path
    flags: list[str]
    link_flags: tuple[str, ...] = ()
    gnu: bool = False
    default_flags: tuple[str, ...] = ()

    def binutils(self, others: Mapping[str, Path]) -> dict[str, Path]:
        """Return the ar, nm, ranlib and, unless it is gcc, strip that read its objects of LTO. An older LLVM does not
        read those of a newer one.

        Args:
            others: LLVM's, for those that are not installed with a clang.
        """
        return gnu_binutils(self.clang) if self.gnu else {**others, **llvm_binutils(self.clang)}


def build_variants(
    stock_clang: Path, release: Toolchain, problem: str, link_variant: LinkVariant = LINK_VARIANTS["default"]
) -> tuple[BuildVariant, BuildVariant]:
    """Return the build with stock clang, and the build with the release clang and its policy for `problem` enabled;
    both have the problem's optimization level and the flags of `link_variant`.

    Raises:
        UserError: the release clang embeds no such policy, or the compilers have different LLVM versions.
    """
    if problem not in release.features:
        raise UserError(
            f"the release clang in {release.directory} embeds no policy for {problem}",
            f"choose another problem ({', '.join(release.features)}), or build a release clang with such a policy",
        )
    require_same_version(stock_clang, release)
    flags = [problems.get(problem).optimization, *link_variant.compile_flags]
    policy_flags = Advisor("release").flags(problem, None, None)
    return (
        BuildVariant("stock clang", stock_clang, flags, link_variant.link_flags),
        BuildVariant("release clang", release.clang, [*flags, *policy_flags], link_variant.link_flags),
    )


def by_heuristic(policy: BuildVariant) -> BuildVariant:
    """Return the build with the same release clang that decides by LLVM's heuristic, and differs in nothing else."""
    return replace(policy, title="release clang by LLVM's heuristic", flags=[*policy.flags, *HEURISTIC])


@contextmanager
def whole_build(
    recipe: Recipe,
    variant: BuildVariant,
    work: Path,
    cache: Path,
    jobs: int,
    fetched: Callable[[Path], None] | None = None,
) -> Iterator[tuple[Path, BuiltProject]]:
    """Build in `work`, yield source tree and build, and empty `work`: the next build then has the same paths in its
    strings, and in its programs' arguments. `fetched` is called with the source tree before the build starts.

    Raises:
        UserError: the project cannot be fetched, configured or built.
    """
    root = work / recipe.name
    if recipe.debian:
        with _debian_build(recipe, variant, cache, jobs) as built:
            yield built.directory, built
        return
    try:
        source = fetch_recipe(recipe, root, cache, say)
        if fetched is not None:
            fetched(source)
        with build_progress(f"building {recipe.name} with {variant.title}") as show:
            built = build_project(
                recipe, source, root / "build", variant.clang, variant.flags, jobs, show, ldflags=variant.link_flags
            )
        if built.failed:
            say(f"{recipe.name}, {variant.title}: {len(built.failed)} targets failed, such as {built.failed[0]}")
        yield source, built
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _debian_build(recipe: Recipe, variant: BuildVariant, cache: Path, jobs: int) -> Iterator[BuiltProject]:
    """Yield the files that a package ships, built by its own rules; each build installs its dependencies."""
    if variant.gnu:
        raise UserError("packages are built in a root that has this gcc only for itself", "measure them by --build")
    log = cache / "logs" / "debian" / f"{recipe.name}-{variant.title.replace(' ', '-')}.log"
    with build_shipped_binaries(recipe, variant.clang, variant.flags, variant.link_flags, cache, jobs, log) as folder:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        binaries = [path for path in paths if matches(path.relative_to(folder).as_posix(), recipe.binaries)]
        yield BuiltProject(folder, folder, tuple(binaries), (), log)


def find_stock_clang(release: Toolchain, stock_clang: Path | None) -> Path:
    """Return `stock_clang`, or the installed clang of the release clang's major version. UserError if there is none."""
    if stock_clang is not None:
        return stock_clang
    major = release.llvm_version.split(".")[0]
    if path := shutil.which(f"clang-{major}"):
        return Path(path)
    remedy = f"apt-get install clang-{major}, or pass --stock-clang"
    raise UserError(f"no clang-{major} to build the baseline with", remedy)


def require_same_version(stock_clang: Path, release: Toolchain) -> None:
    """Raise UserError if the LLVM versions differ, because code would then differ by more than the policy."""
    version = ".".join(map(str, clang_version(stock_clang, "pass the stock clang as --stock-clang")))
    if version != release.llvm_version:
        raise UserError(
            f"{stock_clang} is clang {version}, the release clang {release.llvm_version}: "
            "their code would differ by more than the policy",
            f"pass a clang {release.llvm_version} as --stock-clang",
        )
