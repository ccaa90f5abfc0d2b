"""The rows of `mlgo evaluation flags`: flags that make linked programs smaller, from none to whole-program builds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from components.core import problems
from components.core.compiler.advisor import OUTLINER_OPTION as _OUTLINE
from components.core.compiler.clang_programs import BINUTILS, is_gcc, llvm_binutils
from components.core.compiler.inline_plan import plan_flags
from components.core.compiler.probe import has_option
from components.core.formats.toolchain import PLUGIN, Toolchain
from components.core.projects.compiler_command import installed_compilers
from components.core.projects.flags.build_variants import HEURISTIC_OPTION, BuildVariant, require_same_version
from components.core.projects.flags.link_variants import LINK_VARIANTS
from components.core.projects.flags.types import CompilerOfRow
from components.platform.errors import UserError

PROBLEM = "inlining"
NO_UNWIND, NO_PIE = "no-unwind-tables", "no-pie"
ALL_ROWS = "all"
ICF_KINDS = ("safe", "all")
_HIDDEN = LINK_VARIANTS["hidden"]
_WHOLE_PROGRAMS = ("program", "program-smallest", "program-smallest-experimental")
_WHOLE_PROGRAM, _KEEP_SMALLER = "-mlgo-whole-program", "-mlgo-keep-smaller"
_EXPERIMENTAL = "-mlgo-experimental"
_EXPERIMENTAL_VARIANTS = (
    "heuristic",
    "policy",
    "heuristic+everywhere+ipra",
    "policy+everywhere+ipra",
    "heuristic+everywhere+ipra+ir-outliner",
)
"""The smallest of more variants saves less than 0.1% more (docs/whole-programs.md, "Never larger")."""
_STOCK_OUTLINER = ("-enable-machine-outliner=always", "-outliner-benefit-threshold=16")
"""LLVM's outliner, off by default on x86-64, where it does not count the unwind entry of a new function: below 16 bytes
it makes programs larger."""

GCC_LEVELS = ("-Os", "-Oz")
_GNU_LINK = ("-Wl,--gc-sections", "-Wl,-z,noseparate-code", "-Wl,-O1", "-Wl,--hash-style=gnu")
_GNU_LTO = ("-flto=auto",)
_FAT_OBJECTS = "-ffat-lto-objects"  # code for tools of the build that read objects
_NOT_OF_GCC = ("-flto", "-fuse-ld=", "-Wl,--icf=")
"""Starts of flags that clang and lld have, and gcc and GNU ld do not, or have in another form."""
NEWEST = "newest"
OTHER_ROWS = (*(f"gcc{level}" for level in GCC_LEVELS), NEWEST)
"""Rows of the compilers that the user has besides stock clang and the release clang."""
_MAX_NEWER = 10
"""How many versions after the release clang's are looked for."""

_TESTED = "the program's own tests run afterwards: passes that LLVM has off in its own pipelines"


@dataclass(frozen=True)
class FlagGroup:
    """Flags that belong together, see `FlagRow`; `assumes` is "" if every program behaves as without them."""

    gives: str
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    assumes: str = ""


FLAG_GROUPS = {
    "hidden": FlagGroup(
        "unused functions are dropped",
        _HIDDEN.compile_flags,
        _HIDDEN.link_flags,
        "nothing looks up symbols of the program at run time: no plugins that use its functions",
    ),
    "icf-safe": FlagGroup("equal functions are one", link_flags=("-fuse-ld=lld", "-Wl,--icf=safe")),
    "icf-all": FlagGroup(
        "equal functions are one",
        link_flags=("-fuse-ld=lld", "-Wl,--icf=all"),
        assumes="no two functions are told apart by their addresses",
    ),
    "relr": FlagGroup(
        "packed relative relocations",
        link_flags=("-Wl,-z,pack-relative-relocs",),
        assumes="glibc 2.36 or newer where the program runs",
    ),
    "layout": FlagGroup(
        "less padding, one hash table, no build ID",
        link_flags=("-Wl,-z,noseparate-code", "-Wl,-O2", "-Wl,--hash-style=gnu", "-Wl,--build-id=none"),
    ),
    NO_UNWIND: FlagGroup(
        "no unwind tables",
        ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
        assumes="nothing unwinds the stack: C, or C++ that the build compiles with -fno-exceptions; no backtraces",
    ),
    NO_PIE: FlagGroup(
        "absolute addresses",
        ("-fno-pie",),
        ("-no-pie",),
        "programs at fixed addresses: no address space layout randomization",
    ),
}
"""Name of a row -> the flags that it adds to those before it."""
ALLOWED = {name: FLAG_GROUPS[name].assumes for name in (NO_UNWIND, NO_PIE)}
"""Rows that change what a program can do -> what they assume. Only the user can know, so they are never measured by
default; the rows that follow have their flags, too."""


