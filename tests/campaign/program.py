"""Programs of several files whose functions are nearly equal, written from a seed.

A program has families of units. A unit is text with one or more functions, and a function `$use` that prints what they
compute; the units of a family have one shape and differ in one thing. Units are placed in one file or in several.

Placeholders in the text of a unit:
    $name: an identifier of the unit. Static functions of units in different files may get the same name.
    $$name: an identifier of the family, which all of its units share.
    @static, @extern: linkage and attributes of a function; @extern never is static.
    @dress(x): statements that all units of the family have, and that use the integer x.
    @via(f): `f`, or an opaque pointer to f.
    SAY(x), SAYD(x): print an integer or a double, after the label of the unit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Language = Literal["c", "cc"]

HEADER = """\
#ifdef __cplusplus
extern "C" {
#define THREAD_LOCAL thread_local
#define ALIGNOF alignof
#else
#define THREAD_LOCAL _Thread_local
#define ALIGNOF _Alignof
#endif
typedef long long i64;
typedef unsigned long ulong;
extern volatile int one, zero;
extern ulong trace;
void say(const char *label, i64 value);
void sayd(const char *label, double value);
long step(long a, long b, long c, long d);
void *opaque(void *p);
#define NOINLINE __attribute__((noinline))
#define VIA(f) (__extension__({ __typeof__(&f) volatile via_ = &f; via_; }))
#ifdef __clang__
#define ASSUME(x) __builtin_assume(x)
#else
#define ASSUME(x) ((x) ? (void)0 : __builtin_unreachable())
#endif
"""
MAIN = """\
#include "program.h"
#include <stdio.h>
volatile int one = 1, zero = 0;
ulong trace = 7;
void say(const char *label, i64 value) { printf("%s %lld\\n", label, value); fflush(stdout); }
void sayd(const char *label, double value) { printf("%s %a\\n", label, value); fflush(stdout); }
NOINLINE long step(long a, long b, long c, long d) {
  trace = trace * 31 + (ulong)a * 7 + (ulong)b * 5 + (ulong)c * 3 + (ulong)d;
  return (long)(trace & 1023);
}
void *opaque(void *p) { void *volatile q = p; return q; }
"""
NEUTRAL_FLAGS: dict[str, Sequence[str]] = {
    "c": ("-fexceptions", "-fno-common", "-fgnu89-inline"),
    "cc": ("-fstrict-vtable-pointers", "-fno-threadsafe-statics", "-std=c++20", "-fstrict-enums"),
    "both": (
        "-fno-strict-aliasing",
        "-fwrapv",
        "-fno-math-errno",
        "-g",
        "-O0",
        "-O1",
        "-O2",
        "-O3",
        "-Os",
        "-Oz",
        "-fno-plt",
        "-fno-jump-tables",
        "-ffunction-sections",
        "-fno-inline",
        "-fno-unroll-loops",
        "-fstack-protector-strong",
        "-fno-optimize-sibling-calls",
        "-fno-omit-frame-pointer",
        "-fno-delete-null-pointer-checks",
        "-ffp-contract=off",
        "-frounding-math",
        "-ftrapv",
        "-fno-strict-overflow",
        "-fno-asynchronous-unwind-tables",
        "-ftrivial-auto-var-init=pattern",
        "-fno-builtin",
        "-fno-builtin-memset",
        "-fno-vectorize",
        "-fdata-sections",
        "-fPIC",
        "-fzero-call-used-regs=used",
        "-fno-slp-vectorize",
    ),
}
"""Flags that change nothing in what a program without undefined behavior prints."""
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os", "-Oz", "-g")
"""Flags that do not change what is right in any file."""
X86_FLAGS = ("-fcf-protection=full", "-mno-red-zone", "-mpopcnt", "-mrtm", "-fstack-clash-protection", "-mtune=znver4")
"""Neutral flags of x86-64; -mpopcnt because every processor of the last ten years has it."""
ATTRIBUTES = (
    "cold",
    "hot",
    "minsize",
    "used",
    "aligned(32)",
    "flatten",
    "no_stack_protector",
    "disable_tail_calls",
    "no_builtin",
    "noinline",
    "nomerge",
    "uwtable",
    "no_sanitize_address",
    "noinline, optnone",
    'section("odd")',
    "no_instrument_function",
    "always_inline",
)
DRESSES = (
    "",
    "",
    "trace += (ulong)(%X%);",
    "step((long)(%X%), 3, 5, 7);",
    "if (one > 3) step(1111, 2222, 3333, (long)(%X%));",
    "for (int i_ = 0; i_ < one + 1; i_++) trace = trace * 3 + (ulong)i_ + (ulong)(%X%);",
    "step(1234567, 2345678, 3456789, (long)(%X%)); step(1234567, 2345678, 3456789, 4); trace ^= 0x1234567;",
    "switch ((int)(%X%) & 3) { case 0: trace += 5; break; case 1: trace ^= 9; break; case 2: step(1, 2, 3, 4); "
    "break;"
    " default: trace *= 3; }",
    'do { static const char text_[] = "dress"; trace += (ulong)text_[(int)(%X%) & 3]; } while (0);',
    "do { volatile long spill_ = (long)(%X%); trace += (ulong)spill_; } while (0);",
    "if (__builtin_expect(zero, 0)) trace = (ulong)step(9, 9, 9, 9);",
)


@dataclass(frozen=True)
class Unit:
    """Functions and `$use`, which prints what they compute.

    Attributes:
        flags: what the file has to be compiled with; the unit does not share it with units that need something else.
        language: where it is another than the family's.
    """

    text: str
    flags: tuple[str, ...] = ()
    language: Language | None = None


@dataclass(frozen=True)
class Family:
    """Units of one shape.

    Attributes:
        language: of the files; None for one that is both C and C++.
        header: text that each file with a unit includes, such as templates.
        identity: compares addresses of functions, so `--icf=all` is no right link of it.
        together: its files must be linked into one program or one shared library.
        exact: the flags of its files decide what is right, so no neutral flags are added.
        apart: the units have to be in different files.
        attributes: the functions may have different attributes.
        external: symbols other than `$use` are visible to other files, whatever @static is.
        single: a program has at most one family of this kind.
    """

    kind: str
    units: Sequence[Unit]
    language: Language | None = None
    header: str = ""
    identity: bool = False
    together: bool = False
    exact: bool = False
    apart: bool = False
    attributes: bool = True
    single: bool = False
    external: bool = False
    libraries: tuple[str, ...] = ()


Kind = Callable[[random.Random], Family]


@dataclass
class SourceFile:
    """A file of a program.

    Attributes:
        flags: after the options of the row.
        exact: the flags decide what is right.
    """

    name: str
    flags: tuple[str, ...] = ()
    exact: bool = False
    headers: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def text(self) -> str:
        includes = "".join(f'#include "{header}"\n' for header in ["program.h", *dict.fromkeys(self.headers)])
        return includes + "\n".join(self.texts) + "\n"


@dataclass(frozen=True)
class Program:
    """Files to compile and link.

    Attributes:
        files: texts by name, headers too.
        flags: of each source file, after the options of a row.
        kinds: of its families, in their order.
        identity, together: of any family.
    """

    seed: int
    files: dict[str, str]
    flags: dict[str, tuple[str, ...]]
    kinds: tuple[str, ...]
    identity: bool = False
    together: bool = False
    libraries: tuple[str, ...] = ()

    @property
    def sources(self) -> list[str]:
        return list(self.flags)


def fill(text: str, **values: object) -> str:
    """Replace each `%name%` of a template."""
    for name, value in values.items():
        text = text.replace(f"%{name}%", str(value))
    return text


class _Placement:
    """Names, linkage and dress of the units of one family."""

    def __init__(self, rng: random.Random, family: Family, number: int, language: Language) -> None:
        self.rng, self.family, self.number = rng, family, number
        self.count = len(family.units)
        first = family.units[0]
        split = family.apart or any(u.flags != first.flags or u.language != first.language for u in family.units)
        self.split = split or rng.random() < 0.4
        # Two types of one name in C++ files would have to be one type.
        types = language == "cc" and any(re.search(r"\b(struct|union|enum|class) \$[^$]", u.text) for u in family.units)
        self.same_names = self.split and not family.external and not types and rng.random() < 0.5
        self.linkage = rng.choice(
            [
                *("static ", "static ", "static NOINLINE ", "static NOINLINE ", "static inline ", "", "NOINLINE "),
                *('__attribute__((visibility("hidden"))) ', "__attribute__((weak)) "),
            ]
        )
        if self.linkage.startswith("__attribute__((weak") and any("namespace {" in unit.text for unit in family.units):
            self.linkage = ""
        self.external = rng.choice(["", "NOINLINE ", '__attribute__((visibility("hidden"))) '])
        self.dresses = [rng.choice(DRESSES) for _ in range(6)] if rng.random() < 0.7 else [""]
        self.vias = [rng.random() < 0.3 for _ in range(6)]
        self.odd_unit = rng.randrange(self.count) if family.attributes and rng.random() < 0.3 else -1
        self.attribute = rng.choice(ATTRIBUTES)

    def place(self, index: int, unit: Unit) -> str:
        text = unit.text
        static = self.linkage.startswith("static")
        odd = ""
        if index == self.odd_unit and not ("NOINLINE" in self.linkage and "always_inline" in self.attribute):
            odd = f"__attribute__(({self.attribute})) "
            if self.attribute == "always_inline" and not static:
                odd = ""
        dresses, vias = iter(self.dresses * 20), iter(self.vias * 20)
        text = text.replace("@static", odd + self.linkage.rstrip())
        text = text.replace("@extern", odd.replace("always_inline", "cold") + self.external.rstrip())
        text = re.sub(r"@dress\(([^()]*)\)", lambda found: fill(next(dresses), X=found[1]), text)
        text = re.sub(r"@via\(([^()]*)\)", lambda found: f"VIA({found[1]})" if next(vias) else found[1], text)
        label = f'"{self.family.kind}.{self.number}.{index}"'
        text = text.replace("@label", label)
        text = re.sub(r"\bSAY(D?)\(", lambda found: f"say{found[1].lower()}({label}, ", text)
        text = text.replace("$use", f"use_{self.number}_{index}")
        text = re.sub(r"\$\$(\w+)", rf"\1_{self.number}", text)
        shared = self.same_names and static
        suffix = f"{self.number}" if shared else f"{self.number}_{index}"
        return re.sub(r"\$([A-Za-z]\w*)", rf"\1_{suffix}", text)


def build_program(seed: int, families: Sequence[Family], rng: random.Random) -> Program:
    """Place families in files.

    Args:
        seed: the number that reports name the program by.
        rng: draws places, linkage, attributes and flags.
    """
    files = {"program.h": ""}
    sources: list[SourceFile] = []
    uses: list[str] = []
    limit = rng.choice([2, 3, 4])

    def source(language: Language, exact: bool, needed: tuple[str, ...], besides: Sequence[SourceFile]) -> SourceFile:
        fitting = [
            s
            for s in sources
            if s.name.endswith("." + language)
            and s not in besides
            and s.exact == exact
            and set(needed) <= set(s.flags)
            # A file with one of these flags decides more than a family that does not need it expects.
            and (not exact or set(s.flags) - set(LEVELS) == set(needed))
        ]
        if fitting and (len(sources) >= limit or rng.random() < 0.6):
            return rng.choice(fitting)
        if exact:
            flags = needed + ((rng.choice(LEVELS),) if rng.random() < 0.3 else ())
        else:
            flags = neutral_flags(language, rng)
        sources.append(SourceFile(f"part{len(sources)}.{language}", flags, exact))
        return sources[-1]

    for number, family in enumerate(families):
        languages: tuple[Language, ...] = ("c", "c", "cc")
        language: Language = rng.choice(languages) if family.language is None else family.language
        placement = _Placement(rng, family, number, language)
        if family.header:
            name = f"family{number}.h"
            files[name] = "#pragma once\n" + re.sub(r"\$\$(\w+)", rf"\1_{number}", family.header)
        used: list[SourceFile] = []
        previous: SourceFile | None = None
        for index, unit in enumerate(family.units):
            exact = family.exact or bool(unit.flags)
            if placement.split or previous is None:
                previous = source(unit.language or language, exact, unit.flags, used)
                used.append(previous)
            if family.header:
                previous.headers.append(f"family{number}.h")
            text = placement.place(index, unit)
            previous.texts.append(text)
            uses.append(f"use_{number}_{index}")
    order = list(uses)
    if rng.random() < 0.3:
        rng.shuffle(order)
    if rng.random() < 0.3:
        order += rng.sample(uses, min(2, len(uses)))
    files["program.h"] = (
        "#pragma once\n" + HEADER + "".join(f"void {use}(void);\n" for use in uses) + "#ifdef __cplusplus\n}\n#endif\n"
    )
    files["main.c"] = (
        MAIN
        + "int main(void) {\n"
        + "".join(f"  {use}();\n" for use in order)
        + '  say("trace", (i64)(trace & 0xffffff));\n  return (int)(trace & 63);\n}\n'
    )
    rng.shuffle(sources)
    files |= {part.name: part.text() for part in sources}
    names = [part.name for part in sources]
    main_at = rng.randrange(len(names) + 1)
    flags = {part.name: part.flags for part in sources}
    ordered = [*names[:main_at], "main.c", *names[main_at:]]
    return Program(
        seed,
        files,
        {name: flags.get(name, ()) for name in ordered},
        tuple(family.kind for family in families),
        any(family.identity for family in families),
        any(family.together for family in families),
        tuple(dict.fromkeys(library for family in families for library in family.libraries)),
    )


def neutral_flags(language: Language, rng: random.Random) -> tuple[str, ...]:
    """Return flags of a file that do not change what it does."""
    if rng.random() < 0.5:
        return ()
    choices = [*NEUTRAL_FLAGS["both"], *NEUTRAL_FLAGS[language]]
    return tuple(rng.sample(choices, rng.choice([1, 1, 2])))
