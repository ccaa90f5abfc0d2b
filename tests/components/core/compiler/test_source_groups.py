"""Versions and copies of a source file are in one part of the split; different sources are not."""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from components.core.compiler.source_groups import _Groups, _Identity, _join_similar, group_by_source
from components.core.formats.bitcode_symbols import UNKNOWN, read_symbols
from components.core.formats.corpus import Module
from components.corpus.split import SplitConfig, split_modules

CODE = "static int s{i}(int x) {{ return x * {i}; }}\nint f{i}(int x) {{ return s{i}(x) + s{i}(x + MORE); }}\n"
PROGRAM = (
    "int put(int);\nstatic int helper(int x) {{ return put(x) * {i}; }}\nint main(void) {{ return helper({i}); }}\n"
)


def compile_module(corpus: Path, name: str, source: Path, *flags: str, clang: str = "clang-19") -> Module:
    """Add the module of a source, which is compiled in its directory, to a corpus."""
    bitcode = corpus / f"{name}.bc"
    bitcode.parent.mkdir(parents=True, exist_ok=True)
    command = [clang, "-Oz", "-DMORE=1", *flags, "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-c", source.name]
    command += ["-o", str(bitcode)]
    subprocess.run(command, cwd=source.parent, check=True)
    arguments = ["-cc1", "-Oz", f"-fdebug-compilation-dir={source.parent}"]
    (corpus / f"{name}.cmd").write_text("".join(f"{argument}\0" for argument in arguments))
    return Module(name, corpus)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def groups(modules: list[Module]) -> set[frozenset[str]]:
    return {frozenset(modules[index].name for index in group.indices) for group in group_by_source(modules, 0)}


@pytest.mark.parametrize(
    ("flags", "variant"),
    [
        (["-fno-PIC"], ["-fPIC", "-DPIC"]),
        (["-O0", "-g"], ["-O2"]),
        (["-DMORE=2"], ["-UMORE", "-DMORE=77"]),
        (["-g"], ["-fsanitize=address"]),
        ([], ["-x", "c++"]),
    ],
    ids=" ".join,
)
def test_variants_of_a_source_are_together(tmp_path: Path, flags: list[str], variant: list[str]) -> None:
    """Objects of libtool are in a folder of their own, those of variants in other build folders."""
    modules = []
    for i in range(3):
        for kind, code in (("lib", CODE), ("program", PROGRAM)):
            source = write(tmp_path / "src" / f"{kind}{i}.c", code.format(i=i))
            modules += [
                compile_module(tmp_path / "corpus", f"build/{kind}{i}.o", source, *flags),
                compile_module(tmp_path / "corpus", f"build/.libs/{kind}{i}.o", source, *variant),
            ]
    expected = {
        frozenset({f"build/{kind}{i}.o", f"build/.libs/{kind}{i}.o"}) for i in range(3) for kind in ("lib", "program")
    }
    assert groups(modules) == expected


def test_twins_are_together_in_a_flat_build(tmp_path: Path) -> None:
    """The first folder of a module's name is its project; here they differ."""
    source = write(tmp_path / "one.c", CODE.format(i=1))
    other = write(tmp_path / "two.c", CODE.format(i=2))
    modules = [
        compile_module(tmp_path / "corpus", "one.o", source, "-fno-PIC"),
        compile_module(tmp_path / "corpus", ".libs/one.o", source, "-fPIC"),
        compile_module(tmp_path / "corpus", "two.o", other),
    ]
    assert groups(modules) == {frozenset({"one.o", ".libs/one.o"}), frozenset({"two.o"})}


def test_copies_are_together(tmp_path: Path) -> None:
    """Also of other projects, under another name, compiled in another way or with a function more."""
    more = "int extra(int x) { return x - 5; }\n"
    many = "".join(CODE.format(i=i) for i in range(6))
    copies = {
        "p/a.o": (write(tmp_path / "p/a.c", many), []),
        "q/vendored.o": (write(tmp_path / "q/b.c", many), ["-O2", "-g", "-fPIC"]),
        "r/newer.o": (write(tmp_path / "r/a.c", many + more), []),
        "p/main.o": (write(tmp_path / "p/main.c", PROGRAM.format(i=1)), []),
        "q/main2.o": (write(tmp_path / "q/main2.c", PROGRAM.format(i=1)), []),
    }
    modules = [compile_module(tmp_path / "corpus", name, source, *flags) for name, (source, flags) in copies.items()]
    assert groups(modules) == {frozenset({"p/a.o", "q/vendored.o", "r/newer.o"}), frozenset({"p/main.o", "q/main2.o"})}


def test_different_sources_are_apart(tmp_path: Path) -> None:
    """Programs with functions of the same names, and packages that are built in directories with the same path."""
    modules = []
    for i in range(4):
        source = write(tmp_path / "build" / "main.c", PROGRAM.replace("helper", f"helper{i}{i}").format(i=i))
        modules.append(compile_module(tmp_path / "corpus", f"package{i}/main.o", source))
        usage = f"int usage(void) {{ return {i}; }}\nint u{i}(int x) {{ return x + usage() + {i}; }}\n"
        source = write(tmp_path / "build" / "util.c", usage)
        modules.append(compile_module(tmp_path / "corpus", f"package{i}/util.o", source))
        source = write(tmp_path / f"tool{i}" / "tool.c", PROGRAM.format(i=i + 10))
        modules.append(compile_module(tmp_path / "corpus", f"tools/{i}.o", source))
    assert sorted(map(sorted, groups(modules))) == sorted([module.name] for module in modules)