@dataclass(frozen=True)
class FlagRow:
    """One row. Flags are those of all compilers, after the optimization level.

    Attributes:
        name: as users type it.
        compile_flags, link_flags: flags of clang.
        options: LLVM's options, of compiles and, in LTO, of the link.
        assumes: assumptions about the program and its users; () if every program behaves the same.
        lto: whether code is generated at the link.
        own_options: options that only the release clang has.
        program: the compiler "gcc" or "newest".
        plan: file of the plan of files that the compiler "plan" takes, if it takes one of files.
        default_flags: flags of clang for C that the build's own options replace.
    """

    name: str
    gives: str
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    lto: bool = False
    compilers: tuple[CompilerOfRow, ...] = ("stock", "policy")
    own_options: tuple[str, ...] = ()
    program: Path | None = None
    plan: Path | None = None
    default_flags: tuple[str, ...] = ()

    def with_group(self, name: str, group: FlagGroup) -> FlagRow:
        return replace(
            self,
            name=name,
            gives=group.gives,
            compile_flags=(*self.compile_flags, *group.compile_flags),
            link_flags=(*self.link_flags, *group.link_flags),
            assumes=(*self.assumes, group.assumes) if group.assumes else self.assumes,
        )

    def by(self, compilers: Sequence[CompilerOfRow]) -> FlagRow:
        """Return the row with those of its compilers that are among `compilers`."""
        return replace(self, compilers=tuple(compiler for compiler in self.compilers if compiler in compilers))

    def variant(self, compiler: CompilerOfRow, stock_clang: Path, release: Toolchain) -> BuildVariant:
        """Return the build of this row by one of its compilers."""
        title = f"{TITLES[compiler]}, {self.name}"
        if compiler == "gcc":
            assert self.program is not None
            return BuildVariant(title, self.program, list(self.compile_flags), self.link_flags, gnu=True)
        definition = problems.get(PROBLEM)
        options = [*self.options, *(self.own_options if compiler not in _STOCK else ())]
        if compiler in ("policy", "plan"):
            options += definition.llvm.release_options
        elif compiler == "heuristic":
            options += [HEURISTIC_OPTION]  # the release clang's default is its policy
        flags = [definition.optimization, *self.compile_flags]
        flags += [word for option in options for word in ("-mllvm", option)]
        if compiler == "plan" and self.plan is not None:
            flags += plan_flags(self.plan)
        at_link = tuple(f"-Wl,-mllvm,{option}" for option in options) if self.lto else ()
        plugin = release.directory / "lib" / PLUGIN
        if self.lto and compiler not in _STOCK and plugin.is_file():
            # The installed lld, which such a toolchain links with, has the policy from the plugin.
            at_link = (f"-Wl,--load-pass-plugin={plugin}", *at_link)
        clang = self.program or (stock_clang if compiler == "stock" else release.clang)
        return BuildVariant(title, clang, flags, (*self.link_flags, *at_link), default_flags=self.default_flags)


TITLES: dict[CompilerOfRow, str] = {
    "stock": "stock clang",
    "heuristic": "the release clang without its policy",
    "policy": "the release clang",
    "plan": "the release clang and the plan",
    "gcc": "your own gcc",
    "newest": "the newest clang",
}
_STOCK = ("stock", "newest")
"""Compilers without our options."""


