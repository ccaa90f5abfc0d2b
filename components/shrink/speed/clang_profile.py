"""The profile of a benchmark by clang, with which the release clang compiles for size.

It is clang's own (-fprofile-instr-use), which needs no passes in the compile, so that the program is still one module
by the pipeline for size. There the profile inlines calls that are hot and arranges blocks; at higher levels hot
functions are compiled for speed, too.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from components.core.projects.flags.rows import FlagRow
from components.core.projects.flags.types import CompilerOfRow
from components.platform.errors import UserError
from components.platform.processes.output import capture
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.rows import OBJECTS
from components.shrink.speed.slowdown import PROFILE_TIMEOUT_S, Level, NoProfileError, replace_starts

PROFILE_FILE = "benchmark.profdata"
"""The profile in the output, which the delivered compilers use."""
_INSTRUMENT, _USE = "-fprofile-instr-generate", "-fprofile-instr-use="
_CONTINUOUS = ("-mllvm", "-runtime-counter-relocation")
"""Counters are in the file while a program runs, so that one that is killed has a profile, too."""
_PROFILE_NAMES = "%c%m-%p.profraw"
"""A file for each program and process, see above for %c."""
_QUIET = ("-Wno-profile-instr-out-of-date", "-Wno-profile-instr-unprofiled", "-Wno-profile-instr-missing")
_NO_LINK_PROFILE = "-Wl,--lto-cs-profile-file="
"""The driver gives the profile to the link, too, as one of LLVM's passes there, which ours does not run with."""
_SPEED = ("-mlgo-hot-functions", "-disable-lsr=0", "-disable-machine-licm=0", "-enable-load-pre=1")
"""Hot functions are compiled for speed, with the passes of code generation that the pipeline for size leaves out."""
_SUMMARY = re.compile(r"blocks with count >= (\d+) account for ([\d.]+) percentage")
CUTOFFS = (
    *((cutoff, False) for cutoff in (10_000, *range(100_000, 1_000_000, 100_000), 950_000, 990_000)),
    *((cutoff, True) for cutoff in (600_000, 800_000, 900_000, 950_000, 990_000, 999_000, 999_999)),
)
"""The share of the profile's counts that are hot, in millionths, of those that LLVM's profiles have, and whether hot
functions are compiled for speed; from the smallest build to the fastest, about."""
_FIRST = CUTOFFS.index((900_000, False))


@dataclass
class ClangProfile:
    """See `slowdown.Profile`.

    Attributes:
        whole: a row of whole programs by the release clang.
        file: the profile.
        profdata: llvm-profdata, which merges the profiles of the benchmark.
    """

    whole: FlagRow
    file: Path
    profdata: Path
    name: str = "program-fast"
    compiler: CompilerOfRow = "heuristic"  # the policy does not look at profiles

    def instrumented(self, directory: Path, root: Path) -> FlagRow:
        return replace(
            OBJECTS,
            name="instrumented",
            compile_flags=(*OBJECTS.compile_flags, f"{_INSTRUMENT}=/dev/null", *_CONTINUOUS),
            link_flags=("-fuse-ld=lld", "-Wl,--undefined-version", "-Wl,--fortran-common", "-fno-lto", _INSTRUMENT),
            own_options=(),
            compilers=("heuristic",),
        )

    def start_programs(self, tree: BuiltTree, directory: Path) -> None:
        """Do nothing: functions without a profile are compiled for size."""

    def variables(self, directory: Path) -> tuple[str, ...]:
        return (f"LLVM_PROFILE_FILE={directory / _PROFILE_NAMES}",)

    def finish(self, directory: Path) -> tuple[Sequence[Level], int]:
        written = sorted(directory.glob("*.profraw"))
        if not written:
            raise NoProfileError
        names = directory / "profiles.txt"
        names.write_text("".join(f"{path}\n" for path in written), encoding="utf-8")
        options = ["-sparse", "--failure-mode=all", f"--input-files={names}", "-o", str(self.file)]
        done = capture([self.profdata, "merge", *options], PROFILE_TIMEOUT_S)
        if done.returncode != 0 or not self.file.is_file():
            raise UserError(f"{self.profdata} cannot merge the profiles:\n{done.stderr[-1000:]}", "see its message")
        text = capture([self.profdata, "show", "--detailed-summary", self.file], PROFILE_TIMEOUT_S).stdout
        counts = {round(float(percent) * 10_000): int(count) for count, percent in _SUMMARY.findall(text)}
        return [_level(cutoff, functions, counts.get(cutoff, 1)) for cutoff, functions in CUTOFFS], _FIRST

    def row(self, level: Level | None) -> FlagRow:
        return replace(
            self.whole,
            name=self.name,
            gives=f"{self.whole.name} with a profile of the benchmark{f': {level.text}' if level else ''}",
            compile_flags=(*self.whole.compile_flags, f"{_USE}{self.file}", *_QUIET),
            link_flags=(*self.whole.link_flags, _NO_LINK_PROFILE, *(level.options if level else ())),
            compilers=(self.compiler,),
            own_options=("-mlgo-whole-program",),
        )

    def deliver(self, row: FlagRow, directory: Path, published: Path, source: Path) -> FlagRow:
        shutil.copyfile(self.file, directory / PROFILE_FILE)
        return replace_starts(row, {_USE: f"{_USE}{published / PROFILE_FILE}"})


def _level(cutoff: int, functions: bool, count: int) -> Level:
    """Return a level of CUTOFFS; `count` is the least count of the profile that is hot."""
    # Clang adds one to the weights of branches: a loop that is entered once has half of its count.
    options = (f"-profile-summary-hot-count={max(1, count * 49 // 100)}", *(_SPEED if functions else ()))
    what = "functions compiled for speed" if functions else "calls inlined"
    return Level(f"{cutoff / 10_000:.4g}% hot, {what}", tuple(f"-Wl,-mllvm,{option}" for option in options))


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
        done = capture([clang, "-fuse-ld=lld", _INSTRUMENT, source, "-o", source.with_suffix("")], PROFILE_TIMEOUT_S)
    if done.returncode != 0:
        raise UserError(
            f"--max-slowdown needs clang's profile runtime, and cannot link an instrumented program:\n{done.stderr}",
            f"sudo apt-get install libclang-rt-{version}-dev",
        )
    return program
