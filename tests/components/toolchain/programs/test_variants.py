"""The release toolchain compiles the variants that a list names, and keeps the smallest."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import Choice, PlannedModule, add_choices, read_choices, write_plan
from tests.components.toolchain.programs.test_linker import sources, toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["sources", "toolchain"]

EXPLICIT = {
    "heuristic": ["-enable-ml-inliner=default"],
    "policy": ["-enable-ml-inliner=release"],
    "heuristic+no-outline": ["-mlgo-outline=0"],
    "heuristic+outline": ["-mlgo-outline=1"],
    "heuristic+everywhere": ["-mlgo-outline-everywhere"],
    "heuristic+fold": ["-mlgo-fold=1"],
    "heuristic+no-fold": ["-mlgo-fold=0"],
    "heuristic+ipra": ["-enable-ipra"],
    "heuristic+ir-outliner": ["-ir-outliner"],
}
"""Variant -> the options that give the same object."""
PROGRAM = """
#include <stdio.h>
int word(const char *, int);
struct state { int a, b, c, d; long long sum; };
__attribute__((noinline)) static void show(struct state *s, int x) {
  printf("%d %d %d\\n", s->a + x, s->b * x, s->c); s->sum += s->a * 3 + s->b * 5 + s->c * 7 + s->d * 11;
}
__attribute__((noinline)) static void same(struct state *s, int x) {
  printf("%d %d %d\\n", s->a + x, s->b * x, s->c); s->sum += s->a * 3 + s->b * 5 + s->c * 7 + s->d * 11;
}
"""


def varied_code() -> str:
    """Return C in which each word of a variant makes a difference: equal functions, repeated code, loops, leaves."""
    text = PROGRAM
    for i in range(12):
        text += (
            f"__attribute__((noinline)) int f{i}(struct state *s, int n) {{\n"
            f'  for (int i = 0; i < n; ++i) {{ s->a = word("x", i + {i}); s->b = s->a * 7 + 3; s->c = s->b ^ s->a;'
            f" s->d = s->c * s->b + s->a; s->sum += s->d; {'show' if i % 2 else 'same'}(s, {i}); }}\n"
            f"  s->a = n; s->b = s->a * 9 + {i}; s->c = s->b ^ (s->a << 3); s->d = s->c * s->b - s->a;"
            f" s->sum ^= s->d * s->c; return s->sum % {i + 2}; }}\n"
        )
    # Their addresses keep the functions as they are in a program, too.
    text += "int (*volatile calls[])(struct state *, int) = {" + ", ".join(f"f{i}" for i in range(12)) + "};\n"
    text += """
