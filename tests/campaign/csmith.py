"""Programs of Csmith with varied options, split into files."""

from __future__ import annotations

import random
import re
import subprocess
import tempfile

from tests.campaign.program import Program, neutral_flags

HEADERS = ("-I/usr/include/csmith", "-mcrc32")
"""Flags of each file; the builtins that Csmith calls need the instruction."""
SWITCHES = (
    "argc",
    "arrays",
    "bitfields",
    "comma-operators",
    "compound-assignment",
    "consts",
    "divs",
    "embedded-assigns",
    "jumps",
    "longlong",
    "math64",
    "muls",
    "packed-struct",
    "pointers",
    "structs",
    "unions",
    "volatiles",
    "volatile-pointers",
    "const-pointers",
    "global-variables",
    "builtins",
    "inline-function",
)


def split_program(program: str, number: int) -> dict[str, str]:
    """Split a program into a header and files that use each other's functions and variables.

    Csmith's own --max-split-files leaves out the types, and keeps everything static.
    """
    types, _, rest = program.partition("/* --- GLOBAL VARIABLES --- */\n")
    rest = re.sub(r"^static ", "", rest, flags=re.MULTILINE)
    variables, _, rest = rest.partition("/* --- FORWARD DECLARATIONS --- */\n")
    declarations, _, rest = rest.partition("/* --- FUNCTIONS --- */\n")
    functions, divider, main = rest.rpartition("/* ---------------------------------------- */\n")
    assert variables and declarations and divider
    # A declaration without it makes an inline function one that other files can call.
    declarations = re.sub(r"^inline (static )?", "", declarations, flags=re.MULTILINE)
    functions = re.sub(r"^inline static ", "inline ", functions, flags=re.MULTILINE)
    declared = (re.split(" = |;", line)[0] for line in variables.splitlines() if re.match(r"[a-z].*\bg_\d", line))
    extern = "".join(f"extern {variable};\n" for variable in declared)
    bodies = functions.split("/* ------------------------------------------ */\n")
    files = {f"part{part}.c": '#include "program.h"\n' + "".join(bodies[part::number]) for part in range(number)}
    return {"program.h": types + extern + declarations, **files, "main.c": '#include "program.h"\n' + variables + main}


def generate_csmith(seed: int) -> Program:
    """Return a program of Csmith; the same for the same seed and Csmith."""
    rng = random.Random(f"csmith {seed}")
    switches = [f"--no-{s}" if rng.random() < 0.25 else f"--{s}" for s in SWITCHES if rng.random() < 0.6]
    sizes = ["--max-funcs", str(rng.choice([3, 5, 8])), "--max-block-depth", str(rng.choice([2, 3, 4]))]
    sizes += ["--max-expr-complexity", str(rng.choice([4, 7, 10])), "--max-block-size", str(rng.choice([2, 4]))]
    command = ["csmith", "--seed", str(seed), *sizes, *switches]
    with tempfile.TemporaryDirectory() as directory:  # csmith writes platform.info where it runs
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=directory)
        if done.returncode:
            command = ["csmith", "--seed", str(seed), *sizes]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory)
    files = split_program(done.stdout, rng.choice([1, 2, 3]))
    names = [name for name in files if name.endswith(".c")]
    rng.shuffle(names)
    flags = {name: (*HEADERS, *(f for f in neutral_flags("c", rng) if f not in ("-ftrapv",))) for name in names}
    return Program(seed, files, flags, ("csmith",))
