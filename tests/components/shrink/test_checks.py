"""The checks of builds: which tests are found, which failures count, and what programs may do."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.projects.flags.types import Kind
from components.platform.errors import UserError
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.checks import Checks
from components.shrink.tests_of_build import did_nothing, failed_tests, find_tests

pytestmark = pytest.mark.unit
APP = '#include <stdio.h>\nint main(int argc, char **argv) { printf("%d of %d\\n", VALUE, argc); return 0; }\n'
MAKEFILE = """\
all: app
app: app.c
\tgcc -DVALUE=$(VALUE) app.c -o app
VALUE ?= 1
"""
SUITE = """\
check:
\t@./app | grep -q '^1 ' && echo PASS: first || { echo FAIL: first; false; }
\t@echo FAIL: never; false
"""
GOOD_SUITE = SUITE.replace("\t@echo FAIL: never; false\n", "")
CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(p C)
enable_testing()
add_executable(app app.c)
target_compile_definitions(app PRIVATE VALUE=1)
add_test(NAME one COMMAND app)
add_test(NAME other COMMAND false)
"""
UNTESTED = CMAKE.partition("add_test")[0]
CTEST = "ctest --test-dir out -j$JOBS --output-on-failure"
MESON = """\
project('p', 'c')
app = executable('app', 'app.c', c_args: '-DVALUE=1')
test('one', app)
test('other', find_program('false'))
"""


def built(root: Path, kinds: dict[str, Kind] | None = None, command: str = "make", **variables: str) -> BuiltTree:
    """Return a tree in which a command was run."""
    log = root.parent / f"{root.name}.log"
    with log.open("w") as out:
        subprocess.run(
            ["sh", "-ec", command], cwd=root, check=True, stdout=out, env={"PATH": "/usr/bin:/bin", **variables}
        )
    return BuiltTree(root, root, "/usr/bin/env", {"JOBS": "2"}, log, kinds or {"app": "program"}, command, 1.0)


def project(root: Path, **files: str) -> Path:
    root.mkdir()
    for name, text in {"app_c": APP, "Makefile": MAKEFILE, **files}.items():
        (root / name.replace("_", ".")).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "command", "expected"),
    [
        ({}, "make", ""),
        ({"Makefile": MAKEFILE + "test:\n"}, "make", ""),
        ({"Makefile": MAKEFILE + "test: app\n\t./app\n"}, "make", "make -k test"),
        ({"Makefile": MAKEFILE + '\ntest:\n\t@echo "no tests yet"\n'}, "make", ""),
        ({"Makefile": MAKEFILE + "test:\n\t@true\n"}, "make", ""),
        ({"Makefile": MAKEFILE + "test:\n\t@echo run; ./prog\n"}, "make", "make -k test"),
        ({"Makefile": MAKEFILE + SUITE}, "make", "make -k check"),
        ({"CMakeLists_txt": CMAKE}, "cmake -B out . && make -C out", CTEST),
        ({"CMakeLists_txt": UNTESTED}, "cmake -B out . && make -C out", ""),
        ({"CMakeLists_txt": CMAKE, "Makefile": MAKEFILE + SUITE}, "cmake -S . -B out && cmake --build out", CTEST),
        ({"CMakeLists_txt": UNTESTED, "Makefile": MAKEFILE + SUITE}, "cmake -S . -Bout && cmake --build out", ""),
        ({"meson_build": MESON}, "meson setup out && ninja -C out", "meson test -C out"),
    ],
)
def test_tests_of_the_build_system_are_found(
    tmp_path: Path, files: dict[str, str], command: str, expected: str
) -> None:
    tree = built(project(tmp_path / "p", **files), command=command)
    tests = find_tests(tree.root, command, tree.log, tree.environment)
    assert (tests.command if tests else "") == expected


