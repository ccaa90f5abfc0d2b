"""Compiles that `mlgo interactive` answers, by stock clang and by our training clang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.formats.toolchain import load_toolchain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.toolchain

SOURCE = """\
static int square(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * a; return s; }
int several(int a) { return square(a) + square(a + 1) * square(a * 2); }
int sum(int a, int *p) {
  int t = 0;
  for (int i = 0; i < a; i++) { t += p[i] * several(i); if (t > 100) t -= square(i); }
  return t;
}
"""
STOCK = "clang-19"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text(SOURCE)
    return tmp_path / "a.c"


def interactive(*arguments: object, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "components.interactive", *map(str, arguments)]
    environment = os.environ | {"TMPDIR": str(directory)}
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=120)


@pytest.mark.parametrize("clang", ["clang-19", "clang-22"])
def test_heuristic_of_stock_clang_makes_its_code(clang: str, source: Path, tmp_path: Path) -> None:
    done = interactive("--", clang, "-Oz", "-c", source, "-o", "a.o", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "observation: 0\n" in done.stdout and "callee_users" in done.stdout and "\nadvice: " in done.stdout
    subprocess.run([clang, "-Oz", "-c", source, "-o", tmp_path / "b.o"], check=True)
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.c", "a.o", "b.o"}, "no pipe is left"


@pytest.mark.parametrize("problem", ["inlining", "regalloc"])
def test_policy_decides_as_in_the_training_clang(
    problem: str, source: Path, tmp_path: Path, training_toolchain: Path
) -> None:
    clang = load_toolchain(training_toolchain).clang
    level = {"inlining": "-Oz", "regalloc": "-O2"}[problem]
    options = ("--problem", problem, "--policy", "pretrained-llvm", "--quiet")
    done = interactive(*options, "--", clang, level, "-c", source, "-o", "a.o", directory=tmp_path)
    assert done.returncode == 0 and " decisions, " in done.stdout, done.stderr
    from components.core.compiler.advisor import Advisor
    from components.core.policy.pretrained import pretrained_policy

    policy = pretrained_policy(problem, clang=clang, name="pretrained-llvm")
    flags = Advisor("policy", policy=policy).flags(problem, None, None)
    subprocess.run([clang, level, "-c", source, "-o", tmp_path / "b.o", *flags], check=True)
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--policy", "pretrained", "--", STOCK, "-Oz"), "features that this compiler does not have: callee_allocas"),
        (("--problem", "regalloc", "--", STOCK, "-O2"), "no feature tells what LLVM's heuristic would do for regalloc"),
        (("--", "no-such-compiler"), "no-such-compiler cannot be run: No such file"),
        (("--problem", "regaloc", "--", STOCK), "regaloc"),
        (("--policy", "nothing", "--", STOCK), "--policy nothing: there is no such file"),
    ],
)
def test_bad_input_is_one_message(source: Path, tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    done = interactive(*options, "-c", source, "-o", "a.o", directory=tmp_path)
    assert done.returncode == 1 and named in done.stderr and "remedy: " in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and {path.name for path in tmp_path.iterdir()} == {"a.c"}


def test_status_is_that_of_the_compile(source: Path, tmp_path: Path) -> None:
    source.write_text("int broken(")
    done = interactive("--", STOCK, "-Oz", "-c", source, directory=tmp_path)
    assert done.returncode == 1 and "expected" in done.stderr and "error: " in done.stderr
    source.write_text(SOURCE)
    done = interactive("--", STOCK, "-O0", "-c", source, directory=tmp_path)
    assert done.returncode == 0 and "no decision" in done.stdout
    killed = interactive("--", "sh", "-c", "kill -SEGV $$", directory=tmp_path)
    assert killed.returncode == 128 + signal.SIGSEGV


def test_interrupt_ends_the_compile(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "components.interactive", "--", "sh", "-c", "echo $$ >pid; exec sleep 600"]
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])})
    wait_until(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("problem", ["inlining", "regalloc"])
def test_clang_without_its_host_reports_the_missing_pipe(
    problem: str, source: Path, tmp_path: Path, training_toolchain: Path
) -> None:
    from components.core import problems
    from components.core.compiler.advisor import Advisor

    option = problems.get(problem).llvm.channel_option
    flags = [*Advisor("release").flags(problem, None, None), "-mllvm", f"{option}={tmp_path}/channel"]
    clang = load_toolchain(training_toolchain).clang
    done = subprocess.run([clang, "-Oz", "-c", source, *flags], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and f"{tmp_path}/channel.in" in done.stderr
    assert "Stack dump" not in done.stderr
