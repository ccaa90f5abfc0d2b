"""Builds programs under one row of flags: those of a recipe, or those of a user's own build."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from components.core.compiler.clang_programs import gnu_binutils, gnu_program, require_binutils
from components.core.compiler.source_language import Language
from components.core.projects.compiler_command import NotACompileError, compiler_of, installed_compilers
from components.core.projects.compiler_scripts import (
    compiler_names,
    write_binutils,
    write_bitcode_tools,
    write_compilers,
    write_editors,
)
from components.core.projects.cross_compilers import CrossCompiler, search_path, variables_for
from components.core.projects.flags.build_variants import BuildVariant, whole_build
from components.core.projects.flags.link_variants import LINK_VARIANTS
from components.core.projects.flags.section_sizes import measure
from components.core.projects.flags.types import RowSizes
from components.core.projects.link_recorder.recorder import LINKER
from components.core.projects.recipe import Recipe
from components.core.projects.source_tree import SourceTree
from components.platform.errors import UserError
from components.platform.processes.build_tools import find_causes, log_tail, run_logged
from components.platform.processes.output import capture, read_output

MISSING = "the build does not make it"
_LINKED_KINDS = ("EXE", "SHARED", "MODULE")
_LLD = "-fuse-ld=lld"
_LLD_PATH = "--ld-path="
_FAT_OBJECTS = "-ffat-lto-objects"
_LTO_OPTIONS = ("-Wl,-mllvm,", "-Wl,--load-pass-plugin=")
_CMAKE_ERROR = "CMake Error at "
"""Start of a line that the reason follows."""
_OPENMP = re.compile(r"\bOpenMP|\bomp\.h\b|-lomp\b")
_STRIP_TIMEOUT_S = 300.0
_NAMES_OF_TARGET = ("-dumpmachine", "-print-multiarch", "--print-multiarch")
_ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class MeasuredProgram:
    """Sizes of a program, and its language: c++ if it needs a C++ library at run time."""

    sizes: RowSizes
    language: Language


@dataclass(frozen=True)
class BuildSetup:
    """Where and with what all rows are built.

    Attributes:
        work: directory of the builds, each of which leaves it empty, so that all have the same paths.
        cache: directory of downloads and logs.
        binutils: LLVM's ar, nm, ranlib and strip, by these names.
    """

    work: Path
    cache: Path
    jobs: int
    binutils: dict[str, Path]

    @property
    def job_variables(self) -> dict[str, str]:
        """The environment that tells a build how many compiles to run in parallel."""
        return {"JOBS": str(self.jobs), "CMAKE_BUILD_PARALLEL_LEVEL": str(self.jobs)}

    def clear(self) -> None:
        """Remove the directory of the builds."""
        shutil.rmtree(self.work, ignore_errors=True)


class Project(Protocol):
    """Programs that can be built by any compiler with any flags."""

    @property
    def name(self) -> str:
        """Name of the project."""

    def build(self, variant: BuildVariant, setup: BuildSetup) -> dict[str, MeasuredProgram | str]:
        """Build the programs and return, by their names, the sizes of each, or why it was not built.

        Raises:
            UserError: no program was built.
        """


@dataclass(frozen=True)
class RecipeProject:
    """The programs of a recipe, its own libraries linked statically; made by `make_project`."""

    recipe: Recipe

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    def build(self, variant: BuildVariant, setup: BuildSetup) -> dict[str, MeasuredProgram | str]:
        recipe = self.recipe
        if recipe.cmake_options is not None:
            # Stock clang has none under these names, and CMake then takes those of any version.
            binutils = variant.binutils(setup.binutils)
            options = [(f"CMAKE_{name.upper()}", str(program)) for name, program in binutils.items()]
            if _LLD in variant.link_flags:
                # CMake's checks link programs without the flags of the build type, and objects of LTO need lld.
                options += [(f"CMAKE_{kind}_LINKER_FLAGS_INIT", _LLD) for kind in _LINKED_KINDS]
            recipe = replace(recipe, cmake_options=(*options, *recipe.cmake_options))
        with whole_build(recipe, variant, setup.work, setup.cache, setup.jobs) as (_, built):
            root = built.directory.resolve()
            programs = {str(path.relative_to(root)): path for path in built.binaries}
            measured = _measure_all(programs, setup.binutils["strip"])
            if not measured:
                raise UserError(f"{recipe.name} builds no program", "list programs as `binaries` in the recipe")
            return measured


def make_project(recipe: Recipe) -> RecipeProject | None:
    """Return the project of a recipe; None if the recipe names no program."""
    programs = LINK_VARIANTS["hidden"].apply(recipe)
    return RecipeProject(programs) if programs else None


@dataclass(frozen=True)
class OwnBuild:
    """A user's own build: a shell command that runs in a fresh copy of a source tree.

    Its compilers are scripts that append the flags to every command line, in CC and CXX and, under the names of clang
    and gcc, first in PATH.

    Attributes:
        command: the build.
        programs: paths that it makes, relative to the tree.
    """

    source: SourceTree
    command: str
    programs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the source directory."""
        return self.source.name

    def check(self) -> None:
        """Raise UserError if the tree does not exist or was configured in place, or a program is outside of it."""
        self.source.check(self.command)
        for program in self.programs:
            if Path(program).is_absolute() or ".." in Path(program).parts:
                raise UserError(
                    f"--program {program} is outside of the source tree", "pass a path relative to --source"
                )
            if (self.source.directory / program).is_dir():
                raise UserError(f"--program {program} is a directory", "pass the program in it")

    def build(self, variant: BuildVariant, setup: BuildSetup) -> dict[str, MeasuredProgram | str]:
        root = setup.work / self.name
        compilers = Path(tempfile.mkdtemp(prefix="mlgo-compilers-"))  # without the spaces that a tree's path may have
        log = setup.cache / "logs" / "flags" / f"{self.name}-{variant.title.replace(', ', '-').replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        try:
            # The unpublished output may be in the tree; a program of an earlier build would be measured in every row.
            self.source.copy(root / "source", (setup.work.parent,), self.programs)
            environment = write_tools(compilers, variant, setup)
            status = run_logged(["sh", "-e", "-c", self.command], root / "source", log, environment, of_user=True)
            if status != 0:
                raise UserError(f"{self.command} ends with status {status}:\n{log_tail(log)}", f"see {log}")
            programs = {name: root / "source" / name for name in self.programs if (root / "source" / name).is_file()}
            measured = _measure_all(programs, setup.binutils["strip"], self.programs)
            if not programs:
                raise UserError(f"the build does not make {', '.join(self.programs)}", f"see {log}")
            return measured
        finally:
            shutil.rmtree(root, ignore_errors=True)
            shutil.rmtree(compilers, ignore_errors=True)


