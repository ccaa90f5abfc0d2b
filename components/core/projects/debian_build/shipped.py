"""The binaries that a source package ships, built by one of two compilers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.core.compiler.clang_programs import clang_version
from components.core.projects.debian_build.package import DebianBuild, base_root, build_package
from components.core.projects.recipe import Recipe
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail

_SYSTEM = Path("/usr")


@contextmanager
def shipped_binaries(
    recipe: Recipe, clang: Path, flags: Sequence[str], link_flags: Sequence[str], cache: Path, jobs: int, log: Path
) -> Iterator[Path]:
    """Yield a directory with the ELF files of the package's binary packages, below each one's name.

    Args:
        clang: Debian's clang selects the same version in the root; any other is mounted there.
        flags, link_flags: appended to the package's own.

    Raises:
        UserError: the package cannot be built.
    """
    major, *_ = clang_version(clang, "pass another --clang")
    resolved = clang.resolve()
    toolchain = None if resolved.is_relative_to(_SYSTEM) else resolved.parent.parent
    build = DebianBuild(major, toolchain, compile_flags=tuple(flags), link_flags=tuple(link_flags), jobs=jobs)
    base = base_root(cache, major)
    say(f"building {recipe.name} by its own rules with {clang}")
    with build_package(recipe, base, build, "binary", log) as built:
        if built.failure:
            raise UserError(f"{recipe.name}: {built.failure}; the end of its log:\n{log_tail(log)}", f"see {log}")
        yield built.binaries
