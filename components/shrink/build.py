"""Builds a copy of the user's code by one set of compilers, and measures what the build linked."""

from __future__ import annotations

import lzma
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from components.core.projects.compiler_command import lacking_options
from components.core.projects.cross_compilers import CrossCompiler, native_machine
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup, stripped_content, write_tools
from components.core.projects.flags.linked_files import copy_links, find_binaries, is_archive
from components.core.projects.flags.section_sizes import MeasuredBinary, measure
from components.core.projects.flags.types import Kind
from components.core.projects.runpath import needed_libraries, relocate_runpath
from components.core.projects.source_tree import SourceTree, is_cargo_directory, remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import CommandTimeout, log_tail, read_end, run_logged
from components.shrink.bazel import confine_bazel, is_workspace
from components.shrink.bound_compilers import WRAPPER, write_bound_tools
from components.shrink.differences.configuration import defined_names
from components.shrink.differences.find import Differences, FinishedBuild, find_differences
from components.shrink.differences.linked_files import exported_symbols, made_by_clang
from components.shrink.differences.records import Call, read_calls
from components.shrink.failures import failed_build_remedy
from components.shrink.targets import NATIVE, Target, emulator, is_registered
from components.shrink.types import FileSizes

RECORDS = "records"
_LINKER_DEFINED = frozenset({"_init", "_fini", "__bss_start", "_edata", "_end", "__end__", "_start"})
"""Symbols that GNU ld exports and lld does not, or that are the start of a program."""
_START_FILE_EXPORTS = {243: frozenset({"main"})}
"""Instruction set (e_machine of ELF) -> symbols that GNU ld exports because the C library's start files use them."""
_COMPILERS_LIBRARIES = tuple("libc. libm. libmvec. libgcc_s. libgomp. libstdc++. libatomic. libssp. ld-linux".split())
"""Shared libraries of which compilers decide whether a program needs them."""
_MAX_ATTEMPTS = 4
_TRACE = "PS4='$ '; set -x; "
"""Start of a script whose shell says each command, as the log does."""
_TRACED = re.compile(r"\$+ (.+)")
_BUILD_SCRIPT = re.compile(r"build[-_]script[-_].*")
_PROC_MACRO = re.compile(rb"rustc_proc_macro_decls_[0-9a-f]+")
_GNU_OPENMP, _OPENMP = "libgomp.so.1", "libomp.so.5"
_VARIANT = re.compile(r"(C[1-5]|D[0-5])(?=E|I)")
"""Constructors and destructors of the Itanium C++ ABI: gcc also exports those that no other module can need."""


@dataclass(frozen=True)
class LinkedFile:
    """A program or library that a build made.

    Attributes:
        exports: symbols that other modules can find in it, functions alone for a program.
        weak: the weak ones of a shared library, copies of inline functions mostly, which do not count as exports.
        unique: its symbols of which a process has one copy, whoever opens the library (STB_GNU_UNIQUE).
        libraries: the shared libraries that it needs.
        machine: instruction set (e_machine of ELF); None for a static library.
    """

    kind: Kind
    sizes: FileSizes
    exports: frozenset[str]
    weak: frozenset[str] = frozenset()
    unique: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    machine: int | None = None


