"""Write C and C++ sources of dispatchers: a switch, a row of calls or a table over many static functions.

Interpreters, protocol parsers and start-up code have such functions. One decision of theirs differs little from the
next, so a policy that is wrong about one call is wrong hundreds of times. It is wrong most where each handler has a few
calls: LLVM's heuristic keeps the handlers as functions, and each inlined call adds a copy.

  generate.py DIRECTORY [--sizes 100,300,1000]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

FORMS = ("switch", "calls", "table")
USES = {"switch": (1, 5, 8), "calls": (1, 5, 8), "table": (1,)}
"""Numbers of calls of each handler."""
STYLES = (
    ("x ^= x << {n};", "x *= k;", "x += {i} * 31;", "x ^= x >> {m};"),
    ("x += k * {i};", "x ^= x >> {n};", "x *= {i} * 2 + 1;"),
    ("x = x * {i} + k;", "machine.reg[{m}] = x;", "x ^= x << {n};", "x -= k * {m};"),
    ("machine.reg[{m}] += x;", "machine.flags ^= k;", "x = machine.reg[x & 15] + {i};"),
    ("if (x > k) x = report(x, {i});", "machine.stack[machine.top++ & 31] = x;"),
)
"""Bodies of handlers: those of one module resemble each other, as in real dispatchers."""
PREAMBLE = """\
struct state { int reg[16]; unsigned flags; int stack[32]; int top; };
extern struct state machine;
int report(int value, int code);
"""


def sources(sizes: list[int]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the sources: for each form, size and number of uses one in C and one in C++."""
    rng = random.Random(0)
    for form in FORMS:
        for size in sizes:
            for uses in USES[form]:
                for suffix, style in zip(("c", "cpp"), rng.sample(STYLES, 2), strict=True):
                    yield f"{form}_{size}_{uses}.{suffix}", _source(form, size, uses, style, rng, suffix == "cpp")


def _source(form: str, size: int, uses: int, style: tuple[str, ...], rng: random.Random, cpp: bool) -> str:
    handlers = max(1, size // uses)
    linkage = 'extern "C" ' if cpp else ""
    lines = [PREAMBLE.replace("int report", f"{linkage}int report")]
    for i in range(handlers):
        body = [text.format(i=i + 3, n=rng.randrange(1, 9), m=rng.randrange(1, 16)) for text in style]
        lines += [f"static int handle_{i}(int x, int k) {{", *(f"  {text}" for text in body), "  return x;", "}"]
    if form == "switch":
        cases = [f"  case {i}: return handle_{i % handlers}(x, {i});" for i in range(size)]
        lines += [f"{linkage}int dispatch(int op, int x) {{", "  switch (op) {", *cases, "  }", "  return -1;", "}"]
    elif form == "calls":
        calls = [f"  x += handle_{i % handlers}(x, {i});" for i in range(size)]
        lines += [f"{linkage}int run(int x) {{", *calls, "  return x;", "}"]
    else:
        names = ", ".join(f"handle_{i}" for i in range(handlers))
        lines += [
            f"static int (*const handlers[])(int, int) = {{ {names} }};",
            f"{linkage}int dispatch(unsigned op, int x) {{",
            f"  return op < {handlers} ? handlers[op](x, (int)op) : -1;",
            "}",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the sources to a directory."""
    parser = argparse.ArgumentParser(description="Write sources of dispatchers.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sizes", default="100,300,1000", help="numbers of cases, separated by commas")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for name, text in sources([int(size) for size in arguments.sizes.split(",")]):
        (arguments.directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
