"""Builds a project with a given compiler and flags: objects for a corpus, or whole programs as users ship them."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.compiler.clang_programs import cxx_driver, gnu_binutils, is_gcc, llvm_binutils
from components.core.projects.compile_commands import DATABASE, find_output
from components.core.projects.flags.linked_files import is_linked_or_archive
from components.core.projects.recipe import Recipe
from components.core.projects.recipe_document import Target
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail, run_logged
from components.platform.storage.input_files import read_json

LOG = "build.log"
BUILD_TYPE = "MinSizeRel"
_BUILT = "built_commands.json"
_NINJA_STATUS = re.compile(r"^\[(\d+)/(\d+)\] ")
_LINKED_KINDS = ("EXE", "SHARED", "MODULE")
_INTERRUPTED = (130, -2, -15)
"""Exit statuses of ninja when it, or a compiler it runs, gets SIGINT or SIGTERM."""

_LAUNCHER = """#!/bin/sh
# Spells paths below the build directory, in which the compiler runs, relative to it.
root={root}/
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    "$root"*) argument=${{1#"$root"}} ;;
    -I"$root"*) argument=-I${{1#-I"$root"}} ;;
    *) argument=$1 ;;
  esac
  shift
  set -- "$@" "$argument"
  left=$((left - 1))
done
exec "$@"
"""
"""CMake spells source and include directories with absolute paths. clang records them in the bitcode (source_filename)
and in its command line, so the content hash of a module would depend on its build directory."""

OnProgress = Callable[[int, int], None]
"""Called with the number of completed build steps and their total."""


@contextmanager
def build_progress(title: str) -> Iterator[OnProgress]:
    """Yield a function that shows the progress of a build, from its first step on, with which ninja reports the
    total."""
    with ExitStack() as stack:
        bar: Progress | None = None

        def show(done: int, total: int) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(Progress(title, total))
            bar.advance(max(0, done - bar.done))

        yield show


@dataclass(frozen=True)
class BuiltProject:
    """The results of a build in `directory`.

    compile_commands: the compile commands of the recipe's objects, without the excluded ones.
    binaries: the programs and libraries that match the recipe's globs, symbolic links resolved, each once, sorted.
    failed: outputs that the build tool could not build; details in `log`.
    """

    directory: Path
    compile_commands: Path
    binaries: tuple[Path, ...]
    failed: tuple[str, ...]
    log: Path


def build_project(
    recipe: Recipe,
    source_dir: Path,
    build_dir: Path,
    clang: Path,
    cflags: list[str],
    jobs: int,
    progress: OnProgress | None = None,
    objects_only: bool = False,
    log: Path | None = None,
    ldflags: Sequence[str] = (),
) -> BuiltProject:
    """Build a project; configure it first if it is not configured yet.

    Args:
        source_dir: source directory from `fetch_recipe`. Commands run there and write their objects there.
        build_dir: CMake's build directory. A source directory inside it keeps paths in commands relative, so that
            modules do not depend on the build's location.
        clang: the C compiler, a clang or gcc; the C++ compiler is taken from the same directory.
        cflags: flags for every C and C++ compile ("-Oz", "-mllvm", "-enable-ml-inliner=release"); they follow
            and override the project's own.
        objects_only: compile only the recipe's objects, link nothing.
        log: file for the build tools' output, default build.log in the build directory.
        ldflags: flags of clang for every link of a program or shared library, after the project's own.

    Raises `UserError` if configuring fails, or if a whole build makes none of the recipe's binaries.
    An object that fails does not stop the others; it is listed in `failed`.
    """
    log = log or build_dir / LOG
    if recipe.commands is not None:
        return _run_commands(recipe, source_dir, build_dir, clang, cflags, jobs, objects_only, log, ldflags)
    if not (build_dir / "build.ninja").exists():
        configure_project(recipe, source_dir, build_dir, clang, cflags, log, ldflags)
    entries = _entries(recipe, build_dir)
    targets = (
        [str(find_output(entry, build_dir / DATABASE)) for entry in entries] if objects_only else list(recipe.targets)
    )
    failed: list[str] = []

    def watch(line: str) -> None:
        if match := _NINJA_STATUS.match(line):
            if progress is not None:
                # ninja first counts the steps that update its own files, then restarts the count for the real ones.
                progress(int(match[1]), max(int(match[2]), len(targets)))
        elif line.startswith("FAILED: "):
            failed.append(line.removeprefix("FAILED: ").strip())

    # -k 0: continue after a file that does not compile.
    command = ["ninja", f"-j{jobs}", "-k0", *targets]
    status = run_logged(command, build_dir, log, {"NINJA_STATUS": "[%f/%t] "}, watch)
    if status in _INTERRUPTED:
        raise UserError(f"the build of {recipe.name} was interrupted: ninja was stopped by a signal", "run it again")
    if status != 0 and not failed:
        raise _failure(recipe, "cannot be built", log)
    return _finish(recipe, build_dir, entries, failed, log, objects_only)


def configure_project(
    recipe: Recipe,
    source_dir: Path,
    build_dir: Path,
    clang: Path,
    cflags: list[str],
    log: Path,
    ldflags: Sequence[str],
) -> None:
    """Prepare the source and run CMake; do nothing for recipes with commands. UserError has the end of the output."""
    if recipe.commands is not None:
        return
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is missing, it builds {recipe.name}", "sudo apt-get install cmake ninja-build")
    if recipe.target:
        require_libraries(recipe, clang)
    build_dir.mkdir(parents=True, exist_ok=True)
    _run_shell(recipe, recipe.prepare, source_dir, log, "cannot be prepared", {})
    flags = shlex.join(_all_flags(recipe, source_dir, build_dir, clang, cflags))
    launcher = build_dir.absolute() / "relative-paths"
    launcher.write_text(_LAUNCHER.format(root=shlex.quote(str(build_dir.absolute()))))
    launcher.chmod(0o755)
    link_flags = shlex.join(_link_flags(recipe, ldflags))
    definitions = {
        "CMAKE_C_COMPILER": str(clang),
        "CMAKE_CXX_COMPILER": str(cxx_driver(clang)),
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        # The flags of the build type come after those that the project appends to CMAKE_CXX_FLAGS.
        "CMAKE_BUILD_TYPE": BUILD_TYPE,
        f"CMAKE_C_FLAGS_{BUILD_TYPE.upper()}": flags,
        f"CMAKE_CXX_FLAGS_{BUILD_TYPE.upper()}": flags,
        **{f"CMAKE_{kind}_LINKER_FLAGS_{BUILD_TYPE.upper()}": link_flags for kind in _LINKED_KINDS},
        # Our launcher replaces any compiler cache, which would return objects with an earlier build's command line.
        **{f"CMAKE_{language}_COMPILER_LAUNCHER": str(launcher) for language in ("C", "CXX")},
        # The user's package registry must not decide what a project finds.
        "CMAKE_FIND_USE_PACKAGE_REGISTRY": "OFF",
        **(_cross_definitions(recipe.target) if recipe.target else {}),
        **{key: _expand(value, recipe, source_dir) for key, value in recipe.cmake_options or ()},
    }
    if recipe.target:
        # Old projects check the compiler without the linker's flags.
        for flags in ("CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS"):
            definitions[flags] = f"-Wno-unused-command-line-argument -fuse-ld=lld {definitions.get(flags, '')}".rstrip()
    command = ["cmake", "-GNinja", "-Wno-dev", "-S", str(source_dir / recipe.directory), "-B", str(build_dir)]
    command += [f"-D{key}={value}" for key, value in definitions.items()]
    environment = dict.fromkeys(("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"), "")
    if run_logged(command, build_dir, log, environment) != 0:
        raise _failure(recipe, "cannot be configured", log)


def _run_commands(
    recipe: Recipe,
    source_dir: Path,
    build_dir: Path,
    clang: Path,
    cflags: list[str],
    jobs: int,
    objects_only: bool,
    log: Path,
    ldflags: Sequence[str],
) -> BuiltProject:
    if recipe.target:
        require_libraries(recipe, clang)
    build_dir.mkdir(parents=True, exist_ok=True)
    flags = shlex.join(_all_flags(recipe, source_dir, build_dir, clang, cflags))
    binutils = gnu_binutils(clang) if is_gcc(clang) else llvm_binutils(clang)
    environment = {
        "CC": str(clang),
        "CXX": str(cxx_driver(clang)),
        "CFLAGS": flags,
        "CXXFLAGS": flags,
        "LDFLAGS": shlex.join([*_target_flags(recipe), *_link_flags(recipe, ldflags)]),
        "JOBS": str(jobs),
        **{name.upper(): str(path) for name, path in binutils.items()},
    }
    lines = recipe.prepare + (recipe.commands or ())
    _run_shell(recipe, lines, source_dir, log, "cannot be built", environment)
    if not (source_dir / DATABASE).exists():
        objects = [str(path.relative_to(source_dir)) for path in sorted(source_dir.rglob("*.o"))]
        entries = [{"directory": str(source_dir), "file": name, "output": name} for name in objects]
        (source_dir / DATABASE).write_text(json.dumps(entries, indent=1))
    return _finish(recipe, source_dir, _entries(recipe, source_dir), [], log, objects_only)


def _run_shell(
    recipe: Recipe, lines: tuple[str, ...], source_dir: Path, log: Path, problem: str, environment: dict[str, str]
) -> None:
    for line in lines:
        expanded = _expand(line, recipe, source_dir)
        if run_logged(["sh", "-e", "-c", expanded], source_dir, log, environment) != 0:
            raise _failure(recipe, f"{problem}: {expanded}", log)


def _all_flags(recipe: Recipe, source_dir: Path, build_dir: Path, compiler: Path, cflags: list[str]) -> list[str]:
    # Keep the build's path out of debug information and, through __FILE__, out of the code and its size.
    inside = recipe.cmake_options is not None and source_dir.is_relative_to(build_dir)
    path_flag = f"-ffile-prefix-map={source_dir}/="
    if inside and not is_gcc(compiler):
        path_flag = "-ffile-compilation-dir=."
    return [*_target_flags(recipe), "-DNDEBUG", path_flag, *recipe.cflags, *cflags]


def _target_flags(recipe: Recipe) -> list[str]:
    return [*recipe.target.flags(), *recipe.target.cflags] if recipe.target else []


def _link_flags(recipe: Recipe, ldflags: Sequence[str]) -> list[str]:
    """Return the flags of a link. This machine's linker may not know another processor; lld knows all."""
    return ["-fuse-ld=lld", *recipe.target.ldflags, *ldflags] if recipe.target else list(ldflags)


def require_libraries(recipe: Recipe, clang: Path) -> None:
    """Check that a clang generates code for a recipe's target, and finds the C library's headers if it has a system.

    Raises:
        UserError: it does not; the remedy says what to install.
    """
    assert recipe.target is not None
    target = recipe.target
    text = "#include <stdlib.h>\n" if target.has_system else ""
    flags = [*target.flags(), *target.cflags, *recipe.cflags]
    # An error for C: flags that only C++ has.
    language = "c++" if any("c++" in flag for flag in flags) else "c"
    command: list[str | Path] = [clang, *flags, "-x", language, "-c", "-", "-o", os.devnull]
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return
    error = next((line for line in done.stderr.splitlines() if "error:" in line), done.stderr[:200])
    remedy = "pass a clang with this code generator (clang --print-targets)"
    if target.has_system:
        remedy = (
            f"install its cross libraries (Debian: libstdc++-12-dev-ARCHITECTURE-cross), or name a directory with "
            f"headers and libraries as the recipe's target.sysroot; if it has none of this processor, {remedy}"
        )
    raise UserError(f"{clang} does not compile for {target.triple}: {error}", remedy)


def _cross_definitions(target: Target) -> dict[str, str]:
    """Return the CMake variables of a cross build."""
    definitions = {
        "CMAKE_SYSTEM_NAME": "Linux" if target.has_system else "Generic",
        "CMAKE_SYSTEM_PROCESSOR": target.processor,
        "CMAKE_C_COMPILER_TARGET": target.triple,
        "CMAKE_CXX_COMPILER_TARGET": target.triple,
        # Debian's linker is this machine's.
        **{f"CMAKE_{kind}_LINKER_FLAGS_INIT": "-fuse-ld=lld" for kind in _LINKED_KINDS},
        # Packages of this machine are for this machine.
        **{f"CMAKE_FIND_ROOT_PATH_MODE_{kind}": "ONLY" for kind in ("LIBRARY", "INCLUDE", "PACKAGE")},
        "CMAKE_FIND_ROOT_PATH": target.sysroot or f"/usr/{target.triple}",
    }
    if target.sysroot:
        definitions["CMAKE_SYSROOT"] = target.sysroot
    if not target.has_system:
        definitions["CMAKE_TRY_COMPILE_TARGET_TYPE"] = "STATIC_LIBRARY"
    return definitions


def _expand(text: str, recipe: Recipe, source_dir: Path) -> str:
    """Replace {source} and {<required source>} by their absolute directories."""
    for name in ("source", *(name for name, _ in recipe.requires)):
        directory = source_dir if name == "source" else source_dir.parent / name
        text = text.replace("{" + name + "}", str(directory.absolute()))
    return text


def _entries(recipe: Recipe, directory: Path) -> list[dict[str, Any]]:
    """Return the compile commands without excluded objects. Raises `UserError` if there are none."""
    database = directory / DATABASE
    entries: list[dict[str, Any]] = read_json(database, f"see how {recipe.name} is built")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{database} is not a compilation database", f"see how {recipe.name} is built")
    chosen = [entry for entry in entries if (name := find_output(entry, database)) and not is_excluded(name, recipe)]
    if not chosen:
        raise UserError(
            f"{recipe.name} compiles nothing: {len(entries)} compile commands, {len(recipe.exclude)} exclusions",
            "correct cmake options and exclude in its recipe",
        )
    return chosen


def is_excluded(name: str, recipe: Recipe) -> bool:
    """Return whether the recipe excludes an object. The last matching glob decides, as in a .gitignore: "!" cancels
    an exclusion."""
    excluded = False
    for glob in recipe.exclude:
        if fnmatch.fnmatch(name, glob.removeprefix("!")):
            excluded = not glob.startswith("!")
    return excluded


def _finish(
    recipe: Recipe, directory: Path, entries: list[dict[str, Any]], failed: list[str], log: Path, objects_only: bool
) -> BuiltProject:
    commands = directory / _BUILT
    commands.write_text(json.dumps(entries, indent=1), encoding="utf-8")
    globs = () if objects_only else recipe.binaries
    candidates = {path.resolve() for glob in globs for path in directory.glob(glob) if path.is_file()}
    binaries = tuple(sorted(path for path in candidates if is_linked_or_archive(path)))
    if globs and not binaries:
        raise _failure(recipe, f"left none of its binaries ({', '.join(recipe.binaries)})", log)
    return BuiltProject(directory, commands, binaries, tuple(failed), log)


def _failure(recipe: Recipe, what: str, log: Path) -> UserError:
    return UserError(
        f"{recipe.name} {what}; the end of its log:\n{log_tail(log)}",
        f"correct its recipe or install what it misses ({os.fspath(log)} has the whole log)",
    )