@dataclass(frozen=True)
class Compilers:
    """The compilers that a build uses in place of the user's.

    Attributes:
        variant: compilers and flags.
        bound: whether the build finds them in place of the installed ones, too.
        dropped: options of the build that they do not have, left out.
        records: whether they record what they run, for `differences`. Clang's own command lines then name a file that
            differs from call to call.
        add_tools: is called with their directory, and writes more programs into it.
        target: what they compile for.
        links: whether the links of the build are kept, so that they can be repeated.
    """

    variant: BuildVariant
    bound: bool = False
    dropped: tuple[str, ...] = ()
    records: bool = True
    add_tools: Callable[[Path], None] | None = None
    target: Target = NATIVE
    links: bool = False

    def write(self, directory: Path, setup: BuildSetup, place: Path | None = None) -> dict[str, str]:
        """Write them into a new directory, and return the environment that names them.

        Args:
            place: where the directory will be; None for where it is, with the directory RECORDS, where the compilers
                record what they run.

        Raises:
            UserError: `bound`, and that is not possible here.
        """
        directory.mkdir()
        if self.bound and self.variant.gnu:
            raise UserError(
                "gcc cannot stand in for itself where the build calls it by its path", "let the build use $CC and $CXX"
            )
        records = ""
        if place is None and self.records:
            (directory / RECORDS).mkdir()
            records = str(directory / RECORDS)
        if self.bound:
            environment = write_bound_tools(
                directory, place or directory, self.variant, setup, self.dropped, records, self.target
            )
        else:
            cross, native = self.target.cross, self.target.native
            environment = write_tools(
                directory, self.variant, setup, self.dropped, records=records, cross=cross, native=native
            )
        if self.add_tools is not None:
            self.add_tools(directory)
        return environment


@dataclass(frozen=True)
class BuiltFiles:
    """What a build linked.

    Attributes:
        files: by paths relative to the source tree.
        compilers: the compilers of the build; None for the user's own.
        unmoved: files that search for libraries in the directory of the build, which is gone.
        differences: what differs from the user's own build.
        by_clang: whether the compiler of the user's own build is a clang.
        definitions: macros that the build's configuration defines.
    """

    files: Mapping[str, LinkedFile]
    compilers: Compilers | None = None
    unmoved: tuple[str, ...] = ()
    differences: Differences = field(default_factory=Differences)
    by_clang: bool = False
    definitions: frozenset[str] = frozenset()

    @property
    def sizes(self) -> FileSizes:
        """The sizes of all files in sum."""
        return sum((file.sizes for file in self.files.values()), FileSizes())

    @property
    def dropped(self) -> tuple[str, ...]:
        """Options of the build that its compilers do not have."""
        return self.compilers.dropped if self.compilers is not None else ()

    def lost_abilities(self, other: BuiltFiles) -> str:
        """Return what the first file that another build lacks, or that exports less or has no threads of OpenMP there,
        has lost; "" if there is none."""
        for name, file in self.files.items():
            made = other.files.get(name)
            if made is None or made.kind != file.kind:
                return f"{name} is not made"
            if _GNU_OPENMP in file.libraries and not made.libraries & {_GNU_OPENMP, _OPENMP}:
                return f"{name} no longer uses OpenMP: install libomp-19-dev, build the release clang again"
            if lost := sorted(file.exports - made.exports):
                more = f" and {len(lost) - 1} more symbols" if len(lost) > 1 else ""
                return f"{name} no longer exports {lost[0]}{more}"
        return ""

    def unchanged(self, other: BuiltFiles) -> list[str]:
        """Return the files that have the same sizes in both builds, as one compiler makes them; contents may have
        times."""

        def bytes_of(file: LinkedFile) -> tuple[int, int]:
            return file.sizes.stripped, file.sizes.text

        files = {name: other.files[name] for name in self.files if name in other.files}
        return sorted(name for name, file in files.items() if bytes_of(file) == bytes_of(self.files[name]))

    def is_like(self, other: BuiltFiles) -> bool:
        """Return whether both builds made files of the same sizes."""
        return self.files.keys() == other.files.keys() and len(self.unchanged(other)) == len(self.files)

    def weaker_exports(self, other: BuiltFiles) -> tuple[int, int]:
        """Return how many symbols of shared libraries another build does not export because they are weak, and how many
        have more than one copy in a process by it."""
        pairs = [(file, other.files[name]) for name, file in self.files.items()]
        lost = sum(len(file.weak - made.weak - made.exports) for file, made in pairs)
        return lost, sum(len(file.unique - made.unique) for file, made in pairs)

    def gained_exports(self, other: BuiltFiles) -> dict[str, int]:
        """Return how many symbols each shared library exports by another build and not by this one, where they are
        some: a build may give its list of exports to gcc only."""
        return {
            name: number
            for name, file in self.files.items()
            if file.kind == "shared library" and (number := len(other.files[name].exports - file.exports - file.weak))
        }

    def lost_libraries(self, other: BuiltFiles) -> list[str]:
        """Return the shared libraries that a file of this build needs and no file of another, but for those of
        compilers."""
        needed, by_other = ({name for file in one.files.values() for name in file.libraries} for one in (self, other))
        return sorted(name for name in needed - by_other if not name.startswith(_COMPILERS_LIBRARIES))


