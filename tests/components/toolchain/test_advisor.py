"""Our inline advisor and LLVM's have the same features, decisions and code, in our clang and as a plugin.

LLVM's release mode can ask another process for each decision, sending it the features. Here it gets the decisions that
our advisor took, and must send the features that ours logged.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.logs.training_log import read_log

pytestmark = pytest.mark.toolchain

PROBLEM = problems.get("inlining")

SOURCES = {
    # Deep templates, exceptions and landing pads, virtual calls, callbacks that become direct calls.
    "regex.cpp": """
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <regex>
#include <sstream>
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square : Shape { double side; explicit Square(double s) : side(s) {} double area() const override; };
double Square::area() const { return side * side; }
double total(const std::vector<std::unique_ptr<Shape>> &shapes) {
  double sum = 0;
  for (const auto &shape : shapes) sum += shape->area();
  return sum;
}
std::vector<std::string> words(const std::string &text, const std::function<bool(const std::string &)> &keep) {
  std::vector<std::string> result;
  std::regex word("[a-z]+([0-9]|-)*");
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
    if (keep(i->str())) result.push_back(i->str());
  std::sort(result.begin(), result.end(), [](const auto &a, const auto &b) { return a.size() < b.size(); });
  return result;
}
int parse(const std::string &text) {
  std::istringstream in(text);
  int value = 0;
  if (!(in >> value)) throw std::runtime_error("not a number: " + text);
  return value;
}
""",
    # C code: switches, recursion, variable-length arrays, calls that lead to abort, calls within cycles, a function
    # whose last call is removed when a mandatory inlining makes its condition constant.
    "switches.c": """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; int key; char name[800]; };
static int even(int n);
static int odd(int n) { return n ? even(n - 1) : 0; }
static int even(int n) { return n ? odd(n - 1) : 1; }
static void fail(const char *why) { if (strlen(why) > 3) abort(); exit(1); }
static int twice(int (*f)(int), int x) { return f(f(x)); }
static int add3(int x) { return x + 3; }
static int classify(int c, int mode) {
  switch (c) {
  case 'a': return 1; case 'b': return mode; case 'c': return mode * 2; case 'd': return twice(add3, mode);
  case 'e': case 'f': case 'g': return even(mode); case 300: fail("big"); default: return -c;
  }
}
static int south(int n);
static int east(int n);
static int north(int n) { return n > 3 ? east(n - 1) + south(n - 2) + east(n / 7) : n * 5; }
static int east(int n) { return n & 1 ? south(n - 3) : north(n - 1) * 2; }
static int south(int n) { return n ? north(n / 2) + east(n / 3) + north(n - 4) : 1; }
static int apart(const int *a, const int *b) {
  if (a == b) return 7;
  for (int i = 0; i < 9; ++i) if (a[i] > b[i]) return a[i] * b[8 - i];
  return a[3] + b[5];
}
int pairs(const int *p, const int *q) { return apart(p, q) + apart(p, p) + apart(q, p + 1) + apart(p + 1, p + 1); }
int winds(int n) { return south(n) + east(n + 1) + north(9); }
static int depth(const struct node *n) {
  struct node copy;
  if (!n) return 0;
  memcpy(&copy, n, sizeof copy);
  int l = depth(copy.left), r = depth(n->right);
  return 1 + (l > r ? l : r);
}
static int buffer(int n) { char text[n]; memset(text, 7, n); return text[n / 2]; }
static int dead(int x) { return twice(even, x) + classify(x, 1); }
static inline __attribute__((always_inline)) int pick(int mode, int x) { return (mode & 3) == 1 ? dead(x) : x + mode; }
int run(const struct node *n, int x) {
  int local[4] = {x, classify(x, 3), classify('d', x), classify('b', 0)};
  if (depth(n) > 100) fail("deep");
  return even(x) + odd(7) + twice(add3, x) + buffer(16) + buffer(x) + local[x & 3] + pick(0, x) +
         pick(8, x) + twice(even, x);
}
int other(int x) { if (x < 0) { fail("negative"); __builtin_unreachable(); } return classify(x, x) + classify('a', 9); }
static void stop(const char *what) { if (what) abort(); for (;;) puts("stopped"); }
int behind(int x) {
  if (x > 9) { stop("x"); return classify(x, 2) + even(x); }
  if (x > 5) { stop("y"); x = classify(x, 3); }
  return x + classify(x, 4) + even(x + 1);
}
""",
}


@pytest.fixture(scope="module")
def modules(clang: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return bitcode as it enters the optimization pipeline."""
    directory = tmp_path_factory.mktemp("modules")
    for name, text in SOURCES.items():
        (directory / name).write_text(text)
        command: list[str | Path] = [clang, "-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", name]
        command += ["-o", f"{name}.bc"]
        subprocess.run(command, cwd=directory, check=True)
    return [directory / f"{name}.bc" for name in SOURCES]


