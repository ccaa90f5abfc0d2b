"""Builds a program for size that is fast where the user's benchmark runs: `mlgo shrink --max-slowdown`.

An instrumented build runs the benchmark. Its profile is clang's own (-fprofile-instr-use), which needs no passes in the
compile, so that the program is still one module by the pipeline for size. There the profile inlines calls that are hot
and arranges blocks; at higher levels hot functions are compiled for speed, too. A level says how much of the profile is
hot, and is an option of the link: levels are tried by links alone, where the links of the build can be repeated.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from components.core.projects.flags.rows import FlagRow
from components.core.projects.source_tree import remove_tree
from components.core.projects.speed.counters import Counter, find_counter
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.output import capture
from components.shrink.builds.build import Builder, Compilers
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.rows import OBJECTS
from components.shrink.speed.benchmark import Benchmark
from components.shrink.types import Measure

FAST = "program-fast"
PROFILE_FILE = "benchmark.profdata"
"""The profile of the benchmark in the output, which the delivered compilers use."""
_INSTRUMENT = "-fprofile-instr-generate"
_CONTINUOUS = ("-mllvm", "-runtime-counter-relocation")
"""Counters are in the file while a program runs, so that one that is killed has a profile, too."""
_PROFILE_NAMES = "%c%m-%p.profraw"
"""A file for each program and process, see above for %c."""
_QUIET = ("-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled", "-Wno-profile-instr-missing")
_NO_LINK_PROFILE = "-Wl,--lto-cs-profile-file="
"""The driver gives the profile to the link, too, as one of LLVM's passes there, which ours does not run with."""
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Level:
    """How much of a profile is hot.

    Attributes:
        cutoff: share of the profile's counts that are hot, in millionths; one of those that LLVM's profiles have.
        functions: whether hot functions are compiled for speed, with the passes of code generation that the pipeline
            for size leaves out.
        count: the least count that is hot, by the profile.
    """

    cutoff: int
    functions: bool
    count: int = 0

    @property
    def options(self) -> tuple[str, ...]:
        """Options of LLVM, for the link."""
        # Clang adds one to the weights of branches: a loop that is entered once has half of its count.
        count = f"-profile-summary-hot-count={max(1, self.count * 49 // 100)}"
        speed = ("-mlgo-hot-functions", "-disable-lsr=0", "-disable-machine-licm=0", "-enable-load-pre=1")
        return (count, *speed) if self.functions else (count,)

    def __str__(self) -> str:
        what = "functions compiled for speed" if self.functions else "calls inlined"
        return f"{self.cutoff / 10_000:.4g}% hot, {what}"


LEVELS = (
    *(Level(cutoff, False) for cutoff in (10_000, *range(100_000, 1_000_000, 100_000), 950_000, 990_000)),
    *(Level(cutoff, True) for cutoff in (600_000, 800_000, 900_000, 950_000, 990_000, 999_000, 999_999)),
)
"""From the smallest build to the fastest, about."""
_FIRST = LEVELS.index(Level(900_000, False))
"""Where the search begins."""
_SUMMARY = re.compile(r"blocks with count >= (\d+) account for ([\d.]+) percentage")


@dataclass
class SpeedLimit:
    """The limit of the instructions of a benchmark.

    Attributes:
        percent: how many more instructions than by the user's own build.
        counter: what counts them.
        profdata: llvm-profdata, which merges the profiles of the benchmark.
        own: instructions by the user's own build.
    """

    benchmark: Benchmark
    percent: float
    counter: Counter
    profdata: Path
    own: int = 0

    def count(self, files: Path) -> int:
        """Return the instructions with the linked files in a directory. UserError if the benchmark fails."""
        return self.benchmark.count(files, self.counter)

    def holds(self, instructions: int) -> bool:
        """Return whether so many instructions are within the limit."""
        return instructions <= self.own * (1 + self.percent / 100)

    def change(self, instructions: int) -> str:
        """Return the change against the user's own build in words."""
        return f"{100 * (instructions / self.own - 1):+.1f}% instructions" if self.own else f"{instructions:,}"

    def excess(self, instructions: int) -> str:
        """Return why a build with so many instructions is not delivered."""
        return f"{self.change(instructions)}, more than --max-slowdown {self.percent:g} allows"