@pytest.mark.parametrize(
    ("lines", "ran"),
    [
        ("   dh_auto_test -O-v\n\tmake -j1 check\nPASS: one", True),
        ("   dh_auto_test\n   create-stamp debian/debhelper-build-stamp", False),
        ("   debian/rules override_dh_auto_test\nmake[1]: Entering directory '/a'\n./xmltest", True),
        ("   debian/rules override_dh_auto_test\nmake[1]: Entering\ndh_auto_test\nmake[1]: Leaving\n   dh_x", False),
        ("   dh_auto_build\n\tmake -j1", False),
    ],
)
def test_tests_that_debhelper_ran_are_found(tmp_path: Path, lines: str, ran: bool) -> None:
    log = tmp_path / "log"
    log.write_text(f"dh build\n{lines}\n")
    assert (find_tests(tmp_path, "debian/rules build", log, {}) is not None) == ran


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"CMakeLists_txt": CMAKE}, "cmake -B out . && make -C out"),
        ({"meson_build": MESON}, "meson setup out && ninja -C out"),
    ],
)
def test_failing_tests_are_named(tmp_path: Path, files: dict[str, str], command: str) -> None:
    tree = built(project(tmp_path / "p", **files), command=command)
    tests = find_tests(tree.root, command, tree.log, tree.environment)
    assert tests is not None
    status, output, _ = tree.run(tests.command, 60)
    assert status != 0 and failed_tests(output) == {"other"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("FAIL: tests/a.sh", {"tests/a.sh"}),
        ("ERROR: a - missing test plan", {"a - missing test plan"}),
        ("# FAIL:  1\n# ERROR: 0\nFAIL: 3", set()),
        ("not ok 3 - parse # TODO later\nok 1 - a", set()),
        ("not ok 3 - parse", {"parse"}),
        ("[  FAILED  ] Suite.Case (0 ms)\n[  FAILED  ] Suite.Case", {"Suite.Case"}),
        ("FAILED tests/test_a.py::test_b - AssertionError", {"tests/test_a.py::test_b"}),
        ("//a:b_test     FAILED in 0.1s", {"//a:b_test"}),
        ("FAILED: outeperm.err: unifdef -ooutdir/outfile.c if1.c", {"outeperm.err"}),
    ],
)
def test_failures_of_runners_are_read(line: str, names: set[str]) -> None:
    assert failed_tests(line) == names


def test_make_that_does_nothing_is_known() -> None:
    assert did_nothing("make: Nothing to be done for 'check'.\nMaking check in src\nmake[1]: Entering directory '/a'\n")
    assert not did_nothing("make: Entering directory '/a'\n./app\n")


@pytest.mark.parametrize(("suite", "said"), [(GOOD_SUITE, "check passes"), (SUITE, "1 of its tests")])
def test_tests_decide_but_for_those_that_fail_by_the_own_build(tmp_path: Path, suite: str, said: str) -> None:
    checks, makefile = Checks(), MAKEFILE + suite
    checks.learn(built(project(tmp_path / "own", Makefile=makefile)))
    assert said in checks.describe()
    checks.compare(built(project(tmp_path / "same", Makefile=makefile)))
    with pytest.raises(UserError, match="check fails"):
        checks.compare(built(project(tmp_path / "other", Makefile=makefile), VALUE="2"))


def test_time_limit_depends_on_the_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.shrink.checks.MIN_TIMEOUT_S", 5.0)
    own = built(project(tmp_path / "own", Makefile=MAKEFILE + "check:\n\t@sleep 0.7; ./app\n"))
    checks = Checks()
    checks.learn(replace(own, seconds=0.1))
    assert checks.timeout_s is not None and checks.timeout_s >= 7
    checks = Checks(timeout_s=6.0)
    checks.learn(own)
    assert checks.timeout_s == 6.0


