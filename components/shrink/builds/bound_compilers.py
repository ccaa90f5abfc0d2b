"""Lets a build that calls compilers by their absolute paths call others, which only its own processes find there.

Bubblewrap mounts them over the installed ones in a mount namespace, which static programs notice like any other; a
library in LD_PRELOAD would not reach those, and would meet fakeroot's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from components.core.compiler.clang_programs import clangxx
from components.core.projects.compiler_scripts import compiler_names, write_executable
from components.core.projects.cross_compilers import search_path
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup, write_tools
from components.platform.errors import UserError
from components.shrink.targets import NATIVE, Target

WRAPPER = "with-compilers"
"""Script that runs a command with the compilers of its directory in place of the installed ones."""
_BWRAP = "bwrap"
_TIMEOUT_S = 30.0
_KEPT = "installed"
"""Directory in which the clang that the compilers run is, wherever it is installed."""
_AS_CLANG = "as-clang"
"""Script that stands in for a clang under all its names."""


def write_bound_tools(
    directory: Path,
    place: Path,
    variant: BuildVariant,
    setup: BuildSetup,
    dropped: Sequence[str] = (),
    records: str = "",
    target: Target = NATIVE,
) -> dict[str, str]:
    """Write the tools of `write_tools`, and WRAPPER with them, and return the environment that names them.

    Args:
        place: where it will be.
        dropped: words that are left out of every command line of a compiler.
        records: directory in which the tools record what they run; "" for none.

    Raises:
        UserError: they cannot stand in for the installed compilers here.
    """
    clang = variant.clang.resolve()
    programs = _keep_clang(clang, directory, place)
    environment = write_tools(directory, variant, setup, dropped, programs, records, target.cross, target.native)
    if problem := _write_wrapper(directory, place, search_path(), clang, target):
        raise UserError(
            f"the compilers cannot stand in for the installed ones: {problem}",
            "let the build use $CC and $CXX, or install bubblewrap where it may make namespaces",
        )
    return environment


def _keep_clang(clang: Path, directory: Path, place: Path) -> tuple[Path, Path]:
    """Return where in a directory of compilers, which will be in `place`, a clang and its clang++ can be run although
    WRAPPER replaces them."""
    kept = Path(_KEPT, clang.parent.name)
    (directory / kept).mkdir(parents=True)
    programs = (clang, clangxx(clang))
    for program in programs:
        # where nothing is mounted
        write_executable(directory / kept / program.name, f'exec {shlex.quote(str(program))} "$@"\n')
    return place / kept / programs[0].name, place / kept / programs[1].name


def _write_wrapper(directory: Path, place: Path, path: str, clang: Path, target: Target) -> str:
    """Write WRAPPER, which replaces the compilers in `path`, and return why it cannot be used here, "" if it can.

    Args:
        clang: the clang that the compilers run.
    """
    replaced: dict[Path, str] = {}
    for prefix in [*([""] if target.native else []), *(one.prefix for one in target.cross)]:
        for names, own in zip(compiler_names(path, prefix), ("gcc", "g++"), strict=True):
            for name in names:
                for folder in path.split(os.pathsep):
                    program = Path(folder, name)
                    # A program of another name dispatches by it: ccache, or a wrapper of the user.
                    if program.is_file() and _is_compiler(installed := program.resolve(), prefix):
                        # One clang is both compilers, by the name that it is called by.
                        is_clang = "clang" in installed.name and not prefix
                        replaced[installed] = _AS_CLANG if is_clang else name if prefix else own
    if not replaced:
        return "no compiler is in PATH"
    if shutil.which(_BWRAP) is None:
        return "bubblewrap is not installed"
    if target.native:
        write_executable(directory / _AS_CLANG, _dispatch(place))
    binds = [f'"$here/{script}" {shlex.quote(str(target))}' for target, script in sorted(replaced.items())]
    if clang in replaced:
        binds.append(f'{shlex.quote(str(clang.parents[1]))} "$here/{_KEPT}"')
    wrapper = directory / WRAPPER
    mounts = " ".join(f"--ro-bind {bind}" for bind in binds)
    write_executable(
        wrapper, f'here=$(cd "${{0%/*}}" && pwd) || exit\nexec {_BWRAP} --dev-bind / / {mounts} -- env "$@"\n'
    )
    done = subprocess.run([wrapper, "true"], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    return "" if done.returncode == 0 else f"bubblewrap: {done.stderr.strip()}"


def _is_compiler(program: Path, prefix: str) -> bool:
    return any(program.name in names for names in compiler_names(str(program.parent), prefix))


def _dispatch(place: Path) -> str:
    """Return the text of a script that runs the compiler in `place` for the name that it is called by."""
    c, cxx = (shlex.quote(str(place / name)) for name in ("clang", "clang++"))
    return f"""\
case ${{0##*/}} in
*clang-cpp*) exec {c} --driver-mode=cpp "$@" ;;
*++*) exec {cxx} "$@" ;;
*) exec {c} "$@" ;;
esac
"""