def require_counter() -> Counter:
    """Return what counts instructions. UserError without one."""
    try:
        return find_counter()
    except UserError as error:
        raise UserError(f"--max-slowdown: {error.problem}", error.remedy) from None


def find_profdata(stock: Path, clang: Path) -> Path:
    """Return llvm-profdata of stock clang's version.

    Raises:
        UserError: it is missing, or the runtime of instrumented programs is.
    """
    version = stock.name.removeprefix("clang").lstrip("-")
    program = stock.resolve().parent / "llvm-profdata"
    if not program.is_file():
        found = shutil.which(f"llvm-profdata-{version}" if version else "llvm-profdata")
        if found is None:
            raise UserError(
                "--max-slowdown needs llvm-profdata, which merges profiles", f"sudo apt-get install llvm-{version}"
            )
        program = Path(found)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "main.c"
        source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        done = capture([clang, "-fuse-ld=lld", _INSTRUMENT, source, "-o", source.with_suffix("")], _TIMEOUT_S)
    if done.returncode != 0:
        raise UserError(
            f"--max-slowdown needs clang's profile runtime, and cannot link an instrumented program:\n{done.stderr}",
            f"sudo apt-get install libclang-rt-{version}-dev",
        )
    return program


def fast_row(row: FlagRow, profile: Path, level: Level | None = None) -> FlagRow:
    """Return a row of whole programs with a profile, by the heuristic: the policy does not look at profiles.

    Args:
        level: None for links that get its options on their command lines.
    """
    at_link = tuple(f"-Wl,-mllvm,{option}" for option in level.options) if level else ()
    return replace(
        row,
        name=FAST,
        gives=f"{row.name} with a profile of the benchmark{f': {level}' if level else ''}",
        compile_flags=(*row.compile_flags, f"-fprofile-instr-use={profile}", *_QUIET),
        link_flags=(*row.link_flags, _NO_LINK_PROFILE, *at_link),
        compilers=("heuristic",),
        own_options=("-mlgo-whole-program",),
    )


def move_profile(row: FlagRow, profile: Path) -> FlagRow:
    """Return a row of `fast_row` whose profile is elsewhere."""
    use = "-fprofile-instr-use="
    flags = tuple(f"{use}{profile}" if flag.startswith(use) else flag for flag in row.compile_flags)
    return replace(row, compile_flags=flags)


