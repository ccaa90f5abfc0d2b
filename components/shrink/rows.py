"""The builds that `mlgo shrink` tries: a release clang with flags that no program notices.

They are rows like those of `mlgo evaluation flags` (components/core/projects/flags/rows.py), without what assumes
something of the program: symbols keep their visibility, and only functions whose addresses are not compared are folded.
lld keeps sections that are only reached through __start_NAME and __stop_NAME, as GNU ld does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from components.core.compiler.probe import has_option
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.rows import FLAG_GROUPS, PROBLEM, FlagGroup, FlagRow, gcc_rows, newest_rows
from components.platform.errors import UserError

_LENIENT_WARNINGS = """
    address-of-temporary c++11-narrowing dynamic-exception-spec enum-constexpr-conversion implicit-function-declaration
    implicit-int incompatible-function-pointer-types int-conversion missing-template-arg-list-after-template-kw
    non-pod-varargs register reserved-user-defined-literal return-mismatch
"""
_LENIENT = ("-Wno-error", *(f"-Wno-error={warning}" for warning in _LENIENT_WARNINGS.split()))
"""Code that gcc 12 accepts, with a warning or without one: the user's own compiler decides what is an error."""
_UP_TO_CLANG_19 = "-Wno-error=enum-constexpr-conversion"
"""Later ones warn of the option, which tests of what a compiler prints notice."""
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
_LINK = (
    "-fuse-ld=lld",
    "-Wl,--gc-sections",
    "-Wl,-z,nostart-stop-gc",
    "-Wl,--icf=safe",
    "-Wl,-O2",
    "-Wl,--fortran-common",  # members of archives define common symbols (-fcommon), as for GNU ld
    "-Wl,--undefined-version",  # version scripts may name symbols that are not there, as for GNU ld
)
C_DEFAULTS = ("-fsemantic-interposition",)
"""Defaults of gcc that clang does not have: a program may replace a function of a shared library, which the library's
own calls reach then. It adds 0.02% and 0.06% to the loaded bytes of zlib and serd. In C++ clang, other than gcc, does
not inline templates then, which makes libraries larger than by gcc: differences/links.py looks for what is replaced."""
_KEEP_SMALLER = "-mlgo-keep-smaller"
_LTO = "-flto"

OBJECTS = FlagRow(
    "objects",
    "each file by the smaller of heuristic and policy",
    (*_LENIENT, *_SECTIONS, "-fno-lto"),
    (*_LINK, "-fno-lto"),
    compilers=("policy",),
    own_options=(_KEEP_SMALLER,),
    default_flags=C_DEFAULTS,
)
PROGRAM = FlagRow(
    "program",
    "each program as one module, by the smaller of heuristic and policy",
    (*_LENIENT, *_SECTIONS, _LTO),
    (*_LINK, _LTO),
    lto=True,
    compilers=("policy",),
    own_options=(_KEEP_SMALLER,),
    default_flags=C_DEFAULTS,
)
OWN, STOCK = "own", "stock"
"""The user's build by the user's compilers, and the smallest row's flags by stock clang, in tables and files."""
_ALLOWABLE = {name: group for name, group in FLAG_GROUPS.items() if group.assumes}
# All that the group "layout" saves beyond _LINK.
_ALLOWABLE["no-build-id"] = FlagGroup(
    "no build ID",
    link_flags=("-Wl,--build-id=none",),
    assumes="no debugger, crash report or package of debug data finds a file's debug data by its build ID",
)
ASSUMPTIONS = {name: group.assumes for name, group in _ALLOWABLE.items()}
"""Flags that may be allowed -> what they assume of the program."""


def rivals(release: Toolchain) -> list[FlagRow]:
    """Return the rows of the compilers that the user has besides the release clang: gcc at its two levels for size with
    LTO, and a clang that is newer than the release clang."""
    flags = tuple(flag for flag in PROGRAM.compile_flags if flag != _UP_TO_CLANG_19)
    sections = FlagRow("sections", "", _SECTIONS)
    return [*gcc_rows(sections), *newest_rows(replace(PROGRAM, compile_flags=flags), release)]


def shrink_rows(release: Toolchain, allowed: Sequence[str] = ()) -> list[FlagRow]:
    """Return the rows to try, the most promising first.

    Args:
        allowed: keys of ASSUMPTIONS. Each row is tried with all of these flags, too.

    Raises:
        UserError: the release clang has no policy for inlining, or is too old to keep the smaller of two variants.
    """
    if PROBLEM not in release.features or not has_option(release.clang, _KEEP_SMALLER):
        raise UserError(
            f"the clang in {release.directory} has no policy for {PROBLEM}, or is of an earlier version",
            "pass --release-toolchain DIR of one: mlgo toolchain --mode release --policy pretrained --output DIR",
        )
    rows = []
    for row in (PROGRAM, OBJECTS):
        rows.append(row)
        more = row
        for name in dict.fromkeys(allowed):
            more = more.with_group(name, _ALLOWABLE[name])
        if allowed:
            rows.append(replace(more, name=f"{row.name}-allowed", gives=f"{row.name} with {', '.join(allowed)}"))
    return rows