__attribute__((noinline)) int word(const char *s, int n) { return s[0] + n; }
__attribute__((noinline)) int leaf(int n) { return n * 1664525 + 1013904223; }
__attribute__((noinline)) int three(int a, int b, int c) { return leaf(a) * b + leaf(c) * a - leaf(b) * c; }
int main(int count, char **names) {
  struct state s = {0};
  int all = three(count, names[0][0], count * 3);
  for (int i = 0; i < 12; ++i) all += calls[i](&s, i % 3);
  printf("%d\\n", all);
  return 0;
}
"""
    return text


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.c").write_text(varied_code())
    return tmp_path


def words(*options: str, link: bool = False) -> list[str]:
    before = ["-Xlinker", "-mllvm", "-Xlinker"] if link else ["-mllvm"]
    return [word for option in options for word in (*before, option)]


def compiled(toolchain: Path, directory: Path, *flags: str, output: str = "out") -> subprocess.CompletedProcess[str]:
    command = [str(toolchain / "bin" / "clang"), "-Oz", *flags, "program.c", "-o", output]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)


def built(toolchain: Path, directory: Path, link: bool, *options: str) -> bytes:
    done = compiled(toolchain, directory, "-flto" if link else "-c", *words(*options, link=link))
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return (directory / "out").read_bytes()


@pytest.mark.parametrize("link", [False, True], ids=["object", "program"])
def test_each_word_of_a_variant_takes_effect(toolchain: Path, program: Path, link: bool) -> None:
    """In the process itself, in the child of a fork, and as a recorded choice."""
    alone: dict[str, bytes] = {}
    for name, options in EXPLICIT.items():
        alone[name] = built(toolchain, program, link, f"-mlgo-variants={name}", "-mlgo-experimental")
        # LLVM's own option runs the IR outliner in both rounds of a program's pipeline.
        if not (link and name == "heuristic+ir-outliner"):
            assert alone[name] == built(toolchain, program, link, *options), name
    default = "fold" if link else "no-fold"
    same = {"heuristic+outline", f"heuristic+{default}", "policy"}
    assert {name for name in EXPLICIT if name not in same and alone[name] == alone["heuristic"]} == {"heuristic"}

    names = ":".join(EXPLICIT)
    options = [f"-mlgo-variants={names}", "-mlgo-experimental", "-mlgo-choices=choices"]
    smallest = built(toolchain, program, link, *options)
    (choice,) = map(json.loads, (program / "choices").read_text().splitlines())
    assert set(choice["bytes"]) == set(EXPLICIT) and smallest == alone[choice["variant"]]
    assert choice["bytes"][choice["variant"]] == min(choice["bytes"].values())
    bytes_of: dict[bytes, set[int]] = {}
    for name, data in alone.items():
        bytes_of.setdefault(data, set()).add(choice["bytes"][name])
    assert all(len(sizes) == 1 for sizes in bytes_of.values())
    assert len(set(choice["bytes"].values())) > 3
    for name, data in alone.items():
        (program / "choices").write_text(json.dumps({**choice, "variant": name}) + "\n")
        taken = [option for option in options if not option.startswith("-mlgo-variants")]
        assert built(toolchain, program, link, "-mlgo-keep-smaller", *taken) == data


def test_first_of_equally_small_variants_is_kept(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    for names in ("policy,heuristic", "heuristic,policy", "heuristic+no-fold,heuristic"):
        (tmp_path / "choices").unlink(missing_ok=True)
        built(toolchain, tmp_path, False, f"-mlgo-variants={names}", "-mlgo-choices=choices")
        choice = json.loads((tmp_path / "choices").read_text())
        assert choice["variant"] == names.split(",")[0]


def test_recorded_choice_that_is_experimental_is_not_taken_without_the_option(toolchain: Path, program: Path) -> None:
    plain = built(toolchain, program, False, "-mlgo-variants=heuristic", "-mlgo-choices=choices")
    built(toolchain, program, False, "-mlgo-keep-smaller", "-mlgo-choices=choices")
    choice = json.loads((program / "choices").read_text())
    (program / "choices").write_text(json.dumps({**choice, "variant": "heuristic+ipra"}) + "\n")
    done = compiled(toolchain, program, "-c", *words("-mlgo-variants=heuristic", "-mlgo-choices=choices"))
    assert done.returncode == 0 and "'ipra'" in done.stderr
    assert (program / "out").read_bytes() == plain


def test_choices_are_read_while_other_compiles_append_to_them(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    line = json.dumps({"name": "other.c", "digest": "0" * 32, "variant": "policy", "bytes": {"heuristic": 100}}) + "\n"
    (tmp_path / "choices").write_text(line * 20_000)  # large enough to be mapped, and slow to parse
    done = threading.Event()

    def append() -> None:
        with open(tmp_path / "choices", "a", buffering=1) as stream:
            while not done.wait(1e-4):
                stream.write(line)

    other = threading.Thread(target=append)
    other.start()
    try:
        for _ in range(20):
            built(toolchain, tmp_path, False, "-mlgo-variants=heuristic", "-mlgo-choices=choices")
    finally:
        done.set()
        other.join()


THREAD_LOCAL = "#include <stdio.h>\n_Thread_local int v0, v1, v2, v3, v4, v5;\n" + "".join(
    f"__attribute__((noinline)) void f{i}(int x) {{ v{i} = x * 3 + {i};"
    f' printf("%d %d\\n", v{i} * x, x); v{i} ^= x + v{i} * {i + 5}; printf("%d\\n", v{i} - x); }}\n'
    for i in range(6)
)
THREAD_LOCAL += """
void (*volatile calls[])(int) = {f0, f1, f2, f3, f4, f5};
int main(int count, char **names) { for (int i = 0; i < 6; ++i) calls[i](count); return v0 + v1 + v2 + v3 + v4 + v5; }
"""


@pytest.mark.parametrize("link", [False, True], ids=["object", "program"])
def test_variant_that_does_not_compile_is_left_out(toolchain: Path, tmp_path: Path, link: bool) -> None:
    """LLVM 19's IR outliner makes invalid code of thread-local variables."""
    (tmp_path / "program.c").write_text(THREAD_LOCAL)
    broken = "heuristic+ir-outliner"
    names = f"-mlgo-variants=heuristic+no-outline:policy:{broken}"
    built(toolchain, tmp_path, link, names, "-mlgo-experimental", "-mlgo-choices=choices")
    choice = json.loads((tmp_path / "choices").read_text())
    assert set(choice["bytes"]) == {"heuristic+no-outline", "policy"}
    for path in set(tmp_path.iterdir()) - {tmp_path / "program.c"}:
        path.unlink()
    options = words(f"-mlgo-variants={broken}:policy", "-mlgo-experimental", link=link)
    done = compiled(toolchain, tmp_path, "-flto" if link else "-c", *options)
    assert done.returncode == 1
    assert (
        done.stderr.count(f"LLVM's IR outliner makes invalid code of this module; leave out the variant {broken}") == 1
    )
    assert [path.name for path in tmp_path.iterdir()] == ["program.c"]