def compile_module(toolchain: Path, module: Path, output: Path, flags: list[str]) -> bytes:
    subprocess.run([toolchain / "bin" / "clang", "-Oz", *flags, "-c", module, "-o", output], check=True)
    return output.read_bytes()


@pytest.fixture(params=["sdk", "plugin 19", "plugin 22"])
def any_toolchain(request: pytest.FixtureRequest, plugin_toolchain: Callable[[int], Path]) -> Path:
    """A training toolchain of each strategy and LLVM version."""
    strategy, _, major = request.param.partition(" ")
    if strategy == "plugin":
        return plugin_toolchain(int(major))
    toolchain: Path = request.getfixturevalue("training_toolchain")
    return toolchain


@pytest.mark.parametrize("seed", [None, 1], ids=lambda seed: "heuristic" if seed is None else f"seed {seed}")
def test_features_and_code_equal_llvms(
    any_toolchain: Path, policy: Path, modules: list[Path], tmp_path: Path, seed: int | None
) -> None:
    advisor = Advisor("log") if seed is None else Advisor("policy", policy=policy, seed=seed, log=True)
    decided = 0
    for module in modules:
        flags = advisor.flags("inlining", tmp_path / "log", None)
        ours = compile_module(any_toolchain, module, tmp_path / "ours.o", flags)
        (context,) = read_log(tmp_path / "log").contexts
        decisions = context.columns[PROBLEM.policy.decision]
        decided += len(decisions)

        channel = tmp_path / "channel"
        channel.with_suffix(".in").write_bytes(decisions.astype("<i8").tobytes())
        flags = [
            *Advisor("release").flags("inlining", None, None),
            "-mllvm",
            f"{PROBLEM.llvm.channel_option}={channel}",
        ]
        theirs = compile_module(any_toolchain, module, tmp_path / "theirs.o", flags)
        (sent,) = read_log(channel.with_suffix(".out")).contexts
        for name, column in sent.columns.items():
            np.testing.assert_array_equal(context.columns[name], column, err_msg=f"{module.name}: {name}")
        assert ours == theirs
    assert decided > 500


def test_logging_does_not_change_code(training_toolchain: Path, modules: list[Path], tmp_path: Path) -> None:
    for module in modules:
        plain = compile_module(training_toolchain, module, tmp_path / "plain.o", [])
        flags = Advisor("log").flags("inlining", tmp_path / "log", None)
        assert compile_module(training_toolchain, module, tmp_path / "logged.o", flags) == plain


def test_inlining_stops_beyond_the_size_threshold(
    training_toolchain: Path, publish_policy, modules: list[Path], tmp_path: Path
) -> None:
    """Beyond LLVM's threshold nothing is decided: with one below the module's size there is at most one inlining."""
    flags = Advisor("log").flags("inlining", tmp_path / "log", None)
    flags += ["-mllvm", "-ml-advisor-size-increase-threshold=0.5"]
    compile_module(training_toolchain, modules[0], tmp_path / "m.o", flags)
    (context,) = read_log(tmp_path / "log").contexts
    assert context.columns[PROBLEM.policy.decision].ravel()[-1] == 1  # the inlining that exceeded the threshold
    assert context.columns[PROBLEM.policy.decision].sum() <= 1