def describe_failure(error: UserError) -> str:
    """Return the line of an error, which may hold the end of a log, that says what failed."""
    first, *lines = [line.strip() for line in error.problem.splitlines() if line.strip()] or ["failed"]
    reason = first
    if causes := find_causes(lines):
        reason = lines[causes[0]]
        if reason.startswith(_CMAKE_ERROR):
            reason = next(iter(lines[causes[0] + 1 :]), reason)
    openmp = ": clang's OpenMP is a package of its own, such as libomp-19-dev"
    return f"{reason}{openmp}" if _OPENMP.search(reason) else reason


def find_binutils(stock_clang: Path) -> dict[str, Path]:
    """Return LLVM's binutils; GNU's ar writes no index for objects of LTO. UserError if one is missing."""
    return require_binutils(stock_clang, "builds with LTO and the measurement need")


def write_tools(
    directory: Path,
    variant: BuildVariant,
    setup: BuildSetup,
    dropped: Sequence[str] = (),
    programs: tuple[Path, Path] | None = None,
    records: str = "",
    cross: Sequence[CrossCompiler] = (),
    native: bool = True,
) -> dict[str, str]:
    """Write compilers with the variant's flags, and LLVM's binutils, and return the environment that names them.

    Args:
        dropped: words that are left out of every command line of a compiler.
        programs: where the variant's clang and clang++ are when the tools run; None for where they are now.
        records: directory in which the tools record what they run, as long as it exists; "" for none.
        cross: the user's compilers for other processors, under whose names the variant compiles for these.
        native: whether it compiles for this machine, too, under the names of native compilers, CC and CXX.
    """
    path = search_path() if cross else os.environ.get("PATH", os.defpath)
    prefixes = [one.prefix for one in cross]
    if variant.gnu:
        binutils = _write_gnu_compilers(directory, variant, dropped, records, cross, native, path)
    else:
        binutils = variant.binutils(setup.binutils)
        variant = _with_own_lld(variant)
        _write_clangs(directory, variant, dropped, programs, records, cross, native, path)
    write_binutils(directory, binutils, path, prefixes, path if variant.gnu else "")
    lto = any(flag.startswith("-flto") for flag in variant.flags)
    if variant.gnu and lto and records:
        write_editors(directory, path, records, prefixes)
    lld = variant.clang.resolve().parent / LINKER
    if not variant.gnu and lto and lld.is_file():
        passed = [flag.removeprefix("-Wl,").split(",") for flag in variant.link_flags if flag.startswith(_LTO_OPTIONS)]
        write_bitcode_tools(directory, lld, list(itertools.chain(*passed)), path, records, prefixes)
    variables = {"PATH": f"{directory}:{path}"}
    if native:
        variables = _tool_variables(directory, ("gcc", "g++") if variant.gnu else ("clang", "clang++"), binutils, path)
    return variables | variables_for(directory, cross) | setup.job_variables