@pytest.mark.parametrize("kind", ["object", "bitcode", "program"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("heuristic,polcy", "there is no word 'polcy' for a variant; the words are heuristic, policy, plan, outline, "),
        ("policy+inline", "there is no word 'inline' for a variant"),
        ("", "there is no word '' for a variant"),
        (
            "heuristic+ipra",
            "'ipra' is off in LLVM's own pipelines; run the program's tests, and pass -mlgo-experimental",
        ),
        ("policy+ir-outliner", "'ir-outliner' is off in LLVM's own pipelines"),
        ("policy+outline+no-outline", "'policy+outline+no-outline' has two words where one can be, such as no-outline"),
        ("outline", "'outline' has to begin with heuristic, policy or plan, once"),
        ("policy+heuristic", "'policy+heuristic' has to begin with heuristic, policy or plan, once"),
        ("policy,heuristic,policy", "'policy' is there twice"),
        ("heuristic,plan", "the variant plan is for the link of a program with -mlgo-inline-plan"),
    ],
)
def test_invalid_variants_are_one_error_and_no_file(
    toolchain: Path, tmp_path: Path, kind: str, names: str, message: str
) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    flags = {"object": ["-c"], "bitcode": ["-c", "-flto"], "program": ["-flto"]}[kind]
    done = compiled(toolchain, tmp_path, *flags, *words(f"-mlgo-variants={names}", link=kind == "program"))
    assert done.returncode == 1 and f"error: -mlgo-variants: {message}" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "linker command failed" not in line]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["program.c"]


def test_option_turns_variants_off_again(toolchain: Path, program: Path) -> None:
    plain = built(toolchain, program, False)
    off = ["-mlgo-variants=policy+no-outline", "-mlgo-keep-smaller=0"]
    assert built(toolchain, program, False, *off) == plain
    assert built(toolchain, program, False, off[0]) != plain


@pytest.mark.parametrize("link", [False, True], ids=["object", "program"])
def test_file_of_choices_without_variants_is_a_warning(toolchain: Path, program: Path, link: bool) -> None:
    options = words("-mlgo-choices=choices", link=link)
    done = compiled(toolchain, program, "-flto" if link else "-c", *options)
    assert done.returncode == 0 and not (program / "choices").exists()
    assert done.stderr.count("warning: -mlgo-choices has no effect without -mlgo-keep-smaller") == 1


@pytest.mark.parametrize(
    ("flags", "warns"),
    [
        (["-flto"], True),
        (["-flto", "-Wno-backend-plugin"], False),
        (["-flto", "-mllvm", "-mlgo-whole-program=0"], False),
        (["-flto=thin"], False),
        ([], False),
    ],
    ids=str,
)
def test_plan_that_a_compile_does_not_take_is_a_warning(
    toolchain: Path, program: Path, flags: list[str], warns: bool
) -> None:
    write_plan(program / "inline.plan", [], 19)
    done = compiled(toolchain, program, *flags, *words("-mlgo-inline-plan=inline.plan"), "-c")
    assert done.returncode == 0 and ("-mlgo-inline-plan has no effect" in done.stderr) == warns


@pytest.mark.parametrize("kind", ["choices", "plan", "plan with decisions"])
def test_plan_holds_choices(toolchain: Path, program: Path, kind: str) -> None:
    names, plan = ["heuristic", "policy", "heuristic+no-outline", "heuristic+no-fold"], program / "inline.plan"
    options = ["-mlgo-keep-smaller"]
    if kind == "plan with decisions":
        write_plan(plan, [PlannedModule("program.c", ForcedDecisions.of({("three", "leaf", 0): 1}))], 19)
        options.append(f"-mlgo-inline-plan={plan}")
    alone = {name: built(toolchain, program, True, *options, f"-mlgo-variants={name}") for name in names}
    built(toolchain, program, True, *options, "-mlgo-choices=choices")
    choice = json.loads((program / "choices").read_text())
    for name in names:
        (program / "choices").write_text(json.dumps({**choice, "variant": name}) + "\n")
        taken = "-mlgo-choices=choices"
        if kind != "choices":
            if kind == "plan":
                write_plan(plan, [], 19)
            assert add_choices(plan, read_choices(program / "choices"), plan) == 1
            taken = f"-mlgo-inline-plan={plan}"
        assert built(toolchain, program, True, "-mlgo-keep-smaller", taken) == alone[name]


