"""A small build with everything that an extraction meets: C, C++, assembly, objects without bitcode, missing ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SOURCES = {
    "src/one.c": "int one(int a) { return a + 1; }\n",
    "src/two.cc": '#include <string>\nstd::string two(int a) { return std::to_string(a) + "two"; }\n',
    "lib/three.c": "static int f(int a) { return a * a; }\nint three(int a) { return f(a) + f(a + 1); }\n",
    "lib/plain.c": "int plain(void) { return 4; }\n",
    "lib/fast.S": ".text\n.globl fast\nfast:\n  ret\n",
    "lib/broken.c": "int broken(void) { return 5; }\n",
    "lib/empty.c": "int empty(void) { return 6; }\n",
    "lib/unbuilt.c": "int unbuilt(void) { return 7; }\n",
}
EXTRACTED = ["obj/src/one.c.o", "obj/src/two.cc.o", "obj/lib/three.c.o"]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build directory; its compile_commands.json has one entry without -o and one of each kind of object."""
    directory = tmp_path_factory.mktemp("project") / "build"
    entries: list[dict[str, object]] = []
    for name, text in SOURCES.items():
        source = directory.parent / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        output = f"obj/{name}.o"
        (directory / output).parent.mkdir(parents=True, exist_ok=True)
        embed = [] if name == "lib/plain.c" else ["-Xclang", "-fembed-bitcode=all"]
        level = "-O2" if name == "lib/three.c" else "-Oz"
        command = ["clang-19", level, *embed, '-DQUOTED="a b"', "-o", output, "-c", f"../{name}"]
        if name != "lib/unbuilt.c":
            subprocess.run(command, cwd=directory, check=True)
        entry: dict[str, object] = {"directory": str(directory), "file": str(source)}
        if name.endswith("one.c"):
            entry["arguments"] = command
        else:
            entry["command"] = " ".join(command)
        entries.append(entry)
    broken = directory / "obj/lib/broken.c.o"
    broken.write_bytes(broken.read_bytes()[:200])
    (directory / "obj/lib/empty.c.o").write_bytes(b"")
    entries.append({"directory": str(directory), "file": "gen.py", "command": "python3 gen.py"})
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    return directory