def _with_own_lld(variant: BuildVariant) -> BuildVariant:
    """Return clang with its own lld named by its path: a command's -B, such as rustc's, may name another one."""
    lld = variant.clang.resolve().parent / LINKER
    named = any(flag.startswith(_LLD_PATH) for flag in variant.flags)
    if named or _LLD not in variant.link_flags or not lld.is_file():
        return variant
    return replace(variant, link_flags=(*variant.link_flags, f"{_LLD_PATH}{lld}"))


def _write_clangs(
    directory: Path,
    variant: BuildVariant,
    dropped: Sequence[str],
    programs: tuple[Path, Path] | None,
    records: str,
    cross: Sequence[CrossCompiler],
    native: bool,
    path: str,
) -> None:
    """Write clang under the names of native and of cross compilers; for the arguments see `write_tools`."""
    flags = [*variant.flags, "-Qunused-arguments"]
    # Builds read the assembly that they ask for, in which gcc takes any text; with LTO it would be LLVM's IR.
    assembly = [*flags, "-fno-lto", "-fno-integrated-as"]
    dropped = (_FAT_OBJECTS, *dropped)  # which lld would link without LTO; its opposite does not cancel it
    clang, cxx = programs or (variant.clang, None)
    named: list[tuple[tuple[Sequence[str], Sequence[str]], Sequence[str], Path | None]] = []
    if native:
        named.append((compiler_names(path), (), next(installed_compilers(["cc", "gcc", "clang"], path), None)))
    named += [(compiler_names(path, one.prefix), one.clang_options, one.gcc) for one in cross]
    for names, options, own in named:
        write_compilers(
            directory,
            clang,
            flags,
            variant.link_flags,
            assembly,
            names,
            dropped,
            cxx=cxx,
            default_flags=variant.default_flags,
            records=records,
            options=options,
            answers=names_of_target(own) if own else None,
        )


@cache
def names_of_target(compiler: Path) -> dict[str, str]:
    """Return what a compiler prints for the options that ask for names of its target. Builds make directories of them,
    and clang's are others than gcc's: x86_64-pc-linux-gnu, not x86_64-linux-gnu."""
    answers = {}
    for option in _NAMES_OF_TARGET:
        answer = read_output([compiler, option], _ANSWER_TIMEOUT_S)
        if len(answer.splitlines()) == 1:
            answers[option] = answer.strip()
    return answers


