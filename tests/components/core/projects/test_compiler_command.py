"""Objects of compilers' commands: what clang's own driver says (clang -###), and programs that run compilers."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from components.core.projects.compiler_command import (
    NoObjectError,
    compile_of_shell,
    lacking_options,
    output_of_shell,
    output_of_words,
)

CLANG = "clang-19"
INPUTS = ("x.c", "sub/y.cc", "a.b.c", "-", "n.h", "plain")
GROUPS = [
    *(["-o", name] for name in ("a.o", "sub/b.o", "prog", "with space.o", "/dev/null")),
    ["-oj.o"],
    ["-osub/k.o"],
    ["--output", "l.o"],
    ["--output=m.o"],
    *([["-c"]] * 6),
    *([flag] for flag in ("-E", "-S", "-M", "-MM", "-MD", "-MMD", "-fsyntax-only", "-emit-llvm", "--analyze", "-O2")),
    *(
        [flag]
        for flag in ("-g", "-gsplit-dwarf", "-fPIC", "-Wall", "-Wl,-o,z.o", "-objcmt-migrate-all", "-w", "-pthread")
    ),
    *([flag, value] for flag in ("-MF", "-MT", "-MQ") for value in ("-o", "-c", "q.o")),
    *([flag, "-c"] for flag in ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter", "-L", "-Xlinker", "-B", "-F")),
    *([flag, "-E"] for flag in ("-include", "-imacros", "-mllvm", "-Xassembler", "-Xpreprocessor", "--param", "-z")),
    *([flag, "-o"] for flag in ("-T", "-u", "-e", "-l", "-isysroot", "-resource-dir", "-serialize-diagnostics")),
    ["-target", "x86_64-linux-gnu"],
    ["-arch", "x86_64"],
    ["-DX= -o z.o"],
    ["-x", "c"],
    ["-xc++"],
    ["-x", "c-header"],
    ["-x", "none"],
    *([name] for name in INPUTS),
    ["--", "x.c"],
    ["--", "sub/y.cc"],
]


def outputs_of_clang(arguments: list[str], directory: Path) -> tuple[dict[str, str], bool] | None:
    """Return the object of each input that clang's driver would compile to one, and whether it links.

    None for a command that it refuses.
    """
    command = [CLANG, "-###", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, stdin=subprocess.DEVNULL, check=False)
    if re.search(r"\berror:", done.stderr):
        return None
    jobs = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith(' "')]
    if not jobs:  # no input
        return None
    if any(job[1] != "-cc1" for job in jobs):
        return {}, True
    objects = {job[-1]: job[len(job) - 1 - job[::-1].index("-o") + 1] for job in jobs if "-emit-obj" in job}
    return objects, False


def ours(words: list[str], directory: Path, source: str) -> str | None:
    try:
        return output_of_words(words, str(directory), source)
    except NoObjectError:
        return None


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sources")
    (directory / "sub").mkdir()
    for name in INPUTS:
        if name != "-":
            (directory / name).write_text("int x;\n")
    return directory


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(groups=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=7), split=st.integers(0, 7), data=st.data())
def test_objects_are_those_of_the_real_driver(
    directory: Path, groups: list[list[str]], split: int, data: st.DataObject
) -> None:
    """With and without response files, and with names that have quotes and blanks."""
    arguments = [word for group in groups for word in group]
    outputs = outputs_of_clang(arguments, directory)
    assume(outputs is not None)
    assert outputs is not None
    expected, links = outputs
    assume(len(set(expected.values())) == len(expected))
    source = data.draw(st.sampled_from(sorted(expected))) if expected else "x.c"
    named = ours([CLANG, *arguments], directory, source)
    if expected:
        want = expected[source]
        assert named == (None if want in ("/dev/null", "-") else want)
    elif named is not None:
        assert links and named.endswith(".o"), "some databases omit -c; the object's kind tells"
    (directory / "a.rsp").write_text(
        "\n".join('"' + re.sub(r'(["\\])', r"\\\1", word) + '"' for word in arguments[split:])
    )
    assert ours([CLANG, *arguments[:split], "@a.rsp"], directory, source) == named


def test_header_that_is_also_compiled_as_a_source(directory: Path) -> None:
    for words in (["n.h", "-x", "c", "n.h"], ["-x", "c", "n.h", "-x", "none", "n.h"]):
        assert ours([CLANG, "-c", *words], directory, "n.h") == "n.o"
    assert ours([CLANG, "-c", "n.h"], directory, "n.h") is None


RUNNERS = [
    "time -o log {}",
    "/usr/bin/time -v -o cc {}",
    "time -f '%e -o x' {}",
    "env A=b CC=gcc {}",
    "env -u clang -i PATH=/usr/lib/ccache/gcc {}",
    "A=/bin/cc B= {}",
    "nice {}",
    "nice -n 10 {}",
    "nice -10 {}",
    "ionice -c 3 {}",
    "timeout 10 {}",
    "timeout -k 5 10 {}",
    "ccache {}",
    "/usr/bin/distcc {}",
    "ccache distcc {}",
    "sccache {}",
    "rewrapper -cfg=a.cfg -exec_root=/r {}",
    "python3 ../build/wrap.py --log l {}",
    "stdbuf -o L {}",
    "strace -f -o trace {}",
    "cmake -E time {}",
    "cmake -E env X=1 {}",
    "cmake -E __run_co_compile --launcher=ccache --source=x.c -- {}",
    "libtool --tag=CC --mode=compile {}",
    "/bin/bash ./libtool --tag CC --mode=compile {}",
    "cd . && {}",
    ": && {} && :",
    "mkdir -p sub && {} > log 2>&1",
    "{} 2> err; true",
    "true&&{}&&true",
    "{};true",
    "{}||exit 1",
    "(cd .;{})",
    "( {} 2>&1|tee log )",
]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("compile_command", "expected"),
    [
        ("clang-19 -c x.c -o a.o", "a.o"),
        ("/usr/lib/llvm-19/bin/clang++ -DX='\"-o z.o\"' -c sub/y.cc", "y.o"),
        ("aarch64-linux-gnu-gcc-12 -oz.o -o sub/b.o -c x.c", "sub/b.o"),
    ],
)
def test_programs_that_run_a_compiler_do_not_matter(
    directory: Path, runner: str, compile_command: str, expected: str
) -> None:
    command = runner.format(compile_command)
    assert output_of_shell(command, str(directory), "") == expected
    if not any(operator in command for operator in ("&&", ";", ">", "|")) and "A=/bin" not in command:
        assert output_of_words(shlex.split(command), str(directory), "") == expected
    for shell in ("sh -c", "bash -ec", "nice sh -c"):
        assert output_of_shell(f"{shell} {shlex.quote(command)}", str(directory), "") == expected


@pytest.mark.parametrize("runner", RUNNERS)
def test_compile_has_the_compilers_arguments_without_outputs(directory: Path, runner: str) -> None:
    written = "clang++-19 -O2 -MD -MF y.d -MT y.o -I 'a b' -c sub/y.cc -o y.o"
    for command in (runner.format(written), f"nice sh -c {shlex.quote(runner.format(written))}"):
        found = compile_of_shell(command, str(directory), "")
        assert found.program == "clang++-19" and found.arguments == ("-O2", "-I", "a b", "sub/y.cc")
        assert Path(found.directory).resolve() == directory.resolve() and found.output == "y.o"
    with pytest.raises(NoObjectError):
        compile_of_shell("clang -E x.c", str(directory), "")


def test_compile_runs_where_its_shell_went(directory: Path) -> None:
    found = compile_of_shell("cd sub && gcc -c ../x.c -ox.o", str(directory), "")
    assert found.directory == str(directory / "sub") and found.arguments == ("../x.c",)


def test_options_that_clang_lacks_are_named(directory: Path) -> None:
    options = ["-fipa-pta", "-fno-such", "-mno-such-feature", "-mtune=no-such"]
    done = subprocess.run(["clang-19", "-c", *options, "x.c"], cwd=directory, capture_output=True, text=True)
    assert done.returncode != 0
    assert {"-fipa-pta", "-fno-such", "-mno-such-feature"} <= set(lacking_options(done.stderr))
    assert lacking_options("x.c:1:1: error: unknown type name 'y'") == []


def test_options_that_its_assembler_and_linker_lack_are_named(directory: Path) -> None:
    texts = []
    for options in (["-c", "-Wa,--no-such"], ["-shared", "-fuse-ld=lld", "-Wl,-O1,--no-such=1"]):
        command = ["clang-19", "-x", "c", "/dev/null", *options, "-o", "none"]
        texts.append(subprocess.run(command, cwd=directory, capture_output=True, text=True).stderr)
    assert lacking_options("".join(texts)) == ["-Wa,--no-such", "-Wl,--no-such=1"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python3 gen.py", "runs no compiler of C or C++ but python3"),
        ("python3 gen.py -o gen.c", "runs no compiler"),
        ("clang x.c -o", "-o is its last argument"),
        ("clang x.c y.c -o prog", "it links, too"),
        ("clang x.o y.a -o prog", "it only links"),
        ("true && clang -E x.c && rm y", "only preprocesses"),
        ("clang -c x.c -o /dev/null", "/dev/null"),
        ("clang -c x.c -o -", "its output is -"),
        ("clang -E x.c -o x.o", "only preprocesses"),
        ("clang -S x.c", "assembly"),
        ("clang -c -emit-llvm x.c", "bitcode"),
        ("clang -cc1 -fsyntax-only x.c", "cc1"),
        ("clang -c n.h", "precompiles a header"),
        ("clang -c @gone.rsp", "response file gone.rsp does not exist"),
        ("clang -c 'x.c", "a quote that is not closed"),
        ("clang -c", "names no source"),
        ("clang -c x.c z.c", "compiles 2 files"),
        ("clang @cycle.rsp", "includes itself"),
        ("clang @quote.rsp", "quotes"),
        ("clang -c @sub", "directory"),
        ("", "empty"),
        ("sh -c ''", "empty"),
        ("time", "no compiler"),
    ],
)
def test_command_without_an_object_says_why(directory: Path, command: str, reason: str) -> None:
    (directory / "cycle.rsp").write_text("@cycle.rsp")
    (directory / "quote.rsp").write_text("-c 'x.c")
    with pytest.raises(NoObjectError, match=re.escape(reason)):
        output_of_shell(command, str(directory), "")


def test_object_of_a_subshell_lies_in_its_directory(directory: Path) -> None:
    for command in ("(cd sub;clang -c ../x.c)", "(cd sub && clang -c ../x.c -o x.o)", "cd sub;clang -c ../x.c&&true"):
        assert output_of_shell(command, str(directory), "") == "sub/x.o"


def test_response_file_that_ninja_removed_is_not_needed_for_the_output(directory: Path) -> None:
    assert output_of_shell("clang @gone.rsp -c x.c -o a.o", str(directory), "") == "a.o"


def test_cc1_commands_and_libtool_objects_name_their_objects(directory: Path) -> None:
    assert output_of_shell("clang -cc1 -emit-obj -main-file-name x.c -o c.o -x c x.c", str(directory), "") == "c.o"
    (directory / "sub/l.lo").write_text("# sub/l.lo\npic_object='.libs/l.o'\nnon_pic_object='l.o'\n")
    command = "libtool --mode=compile clang -c x.c -o sub/l.lo"
    assert output_of_shell(command, str(directory), "") == "sub/.libs/l.o"
    (directory / "sub/l.lo").write_text("pic_object=none\nnon_pic_object='l.o'\n")
    assert output_of_shell(command, str(directory), "") == "sub/l.o"


NAMES = st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.text(NAMES, max_size=12)))
def test_shell_quoting_is_undone(words: list[str]) -> None:
    command = shlex.join(["clang", "-c", *(f"-DX={word}" for word in words), "-o", "".join(words) + "a.o"])
    assert output_of_shell(command, "/", "") == "".join(words) + "a.o"


def test_large_commands_with_quotes_are_fast() -> None:
    command = (
        "clang " + " ".join(f"-D'X{number}=\\\"a b\\\"' -I../some/dir/{number}" for number in range(300)) + " -c x.c"
    )
    began_s = time.process_time()
    for _ in range(50):
        assert output_of_shell(command, "/", "") == "x.o"
    assert time.process_time() - began_s < 5, "30,000 of them would take an hour"


@settings(max_examples=300, deadline=None)
@given(command=st.text(st.sampled_from("clang -o@c'\"\\;&|<>.xE=\t") | st.characters(), max_size=60))
def test_any_text_gives_an_object_or_a_reason(command: str) -> None:
    try:
        assert output_of_shell(command, "/", "")
    except NoObjectError as error:
        assert str(error)