@dataclass(frozen=True)
class UserBuild:
    """The user's build.

    Attributes:
        source: the tree that it runs in.
        command: the program and its arguments.
    """

    source: SourceTree
    command: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The command as users type it into a shell."""
        shell = self.command[:2] == ("sh", "-c") and len(self.command) == 3
        return self.command[2] if shell else shlex.join(self.command)


@dataclass(frozen=True)
class BuiltTree:
    """A build that has ended, in its tree.

    Attributes:
        root: the copy of the user's tree.
        tools: directory of the compilers.
        runner: program that runs a command with them.
        environment: variables of the build and its checks.
        log: where they write.
        kinds: kinds of the linked files by their paths relative to the root.
        seconds: wall time of the build.
        emulators: commands that run the programs of other processors, by their paths.
        foreign: why programs of other processors cannot run; "" if they can, or if there are none.
        links: commands that link, with their working directories, if they were to be kept.
    """

    root: Path
    tools: Path
    runner: str
    environment: Mapping[str, str]
    log: Path
    kinds: Mapping[str, Kind]
    command: str
    seconds: float
    emulators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: str = ""
    links: tuple[Call, ...] = ()

    @property
    def runs_tests(self) -> bool:
        """Whether tests of the build can run its programs."""
        return not self.foreign and all(map(is_registered, self.emulators.values()))

    @property
    def can_relink(self) -> bool:
        """Whether one of the links makes each linked file."""
        outputs = [os.path.realpath(call.output) for call in self.links]
        return all(outputs.count(os.path.realpath(self.root / name)) == 1 for name in self.kinds)

    def relink(self, options: Sequence[str], timeout_s: float | None) -> None:
        """Repeat the links of the linked files with more options. UserError if one fails or takes too long."""
        made = {os.path.realpath(self.root / name) for name in self.kinds}
        for call in self.links:
            if os.path.realpath(call.output) not in made:
                continue
            command = [self.runner, str(self.tools / call.program), *call.words, *options]
            with _naming_the_limit(f"the link of {call.output}", timeout_s):
                status = run_logged(
                    command, Path(call.directory), self.log, self.environment, timeout_s=timeout_s, of_user=True
                )
            if status != 0:
                raise UserError(f"the link of {call.output} ends with status {status}", f"see {self.log}")

    def run(self, script: str, timeout_s: float | None, trace: bool = False) -> tuple[int, str, str]:
        """Run a shell script; return its exit status, its output, and, with `trace`, its last command.

        Raises:
            UserError: it exceeds the time limit.
        """
        last, start = "", self.log.stat().st_size if self.log.exists() else 0

        def note(line: str) -> None:
            nonlocal last
            if match := _TRACED.match(line):
                last = match[1]

        command = [self.runner, "sh", "-e", "-c", f"{_TRACE if trace else ''}{script}"]
        with _naming_the_limit(script, timeout_s):
            status = run_logged(
                command, self.root, self.log, self.environment, note if trace else None, timeout_s, of_user=True
            )
        with self.log.open("rb") as text:
            text.seek(start)
            return status, text.read().decode("utf-8", "replace"), last


@contextmanager
def _naming_the_limit(subject: str, timeout_s: float | None) -> Iterator[None]:
    """Turn the time-out of a command into a UserError about `subject`."""
    try:
        yield
    except CommandTimeout:
        raise UserError(
            f"{subject} did not end in {timeout_s:.0f} s", "pass --check-timeout SECONDS if it takes longer"
        ) from None


@dataclass(frozen=True)
class Builder:
    """Runs the user's build in fresh copies of its source.

    Attributes:
        omitted: directories that are not copied.
        clang: a clang that looks into the sources of builds by gcc.
        compress: whether linked files are also measured compressed.
        own: files of the user's own build, with which those of the others are compared; None until there are some.
        own_by_clang: whether its compiler is a clang.
        target: what the build compiles for.
    """

    build: UserBuild
    setup: BuildSetup
    omitted: tuple[Path, ...]
    clang: Path
    compress: bool = False
    own: Path | None = None
    own_by_clang: bool = False
    target: Target = NATIVE

    def run(
        self,
        title: str,
        compilers: Compilers | None,
        kept: Path,
        then: Callable[[BuiltTree], None],
        timeout_s: float | None = None,
    ) -> BuiltFiles:
        """Build, and keep the linked files.

        A build that fails because clang lacks options of gcc is repeated without them.

        Args:
            title: name of the build, for messages and the name of the log.
            compilers: compilers of the build; None for the user's own.
            kept: new directory for the linked files.
            then: is called with the built tree before it is removed.
            timeout_s: time limit of the build.

        Raises:
            UserError: the build fails, takes too long, links nothing, or `then` fails; or the compilers cannot be bound
                here.
        """
        log = self.setup.cache / "logs" / "shrink" / f"{self.build.source.unique_name}-{title}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        attempts = 0
        while True:
            try:
                return self._run_once(compilers, kept, log, then, timeout_s)
            except UserError:
                attempts += 1
                if compilers is None or attempts == _MAX_ATTEMPTS or not log.is_file():
                    raise
                lacking = [word for word in lacking_options(read_end(log)) if word not in compilers.dropped]
                if not lacking:
                    raise
                say(f"{title}: again without options that clang does not have: {' '.join(lacking)}")
                compilers = replace(compilers, dropped=(*compilers.dropped, *lacking))

    def keep(self, tree: BuiltTree, kept: Path) -> BuiltFiles:
        others = {path: _identity(path) for name, path in find_binaries(tree.root) if name not in tree.kinds}
        return BuiltFiles(self._keep(tree.root, kept, others)[0])

    def _run_once(
        self,
        compilers: Compilers | None,
        kept: Path,
        log: Path,
        then: Callable[[BuiltTree], None],
        timeout_s: float | None,
    ) -> BuiltFiles:
        build = self.build
        root, tools = self.setup.work / build.source.name, self.setup.work / ".compilers"
        log.unlink(missing_ok=True)
        environment = self.setup.job_variables
        try:
            build.source.copy(root, self.omitted)
            if is_workspace(root):
                confine_bazel(root, kept.name)
            runner = "/usr/bin/env"
            if compilers is not None:
                environment |= compilers.write(tools, self.setup)
                runner = str(tools / WRAPPER) if compilers.bound else runner
            before = {path: _identity(path) for _, path in find_binaries(root)}
            started = time.monotonic()
            with _naming_the_limit(f"the build, {build.shown},", timeout_s):
                status = run_logged([runner, *build.command], root, log, environment, timeout_s=timeout_s, of_user=True)
            seconds = time.monotonic() - started
            if status != 0:
                raise UserError(
                    f"the build, {build.shown}, ends with status {status}:\n{log_tail(log)}",
                    failed_build_remedy(build.source, root, log) if compilers is None else f"see {log}",
                )
            files, unmoved = self._keep(root, kept, before)
            if not files and before:
                raise UserError(
                    f"{build.shown} builds nothing: the tree has programs or libraries of an earlier build, such as "
                    f"{next(iter(before)).relative_to(root)}",
                    "name the command that builds them, clean the tree, or leave them out with --exclude",
                )
            if not files:
                raise UserError(
                    f"{build.shown} makes no program and no library",
                    f"name the command that links them, configure step included ({log} has its output)",
                )
            differences, links = Differences(), tuple[Call, ...]()
            if compilers is not None and compilers.records:
                if compilers.links:
                    links = tuple(call for call in read_calls(tools / RECORDS, compilers.dropped) if call.links)
                if self.own is not None:
                    differences = self._differences(compilers, self.own, root, kept, tools / RECORDS)
                shutil.rmtree(tools / RECORDS)  # so that checks record nothing
            by_clang = compilers is None and made_by_clang(kept, root)
            definitions = defined_names(root, build.source.directory, log)
            kinds = {name: file.kind for name, file in files.items()}
            if not differences.refused:  # which says more than a check that fails by it
                emulators, foreign = _emulators(kept, files, self.target.known)
                for _, *options in emulators.values():
                    environment["QEMU_LD_PREFIX"] = options[-1] if options else ""
                then(
                    BuiltTree(
                        root, tools, runner, environment, log, kinds, build.shown, seconds, emulators, foreign, links
                    )
                )
            return BuiltFiles(files, compilers, unmoved, differences, by_clang, definitions)
        except UserError:
            remove_tree(kept)
            raise
        finally:
            for directory in (root, tools):
                remove_tree(directory)

    def _keep(
        self, root: Path, kept: Path, before: Mapping[Path, tuple[int, int]]
    ) -> tuple[dict[str, LinkedFile], tuple[str, ...]]:
        """Copy the linked files that the build made, or the static libraries if there are only these, and measure them.

        Files for other instruction sets than those of the target, if there are such, are tools of the build.

        Args:
            before: the binaries that the tree had before the build.

        Returns:
            The files, and the names of those that still search for libraries in the build's directory.
        """
        binutils, machines = self.setup.binutils, self.target.machines
        built = {name: path for name, path in find_binaries(root) if before.get(path) != _identity(path)}
        binaries, links = _without_links(built)
        linked_files = {name: path for name, path in binaries.items() if not is_archive(path)}
        if products := {name: path for name, path in linked_files.items() if not _is_tool_of_cargo(root, path)}:
            linked_files = products
        measured: dict[str, tuple[Path, MeasuredBinary, FileSizes]] = {}
        for name, path in (linked_files or binaries).items():
            try:
                binary = measure(path)
                linked = binary.kind != "static library"
                content = stripped_content(path, binutils["strip"]) if linked else b""
                sizes = FileSizes(
                    stripped=len(content) if linked else binary.sizes.total,
                    loaded=binary.sizes.total,
                    text=binary.sizes.text,
                    compressed=len(lzma.compress(content)) if linked and self.compress else 0,
                )
                measured[name] = path, binary, sizes
            except UserError as error:
                say(f"left out: {error.problem}")
        if any(binary.machine in machines for _, binary, _ in measured.values()):
            measured = {name: one for name, one in measured.items() if one[1].machine in machines}
        files, unmoved = {}, []
        for name, (path, binary, sizes) in measured.items():
            copy = kept / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            copy.chmod(copy.stat().st_mode | stat.S_IWUSR)
            linked = binary.kind != "static library"
            if linked and not relocate_runpath(copy, path, root):
                unmoved.append(name)
            symbols = exported_symbols(copy, binutils["nm"]) if linked else {}
            files[name] = LinkedFile(
                kind=binary.kind,
                sizes=sizes,
                machine=binary.machine,
                # Variables that a program exports are mostly copies of a library's (R_X86_64_COPY).
                exports=_of_kinds(symbols, "Ti" if binary.kind == "program" else "TiDBRGSA")
                - _START_FILE_EXPORTS.get(binary.machine or 0, frozenset()),
                weak=_of_kinds(symbols, "WV") if binary.kind == "shared library" else frozenset(),
                unique=_of_kinds(symbols, "u") if binary.kind == "shared library" else frozenset(),
                libraries=needed_libraries(copy) if linked else frozenset(),
            )
            copy_links(path, copy)
            for link in links.get(name, ()):
                (kept / link).parent.mkdir(parents=True, exist_ok=True)
                os.link(copy, kept / link)
        return files, tuple(unmoved)

    def _differences(self, compilers: Compilers, own: Path, root: Path, kept: Path, records: Path) -> Differences:
        variant, binutils = compilers.variant, self.setup.binutils
        return find_differences(
            FinishedBuild(
                records=records,
                root=root,
                files=kept,
                own=own,
                clang=self.clang if variant.gnu else variant.clang,
                nm=(binutils if variant.gnu else variant.binutils(binutils))["nm"],
                dropped=compilers.dropped,
                lto=any(flag.startswith("-flto") for flag in variant.flags),
                own_by_clang=self.own_by_clang,
                interposable=bool(variant.default_flags),
                gnu=variant.gnu,
                cross_options={one.prefix: one.clang_options for one in compilers.target.cross},
            )
        )


def _emulators(
    kept: Path, files: Mapping[str, LinkedFile], known: Sequence[CrossCompiler]
) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the commands that run programs of other processors, and why one of them cannot run."""
    commands: dict[str, tuple[str, ...]] = {}
    for name, file in files.items():
        if file.kind != "program" or file.machine == native_machine():
            continue
        try:
            if command := emulator(kept / name, known):
                commands[name] = command
        except UserError as error:
            return {}, f"{error.problem}: {error.remedy}"
    return commands, ""


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _is_tool_of_cargo(root: Path, path: Path) -> bool:
    """Return whether a linked file below the root of a tree only runs in builds of Cargo: a build script, or a library
    of procedural macros, which rustc loads."""
    within = path.relative_to(root)
    if not any(is_cargo_directory(root / parent) for parent in within.parents):
        return False
    if "build" in within.parts and _BUILD_SCRIPT.fullmatch(path.name):
        return True
    return path.suffix == ".so" and _PROC_MACRO.search(path.read_bytes()) is not None