def plan_rows(
    release: Toolchain,
    stock_clang: Path,
    names: Sequence[str] = (),
    icf: str = "all",
    allowed: Sequence[str] = (),
    plan: Path | None = None,
    experimental: bool = False,
    other_compilers: bool = False,
) -> list[FlagRow]:
    """Return the rows to measure, in an order in which each of the objects adds to the one before.

    Args:
        names: only these; () or ALL_ROWS for all that are allowed and that the release clang has.
        icf: the kind of ICF of the rows that follow those of ICF, one of ICF_KINDS.
        allowed: keys of ALLOWED that the user allows.
        plan: file of a plan: rows that the release clang compiles file by file are also built with it.
        experimental: also the rows with passes that LLVM has off in its own pipelines.
        other_compilers: also OTHER_ROWS, as far as their compilers are installed.

    Raises:
        UserError: a name is unknown, not allowed, its compiler is missing or lacks its options; the release clang
            embeds no policy, or the compilers have different versions.
    """
    if PROBLEM not in release.features:
        raise UserError(
            f"the release clang in {release.directory} embeds no policy for {PROBLEM}",
            "build a release clang with such a policy: mlgo toolchain --mode release --policy pretrained",
        )
    require_same_version(stock_clang, release)
    own = {option for option in _OWN_OPTIONS if has_option(release.clang, option)}
    rows = {row.name: row for row in _rows(icf, allowed, own, experimental)}
    if other_compilers:
        newest = [replace(row, name=NEWEST) for row in newest_rows(rows["lto"], release)]
        rows |= {row.name: row for row in [*gcc_rows(rows["lto"]), *newest]}
    names = () if ALL_ROWS in names else names
    if plan is not None:
        # Except where the program is one module: a plan has those of the files.
        rows |= {
            name: replace(row, compilers=(*row.compilers, "plan"), plan=plan)
            for name, row in rows.items()
            if "policy" in row.compilers and row.name not in _WHOLE_PROGRAMS
        }
    for name in names:
        if name in rows:
            continue
        if name in ALLOWED:
            raise UserError(f"the row {name} assumes something: {ALLOWED[name]}", f"pass --allow {name} if that holds")
        if name in _EXPERIMENTAL_ROWS and not experimental:
            raise UserError(
                f"the row {name} assumes something: {_TESTED}", "pass --experimental to mlgo evaluation flags"
            )
        if name in OTHER_ROWS:
            raise UserError(
                f"the row {name} needs {f'a clang newer than {release.llvm_version}' if name == NEWEST else 'a gcc'}",
                "install it, for a clang also its lld, or leave the row out",
            )
        if name in ROW_NAMES:
            raise UserError(
                f"the release clang in {release.directory} does not have the options of the row {name}",
                "build it again: mlgo toolchain --mode release",
            )
        raise UserError(f"there is no row {name!r}", f"choose among {', '.join(ROW_NAMES)}")
    return [row for row in rows.values() if not names or row.name in names]


def gcc_rows(row: FlagRow) -> list[FlagRow]:
    """Return the rows of the user's gcc: its levels for size, with LTO and with those flags of `row` that it has. There
    are none without a gcc."""
    gcc = next((one for one in installed_compilers(["gcc"]) if is_gcc(one)), None)
    if gcc is None:
        return []
    compile_flags, link_flags = (
        [flag for flag in flags if not flag.startswith(_NOT_OF_GCC)] for flags in (row.compile_flags, row.link_flags)
    )
    return [
        FlagRow(
            f"gcc{level}",
            f"{gcc.name} {level} with LTO and without unused sections",
            (level, *compile_flags, *_GNU_LTO, _FAT_OBJECTS),
            tuple(dict.fromkeys((*_GNU_LINK, *link_flags, *_GNU_LTO))),
            assumes=tuple(one for one in row.assumes if one != FLAG_GROUPS["icf-all"].assumes),
            lto=True,
            compilers=("gcc",),
            program=gcc,
        )
        for level in GCC_LEVELS
    ]


def newest_rows(row: FlagRow, release: Toolchain) -> list[FlagRow]:
    """Return the row of the newest installed clang that has an lld and binutils, which read its bitcode, with the flags
    of `row`. There is none if it is not newer than the release clang."""
    own = int(release.llvm_version.split(".")[0])
    for major in range(own + _MAX_NEWER, own, -1):
        path = shutil.which(f"clang-{major}")
        if path and shutil.which(f"ld.lld-{major}") and len(llvm_binutils(Path(path))) == len(BINUTILS):
            name = Path(path).name
            gives = f"{name} with full LTO, the flags of {row.name}"
            newest = replace(row, name=name, gives=gives, own_options=(), program=Path(path))
            return [replace(newest, compilers=("newest",))]
    return []


