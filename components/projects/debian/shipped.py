"""What a source package ships, as one of two compilers builds it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.console import UserError, say
from components.projects.debian.package import DebianBuild, base_root, build_package
from components.projects.process import log_tail
from components.projects.recipe import Recipe
from components.storage.orphans import make_held

_SYSTEM = Path("/usr")


@contextmanager
def shipped_binaries(
    recipe: Recipe, clang: Path, flags: Sequence[str], link_flags: Sequence[str], cache: Path, jobs: int, log: Path
) -> Iterator[Path]:
    """Yield a directory with the ELF files of the package's binary packages, below each one's name.

    Args:
        clang: Debian's own stands for the one of the same version in the root; another is shown there.
        flags, link_flags: behind the package's own.

    Raises:
        UserError: the package cannot be built.
    """
    base = base_root(cache, clang_major(clang))
    resolved = clang.resolve()
    toolchain = None if resolved.is_relative_to(_SYSTEM) else resolved.parent.parent
    build = DebianBuild(
        clang_major(clang), toolchain, compile_flags=tuple(flags), link_flags=tuple(link_flags), jobs=jobs
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    work, held = make_held(base.parent, f"build-{recipe.name}-", base.parent)
    try:
        say(f"building {recipe.name} by its own rules with {clang}")
        built = build_package(recipe.source, work, base, build, "binary", log)
        if built.failure:
            raise UserError(f"{recipe.name}: {built.failure}; the end of its log:\n{log_tail(log)}", f"see {log}")
        yield built.binaries
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(held)


def clang_major(clang: str | Path) -> int:
    """Return the major version of a clang. UserError if it does not tell."""
    try:
        command = [clang, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{clang} does not run: {error}", "pass another --clang") from None
    if (found := re.search(r"clang version (\d+)\.", said.stdout)) is None:
        raise UserError(f"{clang} is no clang: --version says {said.stdout[:80]!r}", "pass another --clang")
    return int(found[1])
