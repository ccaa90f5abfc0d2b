"""Tries builds of the user's code, the user's own first, and knows the smallest that works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import asdict

from components.core.formats.toolchain import Toolchain
from components.core.projects.cross_compilers import find_cross_compilers, search_path, variables_for
from components.core.projects.flags.builds import compiler_arguments, describe_failure
from components.core.projects.flags.rows import TITLES, FlagRow
from components.core.projects.flags.types import CompilerOfRow
from components.core.projects.source_tree import remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.shrink.builds.build import Builder, BuiltFiles, Compilers, UserBuild
from components.shrink.checks import MIN_TIMEOUT_S, Checks
from components.shrink.rows import OWN, STOCK
from components.shrink.search import search_plan, with_plan
from components.shrink.speed.benchmark import Benchmark
from components.shrink.speed.clang_profile import PROFILE_FILE, ClangProfile, find_profdata
from components.shrink.speed.gcc_profile import PROFILE_DIRECTORY, GccProfile, has_relative_profiles
from components.shrink.speed.slowdown import FastSearch, Level, Profile, SpeedLimit, require_counter
from components.shrink.targets import Target, named_target, require_target, target_of
from components.shrink.types import TITLE_OF_MEASURE, Measure, TriedBuild

COMPILERS = "compilers"
"""Directory of the output: compilers with the flags of the delivered build."""
_NOT_REPLACED = (
    "the build makes the same files whatever CC, CXX and the installed compilers are: include its configure step in "
    "the command"
)


@dataclass(frozen=True)
class ShrinkConfig:
    """What is tried, and how it is compared.

    Attributes:
        rows: what is built besides the user's own build, each by the first of its compilers.
        checks: how builds are checked.
        measure: what is minimized.
        benchmark: shell command whose speed is compared; "" for none.
        compare_stock: build the release clang's smallest row by stock clang, too, which tells what the flags save
            without our clang.
        minutes: wall time of a search for better inlining decisions; 0 for none.
        max_slowdown: how many percent more instructions the benchmark may execute; None for any.
    """

    rows: Sequence[FlagRow]
    checks: Checks
    measure: Measure = "loaded"
    benchmark: str = ""
    compare_stock: bool = False
    minutes: float = 0.0
    jobs: int = 1
    max_slowdown: float | None = None


@dataclass(frozen=True)
class Trial:
    """A build that was tried.

    Attributes:
        entry: its line in the report.
        built: what it linked; None if it may not be used.
        row: its flags; None for the user's own build.
        plan: file of the plan that the row is built with, None without one.
        profile: the profile that the row is built with, None without one.
    """

    entry: TriedBuild
    built: BuiltFiles | None = None
    row: FlagRow | None = None
    plan: Path | None = None
    profile: Profile | None = None


@dataclass
class Trials:
    """The builds of a user's code.

    Attributes:
        others: builds that take the place of the builder's if that fails, the first that works.
        stock: the stock clang.
        work: directory of what the builds link, by the builds' names.
        output: the published directory, which messages name.
        total: number of builds, for messages.
        done: the builds, the user's own first.
        bound: whether the compilers have to stand in for the installed ones, since the build calls these.
    """

    builder: Builder
    stock: Path
    release: Toolchain
    work: Path
    output: Path
    config: ShrinkConfig
    total: int = 1
    others: Sequence[UserBuild] = ()
    done: list[Trial] = field(default_factory=list)
    bound: bool = False

    @property
    def own(self) -> BuiltFiles:
        """What the user's own build linked."""
        own = self.done[0].built
        assert own is not None
        return own

    @property
    def dropped(self) -> tuple[str, ...]:
        """Options of the build that the compilers of a row did not have: those of the others lack them, too."""
        return tuple(dict.fromkeys(option for one in self.done for option in one.entry.dropped))

    def smallest(self, compiler: CompilerOfRow | None = None) -> Trial:
        """Return the smallest build that may be used, the first of equally small ones, and with `compiler` the user's
        own or one of that compiler."""
        usable = [one for one in self.done if one.built is not None]
        if compiler is not None:
            usable = [one for one in usable if one.row is None or compiler in one.row.compilers]
        return min(usable, key=lambda one: one.entry.by(self.config.measure))

    def run(self) -> None:
        """Try the user's own build, the rows, and two more builds of the release clang's smallest row.

        Raises:
            UserError: the user's own build, check or benchmark fails.
        """
        minutes = self.config.minutes
        limit = self.config.max_slowdown
        tools = None if limit is None else (require_counter(), find_profdata(self.stock, self.release.clang))
        self._add_own()
        rows = [self._for_target(row) for row in self.config.rows]
        if self.config.benchmark:
            self.benchmark().try_once(self.work / OWN)
        if all(file.kind == "static library" for file in self.own.files.values()):
            say("the build makes static libraries only: they are compiled file by file")
            rows = [row for row in rows if not row.lto]
        self.total = 1 + len(rows) + self.config.compare_stock + bool(minutes)
        for row in rows:
            self._add(row, row.compilers[0])
        best = self.smallest("policy").row
        if best is not None and self.config.compare_stock:
            self._add(replace(best, name=STOCK, gives=f"the flags of {best.name}, by stock clang"), "stock")
        if best is not None and minutes:
            self._add_searched(best, minutes)
        if limit is not None and tools:
            counter, profdata = tools
            self._hold_limit(SpeedLimit(self.benchmark(), limit, counter), profdata)

    def benchmark(self) -> Benchmark:
        """Return the user's benchmark."""
        builder, checks = self.builder, self.config.checks
        source = builder.build.source
        place, strip = builder.setup.work / source.name, builder.setup.binutils["strip"]
        timeout_s = checks.timeout_s or MIN_TIMEOUT_S
        return Benchmark(self.config.benchmark, source, builder.omitted, place, strip, timeout_s)

    def _add_own(self) -> None:
        """Build by the user's own compilers; if a build fails, by the next of `others`.

        Raises:
            UserError: each build or its check fails; the error is that of the first.
        """
        failures: list[UserError] = []
        found = find_cross_compilers(search_path())
        for number, build in enumerate((self.builder.build, *self.others), 1):
            say(f"build 1: {build.source.name} by your own compilers: {build.shown}")
            target = named_target(found, build.shown)
            require_target(self.release, target)
            self.builder = replace(self.builder, build=build, target=target)
            try:
                build.source.check(build.shown)
                title = OWN if number == 1 else f"{OWN}-{number}"
                own = self.builder.run(title, None, self.work / OWN, self.config.checks.learn)
            except UserError as error:
                failures.append(error)
                if self.others:
                    say(f"{build.shown} does not work: {describe_failure(error).rstrip(':')}")
                continue
            entry = _entry(OWN, "your build as it is", own)
            say(f"{OWN}: {entry.by(self.config.measure):,} bytes {TITLE_OF_MEASURE[self.config.measure]}")
            machines = {name: file.machine for name, file in own.files.items()}
            target = target_of(target, machines, own.by_clang)
            require_target(self.release, target)
            self.builder = replace(self.builder, own=self.work / OWN, own_by_clang=own.by_clang, target=target)
            self.done.append(Trial(entry, own))
            return
        raise failures[0]

    def _for_target(self, row: FlagRow) -> FlagRow:
        """Return a row of the user's gcc as one of the cross compiler, if the build has only this."""
        target = self.builder.target
        if row.program is None or "gcc" not in row.compilers or target.native:
            return row
        gcc = target.cross[0].gcc
        return replace(row, gives=row.gives.replace(row.program.name, gcc.name, 1), program=gcc)

    def _add(self, row: FlagRow, compiler: CompilerOfRow, plan: Path | None = None) -> None:
        variant = (with_plan(row, plan) if plan else row).variant(compiler, self.stock, self.release)
        name, source = row.name, self.builder.build.source.name
        say(f"build {len(self.done) + 1} of {self.total}: {source} by {TITLES[compiler]}: {row.gives}")
        try:
            dropped = () if variant.gnu else self.dropped
            compilers = Compilers(variant, self.bound, dropped, target=self.builder.target)
            built = self._build(name, compilers)
            if not self.bound and not variant.gnu and self.own.is_like(built):
                say(f"{name}: the files are those of your own compilers, which are called by their paths: again")
                self.bound = True
                remove_tree(self.work / name)
                built = self._build(name, replace(compilers, bound=True, dropped=built.dropped))
            failure = _NOT_REPLACED if self.own.is_like(built) else self.own.lost_abilities(built)
            failure = failure or built.differences.refusal
        except UserError as error:
            failure = self._add_failed(name, row.gives, compiler, error)
            say(f"{name} is not used: {failure}; {error.remedy}")
            return
        entry = _entry(name, row.gives, built)
        entry.build = _build_line(self.output / COMPILERS, row, self.builder.target)
        entry.failure, entry.compiler, entry.searched = failure, compiler, plan is not None
        if failure:
            say(f"{name} is not used: {failure}")
        else:
            bytes_, own = entry.by(self.config.measure), self.done[0].entry.by(self.config.measure)
            say(f"{name}: {bytes_:,} bytes, {100 * (bytes_ / own - 1):+.1f}%" if own else f"{name}: {bytes_:,} bytes")
        self.done.append(Trial(entry, None if failure else built, row, plan))

    def _add_failed(self, name: str, gives: str, compiler: str, error: UserError) -> str:
        failure = describe_failure(error).rstrip(":")
        self.done.append(Trial(TriedBuild(name=name, gives=gives, compiler=compiler, failure=failure)))
        return failure

    def _hold_limit(self, limit: SpeedLimit, profdata: Path) -> None:
        """Leave out the builds that are smaller than the first, by size, that holds the limit, and add those with a
        profile by the compilers whose whole programs are among them."""
        limit.own = self.done[0].entry.instructions = limit.count(self.work / OWN)
        for profile in self._profiles(self._leave_out(limit), profdata):
            try:
                self._add_fast(profile, limit)
            except UserError as error:
                say(f"no {profile.name}: {describe_failure(error)}; {error.remedy}")
                self._add_failed(profile.name, "", profile.compiler, error)

    def _profiles(self, exceeding: Sequence[Trial], profdata: Path) -> Iterator[Profile]:
        """Yield the profiles whose builds may be the smallest that hold the limit."""
        whole: dict[CompilerOfRow, tuple[Trial, FlagRow]] = {}  # the smallest of each compiler
        for one in exceeding:
            if one.row and one.row.lto:
                whole.setdefault(one.row.compilers[0], (one, one.row))
        if "policy" in whole:
            yield ClangProfile(whole["policy"][1], self.work / PROFILE_FILE, profdata)
        if "gcc" in whole and self.builder.target.native:
            one, row = whole["gcc"]
            # What the row for size does not undercut, one with hot code will not.
            worthwhile = one.entry.by(self.config.measure) < self.smallest().entry.by(self.config.measure)
            if worthwhile and row.program is not None and has_relative_profiles(row.program):
                yield GccProfile(row, self.work / PROFILE_DIRECTORY, self.benchmark().place)

    def _leave_out(self, limit: SpeedLimit) -> list[Trial]:
        """Count the builds, the smallest first, until one holds the limit, and return the others."""
        exceeding = []
        while (one := self.smallest()) is not self.done[0]:
            one.entry.instructions = one.entry.instructions or limit.count(self.work / one.entry.name)
            say(f"{one.entry.name}: {limit.change(one.entry.instructions)}")
            if limit.holds(one.entry.instructions):
                break
            one.entry.failure = limit.excess(one.entry.instructions)
            self.done[self.done.index(one)] = replace(one, built=None)
            exceeding.append(one)
        return exceeding

    def _add_fast(self, profile: Profile, limit: SpeedLimit) -> None:
        """Search how much of the profile has to be hot, and build that."""

        def compilers(row: FlagRow) -> Compilers:
            variant = row.variant(profile.compiler, self.stock, self.release)
            return Compilers(variant, self.bound, () if variant.gnu else self.dropped)

        config, work = self.config, self.work / f"{profile.name}-search"
        search = FastSearch(self.builder, limit, profile, compilers, work, config.measure, config.checks.timeout_s)
        level: Level | None = search.run()
        while level is not None:
            self.total = max(self.total, len(self.done) + 1)
            self._add(profile.row(level), profile.compiler)
            one = self.done[-1]
            if one.built is None:
                return
            self.done[-1] = replace(one, profile=profile)
            if not self._leave_out(limit):
                return
            level = search.faster(level)
            if level is not None:  # the build is not exactly what was linked in the search
                self.done.pop()
                remove_tree(self.work / profile.name)

    def _build(self, name: str, compilers: Compilers) -> BuiltFiles:
        return self.builder.run(
            name, compilers, self.work / name, self.config.checks.compare, self.config.checks.timeout_s
        )

    def _add_searched(self, row: FlagRow, minutes: float) -> None:
        """Search decisions for what a row compiles, and build it with them."""
        if self.builder.target.cross or self.builder.target.processor:
            say("no plan: decisions are searched for builds for this machine only")
            return
        stock = Compilers(row.variant("stock", self.stock, self.release), self.bound, self.dropped)
        try:
            plan = search_plan(self.builder, stock, row.lto, minutes, self.work / "plan")
        except UserError as error:
            say(f"no plan: {describe_failure(error)}; {error.remedy}")
            return
        gives = f"{row.name} with the decisions of a search"
        self._add(replace(row, name=f"{row.name}-plan", gives=gives), "plan", plan)


def _entry(name: str, gives: str, built: BuiltFiles) -> TriedBuild:
    files = {path: file.sizes for path, file in built.files.items()}
    return TriedBuild(name=name, gives=gives, files=files, dropped=list(built.dropped), **asdict(built.sizes))


def _build_line(compilers: Path, row: FlagRow, target: Target) -> str:
    """Return what makes a shell's build use the compilers. They have names without a path, which may have spaces."""
    words = {"PATH": f'{shlex.quote(f"{compilers}:")}"$PATH"'}
    if not target.native:
        words |= {name: shlex.quote(value) for name, value in variables_for(None, target.cross).items()}
    else:
        names = ("gcc", "g++") if "gcc" in row.compilers else ("clang", "clang++")
        for variable, name in zip(("CC", "CXX"), names, strict=True):
            words[variable] = shlex.quote(shlex.join([name, *compiler_arguments(variable)]))
        if row.lto:  # GNU's need a plugin for the objects
            words |= {name.upper(): name for name in ("ar", "nm", "ranlib")}
    words["JOBS"] = '"$(nproc)"'
    return "export " + " ".join(f"{name}={value}" for name, value in words.items())