def test_position_remains_when_a_source_changes(tmp_path: Path) -> None:
    before = write(tmp_path / "a.c", CODE.format(i=1))
    first = compile_module(tmp_path / "corpus", "p/a.o", before)
    after = write(tmp_path / "moved" / "b.c", CODE.format(i=1).replace("* 1", "* 9"))
    second = compile_module(tmp_path / "corpus", "q/b.o", after, "-O2", "-g")
    (old,), (new,) = group_by_source([first], 3), group_by_source([second], 3)
    assert old.position == new.position != group_by_source([first], 4)[0].position


def test_name_that_all_modules_share_costs_no_comparisons() -> None:
    """Programs of a test suite: each has the same entry point, and one function of its own."""
    modules = [_identity({"run_test", f"test_{i}"}) for i in range(20_000)]
    twins = [_identity({"run_test", "test_7", "added"}), _identity({"run_test", "test_8", "x", "y"})]
    joined = _Groups(len(modules) + 2)
    began_s = time.process_time()
    names = [identity.names for identity in (*modules, *twins)]
    _join_similar(joined, [*modules, *twins], names, by_path=False)
    assert time.process_time() - began_s < 10, "200 million comparisons would take a minute"
    assert joined.find(20_000) == joined.find(7) and joined.find(20_001) != joined.find(8)


def test_similar_modules_are_found_as_by_comparing_all_pairs() -> None:
    generator = random.Random(0)
    for _ in range(300):
        sets = [set(generator.sample("abcdefgh", generator.randrange(1, 6))) for _ in range(8)]
        joined, expected = _Groups(len(sets)), _Groups(len(sets))
        _join_similar(joined, [_identity(names) for names in sets], [frozenset(names) for names in sets], by_path=False)
        for i, j in product(range(len(sets)), repeat=2):
            if len(sets[i] & sets[j]) > 0.5 * len(sets[i] | sets[j]):
                expected.join(i, j)
        together = [
            [groups.find(i) == groups.find(j) for i, j in product(range(8), repeat=2)] for groups in (joined, expected)
        ]
        assert together[0] == together[1]


def _identity(names: set[str]) -> _Identity:
    return _Identity(Module("m", Path()), "", "", replace(UNKNOWN, strong=frozenset(names)))


def test_positions_are_uniformly_distributed(tmp_path: Path) -> None:
    """Also those of sources with many functions, whose lowest digest is near 0."""
    source = write(tmp_path / "a.c", "".join(CODE.format(i=i) for i in range(40)))
    module = compile_module(tmp_path / "corpus", "p/a.o", source)
    positions = [group_by_source([module], seed)[0].position for seed in range(200)]
    assert 0.4 < sum(positions) / 200 < 0.6 and 30 < sum(position < 0.25 for position in positions) < 70


def test_no_source_is_on_two_sides(tmp_path: Path) -> None:
    """As found: a third of a corpus is held out, and each module has a twin."""
    modules = []
    for i in range(12):
        source = write(tmp_path / f"{i}.c", CODE.format(i=i))
        for folder, flag in (("a", "-fPIC"), ("a/.libs", "-fno-PIC")):
            modules.append(compile_module(tmp_path / "corpus", f"{folder}/{i}.o", source, flag))
    random.Random(1).shuffle(modules)
    for seed in range(4):
        splits = split_modules(modules, SplitConfig(0.2, 0.3, seed=seed))
        for part in ("train", "validation", "heldout"):
            names = set(splits.part(part))
            assert names and all({f"a/{i}.o", f"a/.libs/{i}.o"} <= names for i in range(12) if f"a/{i}.o" in names)


@pytest.mark.parametrize("clang", ["clang-19", "clang-22"])
def test_symbols_are_those_of_the_source(tmp_path: Path, clang: str) -> None:
    code = (
        "template <class T> T twice(T x) { return x + x; }\n"
        'extern "C" { int out(int); __attribute__((weak)) int weak(int x) { return x; } int data = 3; }\n'
        'static int local(int x) { return out(x); }\nextern "C" int strong(int x) { return local(x) + twice(x); }\n'
    )
    source = write(tmp_path / "s.cc", code)
    bitcode = compile_module(tmp_path / "corpus", "s.o", source, clang=clang).bitcode.read_bytes()
    symbols = read_symbols(bitcode)
    assert symbols.source == "s.cc" and symbols.strong == {"strong"} and symbols.local == {"_ZL5locali"}
    assert symbols.bodies
    changed = write(tmp_path / "t.cc", code.replace("return x + x", "return x * x"))
    other = compile_module(tmp_path / "corpus", "t.o", changed, clang=clang).bitcode.read_bytes()
    copied = write(tmp_path / "c.cc", code)
    same = compile_module(tmp_path / "corpus", "c.o", copied, clang=clang).bitcode.read_bytes()
    assert read_symbols(other).bodies != symbols.bodies == read_symbols(same).bodies


def test_damaged_bitcode_is_unknown_or_read(tmp_path: Path) -> None:
    source = write(tmp_path / "s.c", CODE.format(i=1))
    content = compile_module(tmp_path / "corpus", "s.o", source).bitcode.read_bytes()
    generator = random.Random(0)
    assert read_symbols(b"") == read_symbols(b"text") == read_symbols(content[:400]) == UNKNOWN
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        read_symbols(bytes(damaged))