def _without_links(binaries: Mapping[str, Path]) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Return each file by one of its names, and by that one the other names of its hard links. It is the name with the
    fewest directories: Cargo's target/release/deps has the others."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, path in binaries.items():
        status = path.stat()
        groups.setdefault((status.st_dev, status.st_ino), []).append(name)
    links: dict[str, list[str]] = {}
    for names in groups.values():
        first, *others = sorted(names, key=lambda name: (name.count("/"), len(name), name))
        links[first] = others
    return {name: path for name, path in binaries.items() if name in links}, links


def copy_with_links(files: Path, into: Path) -> None:
    """Copy kept files to a new directory; hard links stay hard links."""
    copies: dict[tuple[int, int], str] = {}

    def copy(source: str, destination: str) -> str:
        status = os.stat(source)
        first = copies.setdefault((status.st_dev, status.st_ino), destination)
        if first != destination:
            os.link(first, destination)
        else:
            shutil.copy2(source, destination)
        return destination

    shutil.copytree(files, into, symlinks=True, copy_function=copy)


def _of_kinds(symbols: Mapping[str, str], kinds: str) -> frozenset[str]:
    """Return the symbols with one of these letters, without those that linkers define, and without the variants of
    constructors and destructors, of which gcc exports more."""
    names = (name for name, kind in symbols.items() if kind in kinds and not _is_linker_defined(name))
    return frozenset(_VARIANT.sub("", name) if name.startswith("_Z") else name for name in names)


def _is_linker_defined(symbol: str) -> bool:
    """Return whether a linker defines a symbol; GNU ld alone defines one for each version: V1@@V1."""
    name, _, version = symbol.partition("@")
    return name in _LINKER_DEFINED or name == version.lstrip("@")