def test_policy_keeps_its_ranges_with_a_plan_of_choices(toolchain: Path, sources: Path) -> None:
    """It was not trained where functions have no unwind tables."""

    def compile_object(*options: str) -> bytes:
        flags = ["-Oz", "-fno-exceptions", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
        command = [toolchain / "bin" / "clang++", *flags, *words(*options), "-c", "main.cc", "-o", "main.o"]
        subprocess.run([str(part) for part in command], cwd=sources, check=True)
        return (sources / "main.o").read_bytes()

    compile_object("-mlgo-keep-smaller", "-mlgo-choices=choices")
    choice = json.loads((sources / "choices").read_text())
    (sources / "choices").write_text(json.dumps({**choice, "variant": "policy"}) + "\n")
    write_plan(sources / "plan", [], 19)
    add_choices(sources / "plan", read_choices(sources / "choices"), sources / "plan")
    policy = compile_object("-mlgo-variants=policy")
    assert compile_object("-mlgo-keep-smaller", "-mlgo-inline-plan=plan") == policy
    assert compile_object("-mlgo-variants=policy", "-mlgo-ranges=0") != policy


def test_damaged_choices_of_a_plan_fail_the_link(toolchain: Path, program: Path) -> None:
    plan = program / "inline.plan"
    write_plan(plan, [], 19)
    add_choices(plan, [Choice("0" * 32, "policy", "out")], plan)
    plan.write_bytes(plan.read_bytes()[:-4])
    options = words("-mlgo-keep-smaller", f"-mlgo-inline-plan={plan}", link=True)
    done = compiled(toolchain, program, "-flto", *options)
    assert done.returncode == 1 and not (program / "out").exists()
    assert str(plan) in done.stderr


@pytest.mark.parametrize(
    "flags", [["s.ld"], ["s.ld", "-oout.o"], ["program.o", "-oout.o"], ["s.ld", "--output=out.o"]], ids=str
)
def test_linkers_own_output_is_replaced(toolchain: Path, tmp_path: Path, flags: list[str]) -> None:
    """The linker's default, a.out, is another file here."""
    (tmp_path / "program.c").write_text(varied_code())
    (tmp_path / "a.out").write_text("kept")
    (tmp_path / "s.ld").write_text("OUTPUT(by_script.o)\nINPUT(program.o)\n")
    compile_command = [toolchain / "bin" / "clang", "-Oz", "-flto", "-c", "program.c"]
    subprocess.run([str(part) for part in compile_command], cwd=tmp_path, check=True)
    command = [toolchain / "bin" / "ld.lld", "-r", "-mllvm", "-mlgo-keep-smaller", "-mllvm", "-mlgo-choices=c", *flags]
    subprocess.run([str(part) for part in command], cwd=tmp_path, check=True)
    output = "by_script.o" if flags == ["s.ld"] else "out.o"
    choice = json.loads((tmp_path / "c").read_text())
    assert choice["name"] == output and len(choice["bytes"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"program.c", "program.o", "a.out", "s.ld", "c", output}
    assert (tmp_path / "a.out").read_text() == "kept"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--lto-obj-path=obj-path.o", "--lto-obj-path writes a file of one"),
        ("--plugin-opt=obj-path=obj-path.o", "--lto-obj-path writes a file of one"),
        ("--save-temps=prelink", "--save-temps writes files of one"),
        ("--plugin-opt=opt-remarks-filename=remarks", "--opt-remarks-filename writes a file of one"),
        ("--oformat=binary", "--oformat=binary writes no sections"),
        ("--lto-emit-llvm", "no object is linked"),
        ("-o/dev/null", "/dev/null is not a regular file"),
    ],
)
def test_links_that_write_more_than_a_program_have_one_variant(
    toolchain: Path, tmp_path: Path, option: str, reason: str
) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    options = [*words("-mlgo-keep-smaller", link=True), f"-Wl,{option}"]
    done = compiled(toolchain, tmp_path, "-flto", "-nostdlib", "-static", "-Wl,-e,main", *options, output="save-temps")
    assert done.returncode == 0
    assert done.stderr.count("warning") == 1 and reason in done.stderr


def test_name_like_an_option_is_no_option(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    options = words("-mlgo-keep-smaller", "-mlgo-choices=choices", link=True)
    done = compiled(toolchain, tmp_path, "-flto", "-Wl,-soname,obj-path=x", *options)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "choices").exists()
