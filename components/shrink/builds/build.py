"""Builds a copy of the user's code by one set of compilers."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from components.core.projects.compiler_command import lacking_options
from components.core.projects.cross_compilers import CrossCompiler, native_machine
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup, write_tools
from components.core.projects.source_tree import SourceTree, remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail, read_end, run_logged
from components.shrink.bazel import confine_bazel, is_workspace
from components.shrink.builds.bound_compilers import WRAPPER, write_bound_tools
from components.shrink.builds.built_tree import BuiltTree, naming_the_limit
from components.shrink.builds.kept_files import Identity, LinkedFile, identities, keep_linked_files
from components.shrink.differences.configuration import defined_names
from components.shrink.differences.find import Differences, FinishedBuild, find_differences
from components.shrink.differences.linked_files import made_by_clang
from components.shrink.differences.records import Call, read_calls
from components.shrink.failures import failed_build_remedy
from components.shrink.targets import NATIVE, Target, emulator
from components.shrink.types import FileSizes

RECORDS = "records"
_COMPILERS_LIBRARIES = tuple("libc. libm. libmvec. libgcc_s. libgomp. libstdc++. libatomic. libssp. ld-linux".split())
"""Shared libraries of which compilers decide whether a program needs them."""
_MAX_ATTEMPTS = 4
_GNU_OPENMP, _OPENMP = "libgomp.so.1", "libomp.so.5"


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
        others = identities(tree.root)
        for name in tree.kinds:
            others.pop(tree.root / name, None)
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
            before = identities(root)
            started = time.monotonic()
            with naming_the_limit(f"the build, {build.shown},", timeout_s):
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
        self, root: Path, kept: Path, before: Mapping[Path, Identity]
    ) -> tuple[dict[str, LinkedFile], tuple[str, ...]]:
        return keep_linked_files(root, kept, before, self.setup.binutils, self.target.machines, self.compress)

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
