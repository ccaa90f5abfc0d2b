"""Small builds to extract from: C, C++, assembly, objects without bitcode, missing and broken objects; and ThinLTO."""

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


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build directory whose compile_commands.json has an entry without -o and one for each kind of object."""
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


LINKED = {
    "app/main.cc": (
        '#include <string>\nextern "C" int helper(int);\nstd::string name(int);\n'
        "int main(int argc, char **) { return helper(argc) + (int)name(argc).size(); }\n"
    ),
    "lib/helper.c": (
        "int leaf(int);\nstatic int twice(int a) { return a * 2; }\n"
        "int helper(int x) { return twice(x) + leaf(x + 1) * leaf(x); }\n"
    ),
    "lib/leaf.c": "int leaf(int x) { return x * x - 3; }\nint unused(int x) { return leaf(x) - 7; }\n",
    "lib/name.cc": '#include <string>\nstd::string name(int a) { return std::to_string(a) + "name"; }\n',
}
LEVELS = {"app/main.cc": "-O2", "lib/helper.c": "-O3", "lib/leaf.c": "-Oz", "lib/name.cc": "-O2"}
POST_MERGE = ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"]


def run(directory: Path, *command: str) -> None:
    subprocess.run(command, cwd=directory, check=True)


@pytest.fixture(scope="session")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build with distributed ThinLTO, as build systems run it: index, compile each object's back end, link.

    thin/*.o have the modules and thin/*.o.thinlto.bc their indexes. obj/*.o are the native objects with bitcode, listed
    in compile_commands.json and link.params; plain/*.o are the same objects without bitcode. All paths are relative.
    """
    directory = tmp_path_factory.mktemp("distributed")
    objects = {name: f"{name}.o" for name in LINKED}
    for name, text in LINKED.items():
        for folder in ("src", "thin", "obj", "plain"):
            (directory / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "src" / name).write_text(text)
        run(directory, "clang-19", LEVELS[name], "-flto=thin", "-c", f"src/{name}", "-o", f"thin/{name}.o")
    thin = [f"thin/{name}" for name in objects.values()]
    link = ["clang++-19", "-fuse-ld=lld"]
    run(directory, *link, "-flto=thin", "-Wl,--thinlto-index-only=order", "-o", "program", *thin)
    entries = []
    for name, output in objects.items():
        index = f"-fthinlto-index=thin/{output}.thinlto.bc"
        command = ["clang-19", LEVELS[name], "-c", "-x", "ir", f"thin/{output}", index]
        run(directory, *command, "-o", f"plain/{output}")
        command += [*POST_MERGE, "-o", f"obj/{output}"]
        run(directory, *command)
        entries.append({"directory": str(directory), "file": f"src/{name}", "arguments": command})
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    natives = [f"obj/{output}" for output in objects.values()]
    params = ["-o", "program", natives[0], "-Wl,--start-lib", *natives[1:], "-Wl,--end-lib", "-lm"]
    (directory / "link.params").write_text("\n".join(params) + "\n")
    run(directory, *link, "@link.params")
    return directory


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build with local ThinLTO and one object in an archive; lld wrote the objects lto/program.o1, .o2 etc."""
    directory = tmp_path_factory.mktemp("local")
    for name, text in LINKED.items():
        for folder in ("src", "obj", "lto"):
            (directory / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "src" / name).write_text(text)
        run(directory, "clang-19", "-O2", "-flto=thin", "-c", f"src/{name}", "-o", f"obj/{name}.o")
    run(directory, "llvm-ar-19", "rc", "obj/lib/leaf.a", "obj/lib/leaf.c.o")
    (directory / "obj/lib/leaf.c.o").unlink()
    inputs = ["obj/app/main.cc.o", "obj/lib/helper.c.o", "obj/lib/name.cc.o", "obj/lib/leaf.a"]
    save = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files", "-Wl,--lto-obj-path=lto/program.o"]
    run(directory, "clang++-19", "-fuse-ld=lld", "-flto=thin", "-O2", *save, "-o", "program", *inputs)
    return directory
