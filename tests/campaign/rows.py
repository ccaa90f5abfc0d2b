"""Rows of a campaign: how a program is compiled and linked, and what it is compared with."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Tool = Literal["stock", "ours", "gcc"]

LTO = ("-Oz", "-flto")
THIN = ("-Oz", "-flto=thin")
POLICY = "-Wl,-mllvm,-enable-ml-inliner=release"
EVERYWHERE = "-Wl,-mllvm,-mlgo-variants=heuristic+everywhere"
POLICY_EVERYWHERE = "-Wl,-mllvm,-mlgo-variants=policy+everywhere"
EXPERIMENTAL = "-Wl,-mllvm,-mlgo-experimental,-mllvm,-mlgo-variants="
STOCK_PIPELINE = ("-mllvm", "-mlgo-whole-program=0")
AARCH64 = "--target=aarch64-linux-gnu"
SANITIZE = (
    "-O0",
    "-fsanitize=undefined,address",
    "-fno-sanitize=function,vptr,null",
    "-fno-sanitize-recover=undefined",
)


@dataclass(frozen=True)
class Row:
    """One way to build a program.

    Attributes:
        compile: options of each compile, before the flags of the file.
        link: options of the link.
        mixed: options of the compiles of the files in turn, in place of `compile`.
        reference: the row whose program prints what is right.
        same_text: the row whose program must have the same `.text`.
        usual: run without --rows.
        witness: by stock tools; run only where a row of ours does something else than the reference.
        archive: all files but main.c are members of an archive.
        shared: the first half of the files is a shared library.
        plan: links with random inlining decisions.
        cache: links twice with a new ThinLTO cache, and compares the two files.
        identity: right for programs that compare addresses of functions.
        emulator: runs the program.
        unsafe: kinds that the row is not right for.
    """

    name: str
    tool: Tool
    compile: tuple[str, ...]
    link: tuple[str, ...] = ()
    mixed: tuple[tuple[str, ...], ...] = ()
    reference: str = "O0"
    same_text: str | None = None
    usual: bool = True
    witness: bool = False
    shared: bool = False
    archive: bool = False
    plan: bool = False
    cache: bool = False
    identity: bool = True
    emulator: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()


HIDDEN = ("-fvisibility=hidden",)
QEMU = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")
ROWS = {
    row.name: row
    for row in (
        Row("O0", "stock", ("-O0",)),
        Row("stock-O2", "stock", ("-O2",)),
        Row("stock-lto", "stock", LTO),
        Row("stock-thin", "stock", THIN, usual=False, witness=True),
        Row("stock-Oz", "stock", ("-Oz",), usual=False, witness=True),
        Row("stock-Oz-g", "stock", ("-Oz", "-g"), same_text="stock-Oz", usual=False, witness=True),
        Row("stock-lto-g", "stock", (*LTO, "-g"), same_text="stock-lto", usual=False, witness=True),
        Row("gcc-O0", "gcc", ("-O0",), usual=False),
        Row("sanitize", "stock", SANITIZE, SANITIZE, usual=False, unsafe=("trapv", "null", "memory", "allocator")),
        Row("Oz", "ours", ("-Oz",)),
        Row("Oz-fold", "ours", ("-Oz", "-mllvm", "-mlgo-fold=1")),
        Row("Oz-policy", "ours", ("-Oz", "-mllvm", "-enable-ml-inliner=release"), usual=False),
        Row("Oz-keep-smaller", "ours", ("-Oz", "-mllvm", "-mlgo-keep-smaller"), usual=False),
        Row("Os-lto", "ours", ("-Os", "-flto")),
        Row("lto", "ours", LTO),
        Row("lto-no-fold", "ours", LTO, ("-Wl,-mllvm,-mlgo-fold=0",), usual=False),
        Row("lto-stock-pipeline", "ours", (*LTO, *STOCK_PIPELINE), ("-Wl,-mllvm,-mlgo-whole-program=0",), usual=False,
            unsafe=("allocator",)),  # LLVM's own passes crash on it
        Row("lto-policy", "ours", LTO, (POLICY,)),
        Row("lto-everywhere", "ours", LTO, (EVERYWHERE,)),
        Row("lto-policy-everywhere", "ours", LTO, (POLICY_EVERYWHERE,)),
        Row("lto-experimental", "ours", LTO, (f"{EXPERIMENTAL}heuristic+everywhere+ipra+ir-outliner",)),
        Row("lto-ipra", "ours", LTO, (f"{EXPERIMENTAL}heuristic+ipra",)),
        Row("lto-keep-smaller", "ours", LTO, ("-Wl,-mllvm,-mlgo-keep-smaller",)),
        Row("lto-hidden", "ours", LTO + HIDDEN, ("-Wl,--gc-sections,--icf=all",), identity=False),
        Row("lto-hidden-safe", "ours", LTO + HIDDEN, ("-Wl,--gc-sections,--icf=safe",)),
        Row("stock-hidden-safe", "stock", LTO + HIDDEN, ("-Wl,--gc-sections,--icf=safe",), usual=False, witness=True),
        Row("lto-plan", "ours", LTO, plan=True),
        Row("lto-static", "ours", LTO, ("-static",), usual=False, unsafe=("ifunc", "memory", "allocator")),
        Row("lto-shared", "ours", (*LTO, "-fPIC"), shared=True, usual=False),
        Row("stock-shared", "stock", (*LTO, "-fPIC"), shared=True, usual=False, witness=True),
        Row("lto-archive", "ours", LTO, archive=True, usual=False),
        Row("thin-archive", "ours", THIN, archive=True, usual=False),
        Row("lto-no-pie", "ours", (*LTO, "-fno-pie"), ("-no-pie",), usual=False),
        Row("lto-large", "ours", (*LTO, "-mcmodel=large", "-fno-pie"), ("-no-pie", "-mcmodel=large"), usual=False),
        Row("stock-large", "stock", (*LTO, "-mcmodel=large", "-fno-pie"), ("-no-pie", "-mcmodel=large"),
            usual=False, witness=True),
        Row("lto-retpoline", "ours", (*LTO, "-mretpoline"), usual=False),
        Row("lto-g", "ours", (*LTO, "-g"), same_text="lto"),
        Row("lto-policy-g", "ours", (*LTO, "-g"), (POLICY,), same_text="lto-policy", usual=False),
        Row("lto-everywhere-g", "ours", (*LTO, "-g"), (EVERYWHERE,), same_text="lto-everywhere", usual=False),
        Row("lto-policy-everywhere-g", "ours", (*LTO, "-g"), (POLICY_EVERYWHERE,),
            same_text="lto-policy-everywhere", usual=False),
        Row("Oz-g", "ours", ("-Oz", "-g"), same_text="Oz", usual=False),
        Row("Oz-fold-g", "ours", ("-Oz", "-g", "-mllvm", "-mlgo-fold=1"), same_text="Oz-fold", usual=False),
        Row("thin", "ours", THIN),
        Row("thin-jobs", "ours", THIN, ("-Wl,--thinlto-jobs=2",), same_text="thin", usual=False),
        Row("thin-cache", "ours", THIN, ("-Wl,--thinlto-jobs=2",), cache=True, usual=False),
        Row("thin-policy", "ours", THIN, (POLICY,), usual=False),
        Row("mixed", "ours", (), LTO, mixed=(LTO, ("-O2", "-flto"), THIN, ("-Oz",), ("-O2",))),
        Row("stock-mixed", "stock", (), LTO, mixed=(LTO, ("-O2", "-flto"), THIN, ("-Oz",), ("-O2",)),
            usual=False, witness=True),
        Row("a64-O0", "stock", (AARCH64, "-O0"), (AARCH64,), reference="a64-O0", usual=False, emulator=QEMU),
        Row("a64-stock-lto", "stock", (AARCH64, *LTO), (AARCH64,), reference="a64-O0", usual=False, emulator=QEMU),
        Row("a64-Oz", "ours", (AARCH64, "-Oz"), (AARCH64,), reference="a64-O0", usual=False, emulator=QEMU),
        Row("a64-lto", "ours", (AARCH64, *LTO), (AARCH64,), reference="a64-O0", usual=False, emulator=QEMU),
        Row("a64-lto-everywhere", "ours", (AARCH64, *LTO), (AARCH64, EVERYWHERE), reference="a64-O0", usual=False,
            emulator=QEMU),
        Row("a64-thin", "ours", (AARCH64, *THIN), (AARCH64,), reference="a64-O0", usual=False, emulator=QEMU),
    )
}  # fmt: skip
"""All rows by name; a row comes after those that it is compared with."""


def select_rows(names: str) -> list[Row]:
    """Return rows by a list of names: `usual`, `all` (but for another processor, gcc and sanitizers), `a64`, or rows.

    Witnesses are among them only by their own names.

    Rows that the named ones are compared with are added.

    Raises:
        KeyError: there is no row of a name.
    """
    chosen: set[str] = set()
    for name in names.split(","):
        if name == "usual":
            chosen |= {row.name for row in ROWS.values() if row.usual}
        elif name == "all":
            chosen |= {r.name for r in ROWS.values() if not (r.emulator or r.witness or r.tool == "gcc")}
            chosen -= {"sanitize"}
        elif name == "a64":
            chosen |= {row.name for row in ROWS.values() if row.emulator}
        else:
            chosen.add(ROWS[name].name)
    for row in reversed(list(ROWS.values())):
        if row.name in chosen:
            chosen |= {row.reference} | ({row.same_text} if row.same_text else set())
    return [row for row in ROWS.values() if row.name in chosen]


def sample_rows(rows: list[Row], seed: int, number: int) -> list[Row]:
    """Return the usual rows and those of `a64` among `rows`, and `number` of the others; the same for the same seed."""
    always = {row.name for row in rows if row.usual or row.emulator}
    others = [row.name for row in rows if row.name not in always]
    chosen = always | set(random.Random(f"rows {seed}").sample(others, min(number, len(others))))
    return select_rows(",".join(chosen))