def _write_gnu_compilers(
    directory: Path,
    variant: BuildVariant,
    dropped: Sequence[str],
    records: str,
    cross: Sequence[CrossCompiler],
    native: bool,
    path: str,
) -> dict[str, Path]:
    """Write gcc and g++ with the variant's flags, and return GNU's binutils, whose plugin reads objects of LTO; for the
    arguments see `write_tools`."""
    assembly = [*variant.flags, "-fno-lto"]
    named = [(variant.clang, compiler_names(path))] if native else []
    for gcc, own in [*named, *((one.gcc, compiler_names(path, one.prefix)) for one in cross)]:
        c, cxx = (tuple(name for name in names if "clang" not in name) for names in own)
        write_compilers(
            directory,
            gcc,
            variant.flags,
            variant.link_flags,
            assembly,
            (c, cxx),
            dropped,
            cxx=gnu_program(gcc, "g++") if cxx else gcc,
            records=records,
        )
    return gnu_binutils(variant.clang if native else cross[0].gcc)


def _tool_variables(directory: Path, compilers: tuple[str, str], binutils: Iterable[str], path: str) -> dict[str, str]:
    """Return the environment that names the tools of a directory, which come before those of a PATH."""
    return {
        "CC": shlex.join([str(directory / compilers[0]), *compiler_arguments("CC")]),
        "CXX": shlex.join([str(directory / compilers[1]), *compiler_arguments("CXX")]),
        **{name.upper(): str(directory / name) for name in binutils},
        "PATH": f"{directory}:{path}",
    }


def compiler_arguments(variable: str) -> Sequence[str]:
    """Return the options in the user's CC or CXX, such as those of CC="ccache gcc -std=gnu89".

    Raises:
        UserError: a quote is not closed, or there are options without a compiler.
    """
    try:
        words = shlex.split(os.environ.get(variable, ""))
        return compiler_of(words)[1] if words else ()
    except ValueError as error:
        problem = f"cannot be read: {error}"
    except NotACompileError:
        problem = "names no compiler"
    raise UserError(f"the environment variable {variable} {problem}", "correct it")


def _measure_all(paths: dict[str, Path], strip: Path, expected: Sequence[str] = ()) -> dict[str, MeasuredProgram | str]:
    """Measure the programs of a build; other files than programs are left out, or said to be none where expected."""
    measured: dict[str, MeasuredProgram | str] = dict.fromkeys(expected, MISSING)
    for name, path in paths.items():
        try:
            binary = measure(path)
        except UserError as error:
            measured[name] = error.problem
            continue
        if binary.kind == "program" and binary.language is not None:
            sizes = binary.sizes
            row = RowSizes(
                stripped=len(stripped_content(path, strip)),
                llvm_size_text=sizes.llvm_size_text,
                text=sizes.text,
                unwind=sizes.eh_frame + sizes.gcc_except_table,
                loaded=sizes.total,
            )
            measured[name] = MeasuredProgram(row, binary.language)
        elif expected:
            measured[name] = f"it is no program but {'an' if binary.kind == 'object' else 'a'} {binary.kind}"
    return measured


def stripped_content(path: Path, strip: Path) -> bytes:
    """Return a program as users ship it: without symbols and debug data. UserError if neither can strip it.

    LLVM's strip refuses static programs that GNU ld links with glibc, whose .rela.plt names .symtab; GNU's takes them.

    Args:
        strip: LLVM's strip.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-strip-") as directory:
        copy = Path(directory) / "stripped"
        problem = ""
        for program in (strip, shutil.which("strip")):
            if program is None:
                continue
            done = capture([program, "-o", copy, path], _STRIP_TIMEOUT_S)
            if done.returncode == 0:
                return copy.read_bytes()
            problem = problem or done.stderr.strip()
        raise UserError(f"{path.name} cannot be stripped: {problem[-200:]}", "see how it is linked")