def require_compilers(rows: Sequence[FlagRow], compilers: Sequence[CompilerOfRow]) -> None:
    """Raise UserError if one of `compilers`, whose programs are to be compared, builds none of the rows."""
    for compiler in compilers:
        if not any(compiler in row.compilers for row in rows):
            raise UserError(
                f"none of the rows {', '.join(row.name for row in rows)} is built by {TITLES[compiler]}, so nothing "
                "can be compared",
                "add a row that all compilers build, such as layout or lto",
            )


def _rows(icf: str, allowed: Sequence[str], own: set[str], experimental: bool) -> list[FlagRow]:
    """Return the rows; `own` are the _OWN_OPTIONS that the release clang has."""

    def add(row: FlagRow, name: str) -> FlagRow:
        return row.with_group(name, FLAG_GROUPS[name])

    default = FlagRow("default", "the project's own build, its libraries linked statically")
    hidden = add(default, "hidden")
    safe, every = add(hidden, "icf-safe"), add(hidden, "icf-all")
    base = add(every if icf == "all" else safe, "relr")
    rows = [default, hidden, safe, every, base]
    base = add(base, "layout")
    # What the release clang's own passes give, and what its policy adds.
    apart: tuple[CompilerOfRow, ...] = ("stock", "heuristic", "policy")
    rows.append(replace(base, compilers=apart) if own else base)
    for name in (NO_UNWIND, NO_PIE):
        if name in allowed:
            base = add(base, name)
            rows.append(base)
    lto = replace(base, lto=True)
    thin = lto.with_group("thinlto", FlagGroup("ThinLTO", ("-flto=thin",), ("-flto=thin",)))
    full = lto.with_group("lto", FlagGroup("full LTO by LLVM's pipeline", ("-flto",), ("-flto",)))
    llvms = replace(full, own_options=(f"{_WHOLE_PROGRAM}=0",)) if _WHOLE_PROGRAM in own else full
    # The release clang outlines by default, where it has the option.
    by: tuple[CompilerOfRow, ...] = ("stock",)
    if _OUTLINE not in own:
        by = ("stock", "policy")
    outlined = "equal pieces of functions become functions"
    rows += [
        replace(base, name="outliner", gives=outlined, options=_STOCK_OUTLINER, compilers=by),
        thin,
        llvms,
        replace(llvms, name="lto-outliner", gives=f"the same, {outlined}", options=_STOCK_OUTLINER, compilers=by),
    ]
    ours = "full LTO by the release clang's pipeline"
    if _WHOLE_PROGRAM in own:
        rows.append(replace(full, name="program", gives=ours, compilers=("heuristic", "policy")))
    if _KEEP_SMALLER in own:
        keep = replace(base, compilers=("policy",), own_options=(_KEEP_SMALLER,))
        smallest = replace(keep, name="smallest", gives="no LTO, the smallest of each object's variants")
        rows.append(smallest)
        keep = replace(full, compilers=("policy",), own_options=(_KEEP_SMALLER,))
        program = replace(keep, name="program-smallest", gives=f"{ours}, the smallest of its variants")
        if _WHOLE_PROGRAM in own:
            rows.append(program)
        if experimental and _EXPERIMENTAL in own:
            options = (_EXPERIMENTAL, f"-mlgo-variants={':'.join(_EXPERIMENTAL_VARIANTS)}")
            rows += [
                replace(
                    row,
                    name=f"{row.name}-experimental",
                    gives=f"{row.gives}, more of them",
                    own_options=options,
                    assumes=(*row.assumes, _TESTED),
                )
                for row in (smallest, program)
                if row in rows
            ]
    return rows


_OWN_OPTIONS = (_WHOLE_PROGRAM, _KEEP_SMALLER, _OUTLINE, _EXPERIMENTAL)
ROW_NAMES = (*(row.name for row in _rows("all", list(ALLOWED), set(_OWN_OPTIONS), experimental=True)), *OTHER_ROWS)
UNCONDITIONAL_ROWS = {row.name: row for row in _rows("all", (), set(_OWN_OPTIONS), experimental=False)}
"""Those that need neither --allow nor --experimental, by name."""
_EXPERIMENTAL_ROWS = tuple(name for name in ROW_NAMES if name.endswith("-experimental"))