@dataclass
class FastSearch:
    """Searches the level at which a program is smallest within the limit.

    Attributes:
        row: a row of whole programs by the release clang.
        compilers: returns those of a row, by the heuristic.
        work: directory of the profile and of trials.
        measure: what is minimized.
        timeout_s: time limit of a build.
        tried: bytes and instructions of the levels that were tried.
    """

    builder: Builder
    limit: SpeedLimit
    row: FlagRow
    compilers: Callable[[FlagRow], Compilers]
    work: Path
    measure: Measure
    timeout_s: float | None
    tried: dict[Level, tuple[int, int]] = field(default_factory=dict)
    levels: tuple[Level, ...] = LEVELS
    _tree: Path | None = None

    @property
    def profile(self) -> Path:
        """The file of the profile."""
        return self.work / PROFILE_FILE

    def run(self) -> Level:
        """Return the level of the smallest of the builds that hold the limit, the fastest level if none does.

        Raises:
            UserError: a build fails, or the benchmark leaves no profile.
        """
        self.work.mkdir()
        self._make_profile()
        say(f"{FAST}: building with the profile")
        compilers = replace(self.compilers(fast_row(self.row, self.profile)), links=True)
        searched: list[Level] = []

        def search(tree: BuiltTree) -> None:
            if tree.can_relink:
                self._tree = tree.root
                searched.append(self._search(lambda level, files: self._relink(tree, level, files)))
                self._tree = None

        files = self.work / "linked"
        self.builder.run(FAST, compilers, files, search, self.timeout_s)
        remove_tree(files)
        return searched[0] if searched else self._search(self._build)

    def faster(self, level: Level) -> Level | None:
        """Return the next level, None after the last."""
        return next(iter(self.levels[self.levels.index(level) + 1 :]), None)

    def _make_profile(self) -> None:
        profdata = self.limit.profdata
        say(f"{FAST}: building instrumented programs, which {self.limit.benchmark.command} runs")
        row = replace(
            OBJECTS,
            name="instrumented",
            compile_flags=(*OBJECTS.compile_flags, f"{_INSTRUMENT}=/dev/null", *_CONTINUOUS),
            link_flags=("-fuse-ld=lld", "-Wl,--undefined-version", "-Wl,--fortran-common", "-fno-lto", _INSTRUMENT),
            own_options=(),
            compilers=("heuristic",),
        )
        compilers = replace(self.compilers(row), records=False)
        files, profiles = self.work / "instrumented", self.work / "profiles"
        profiles.mkdir()
        self.builder.run("instrumented", compilers, files, lambda tree: None, self.timeout_s)
        self.limit.benchmark.run_with(files, (f"LLVM_PROFILE_FILE={profiles / _PROFILE_NAMES}",))
        written = sorted(profiles.glob("*.profraw"))
        if not written:
            raise UserError(
                f"{self.limit.benchmark.command} runs none of the programs and libraries that the build links, or "
                "without its environment",
                "pass a --benchmark that runs them and keeps LLVM_PROFILE_FILE",
            )
        names = self.work / "profiles.txt"
        names.write_text("".join(f"{path}\n" for path in written), encoding="utf-8")
        options = ["-sparse", "--failure-mode=all", f"--input-files={names}", "-o", str(self.profile)]
        done = capture([profdata, "merge", *options], _TIMEOUT_S)
        if done.returncode != 0 or not self.profile.is_file():
            raise UserError(f"{profdata} cannot merge the profiles:\n{done.stderr[-1000:]}", "see its message")
        text = capture([profdata, "show", "--detailed-summary", self.profile], _TIMEOUT_S).stdout
        counts = {round(float(percent) * 10_000): int(count) for count, percent in _SUMMARY.findall(text)}
        self.levels = tuple(replace(level, count=counts.get(level.cutoff, 1)) for level in LEVELS)
        for directory in (files, profiles):
            remove_tree(directory)

    def _search(self, build: Callable[[Level, Path], int]) -> Level:
        """Return the level as `run`; `build` builds at a level into a directory, and returns the bytes."""
        low, high, level = 0, len(self.levels), _FIRST
        while low < high:
            if self._holds(self.levels[level], build):
                high = level
            else:
                low = level + 1
            level = (low + high) // 2
        holding = [one for one, (_, count) in self.tried.items() if self.limit.holds(count)]
        return min(holding, key=lambda one: self.tried[one][0]) if holding else self.levels[-1]

    def _holds(self, level: Level, build: Callable[[Level, Path], int]) -> bool:
        files = self.work / "trial"
        try:
            size = build(level, files)
            with _moved_away(self._tree):
                count = self.limit.count(files)
        finally:
            remove_tree(files)
        self.tried[level] = size, count
        say(f"{FAST}, {level}: {size:,} bytes, {self.limit.change(count)}")
        return self.limit.holds(count)

    def _build(self, level: Level, files: Path) -> int:
        """Build in a fresh tree."""
        compilers = replace(self.compilers(fast_row(self.row, self.profile, level)), records=False)
        built = self.builder.run(f"{FAST}-trial", compilers, files, lambda tree: None, self.timeout_s)
        return built.sizes.by(self.measure)

    def _relink(self, tree: BuiltTree, level: Level, files: Path) -> int:
        """Repeat the links of a build."""
        tree.relink([f"-Wl,-mllvm,{option}" for option in level.options], self.timeout_s)
        return self.builder.keep(tree, files).sizes.by(self.measure)


@contextmanager
def _moved_away(tree: Path | None) -> Iterator[None]:
    """Have a tree elsewhere for a while: the benchmark runs where builds run."""
    if tree is None:
        yield
        return
    elsewhere = tree.with_name(f"{tree.name}-built")
    tree.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(tree)