@pytest.mark.parametrize(
    ("own", "other", "problem"),
    [
        (APP, APP, ""),
        (APP, APP.replace("%d of", "%d out of"), "app --version prints '1 out of 2', not '1 of 2'"),
        (APP, APP.replace("return 0", "return argc == 2"), "app --version ends with status 1, by your own .* status 0"),
        (APP, APP.replace("return 0", "__builtin_trap()"), "app --version is ended by SIG"),
        (APP, APP.replace("return 0", "for (;;)"), "app --version runs for more than 2 s"),
        # Differs from run to run, or by compiler and time.
        (APP.replace("VALUE", "(int)getpid()"), APP.replace("VALUE", "(int)getpid() + 1"), ""),
        (APP.replace("%d of", "made by gcc 12, %d of"), APP.replace("%d of", "made by clang 19, %d of"), ""),
        (APP.replace("%d of", "12:00:01 %d of"), APP.replace("%d of", "01:02:03 %d of"), ""),
    ],
)
def test_without_tests_programs_do_the_same(tmp_path: Path, own: str, other: str, problem: str) -> None:
    checks = Checks()
    checks.learn(built(project(tmp_path / "own", app_c="#include <unistd.h>\n" + own)))
    assert checks.describe().startswith("no tests were")
    tree = built(project(tmp_path / "other", app_c="#include <unistd.h>\n" + other))
    if not problem:
        checks.compare(tree)
    else:
        with pytest.raises(UserError, match=problem):
            checks.compare(tree)


LIBRARY = {
    "lib_c": "int lib(void) { return 1; }\n",
    "app_c": "int lib(void);\nint main(void) { return lib(); }\n",
    "Makefile": "app: app.c\n\tmkdir lib; gcc -shared -fPIC lib.c -o lib/libx.so; gcc app.c -Llib -lx -o app\n",
}


@pytest.mark.parametrize(
    ("files", "start", "reason"),
    [
        (LIBRARY, "not checked: ", "libx.so"),  # the program does not start
        ({"Makefile": MAKEFILE + "check:\n\t@./app; exit 3\n"}, "your own build fails", "program"),
        ({"Makefile": MAKEFILE + "test:\n\tsleep 30\n"}, "", "--check-timeout"),
    ],
)
def test_tests_and_programs_that_are_no_check_are_said(
    tmp_path: Path, files: dict[str, str], start: str, reason: str
) -> None:
    checks = Checks(timeout_s=1 if reason == "--check-timeout" else None)
    checks.learn(built(project(tmp_path / "own", **files)))
    said = checks.describe()
    assert said.startswith(start) and reason in said and ("program" in said or files is LIBRARY)


def test_programs_write_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    program = f"""\
#include <stdio.h>
#include <unistd.h>
#include <sys/socket.h>
int main(void) {{
  printf("%d\\n", fopen("{tmp_path}/written", "w") == NULL && socket(AF_INET, SOCK_STREAM, 0) < 0);
  fflush(stdout);
  if (fork() == 0) {{ setsid(); if (fork() == 0) execlp("sleep", "sleep", "98.76", (char *)0); }}
  return 0;
}}
"""
    checks = Checks()
    own = built(project(tmp_path / "own", app_c=program))
    checks.learn(own)
    checks.compare(own)
    assert not (tmp_path / "written").exists()
    assert subprocess.run(["pgrep", "-f", "^sleep 98.76$"], capture_output=True).stdout == b""
    other = built(project(tmp_path / "other", app_c=program.replace("%d", "no %d")))
    with pytest.raises(UserError, match=r"prints 'no 1', not '1'"):  # 1: it could not write, and had no network
        checks.compare(other)


def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    checks = Checks("sh -c 'sleep 87.65 & setsid sleep 87.65; true'", timeout_s=1)
    started = time.monotonic()
    with pytest.raises(UserError, match="1 s") as raised:
        checks.learn(built(project(tmp_path / "own")))
    assert time.monotonic() - started < 15 and "--check-timeout" in raised.value.remedy
    assert subprocess.run(["pgrep", "-f", "^sleep 87.65$"], capture_output=True).stdout == b""


def test_no_check_checks_nothing(tmp_path: Path) -> None:
    checks = Checks(enabled=False)
    checks.learn(built(project(tmp_path / "own", Makefile=MAKEFILE + SUITE)))
    checks.compare(built(project(tmp_path / "other", app_c=APP.replace("%d of", "no"))))
    assert checks.describe() == "not checked"
