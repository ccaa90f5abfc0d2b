"""The inlining advisors as a plugin for an unmodified clang.

test_advisor.py compares the plugin's features and code with those of LLVM's own advisor.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.advisor import NO_OUTLINER, Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.training_log import read_log
from components.core.compiler.objects.elf import Elf
from components.core.formats.policy import PRETRAINED_THUMB, PolicyInfo, write_policy_info
from components.core.formats.toolchain import PLUGIN, load_toolchain
from components.core.policy.pretrained import pretrained_policy
from components.platform.errors import UserError
from components.platform.storage import publish
from components.toolchain.build import PLUGIN_PROJECT
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain

pytestmark = pytest.mark.toolchain

STOCK = {major: f"/usr/lib/llvm-{major}/bin/clang" for major in (19, 22)}
RELEASE = ["-mllvm", "-enable-ml-inliner=release"]
ARM = 40
"""e_machine (ELF for the Arm Architecture)."""
_FREESTANDING = """\
extern "C" void *allocate(unsigned);
extern "C" void release(void *);
extern "C" void put(int);
template <class T> struct Vector {
  T *items = nullptr;
  unsigned size = 0, capacity = 0;
  Vector() = default;
  Vector(const Vector &other) { for (unsigned i = 0; i < other.size; i++) push(other.items[i]); }
  ~Vector() { for (unsigned i = 0; i < size; i++) items[i].~T(); release(items); }
  void grow() {
    capacity = capacity ? 2 * capacity : 4;
    T *moved = static_cast<T *>(allocate(capacity * sizeof(T)));
    for (unsigned i = 0; i < size; i++) moved[i] = items[i];
    release(items);
    items = moved;
  }
  void push(const T &item) { if (size == capacity) grow(); items[size++] = item; }
  T &at(unsigned i) { if (i >= size) put(-1); return items[i]; }
};
struct Point { int x, y; ~Point() { put(x); } };
int sum(Vector<Point> points) {
  int total = 0;
  for (unsigned i = 0; i < points.size; i++) total += points.at(i).x;
  return total;
}
void fill(Vector<Point> &points, Vector<int *> &places, int n) {
  for (int i = 0; i < n; i++) { points.push({i, 1}); places.push(&points.at(i).y); }
  put(sum(points) + *places.at(1));
}
int both(int n) {
  Vector<Point> a, b;
  Vector<int *> places;
  fill(a, places, n);
  fill(b, places, 2);
  return sum(a) + sum(b);
}
"""


def compiled(clang: str | Path, module: Path, output: Path, *flags: str) -> bytes:
    subprocess.run([clang, "-Oz", *flags, "-c", module, "-o", output], check=True)
    return output.read_bytes()


def test_plugin_and_release_clang_make_identical_objects(
    release_plugin: Callable[[int], Path], release_toolchain: Path, tiny_corpus, tmp_path: Path
) -> None:
    plugin = release_plugin(19) / "bin" / "clang"
    changed = 0
    for module in sorted(tiny_corpus.directory.rglob("*.bc")):
        ours = compiled(plugin, module, tmp_path / "plugin.o", *RELEASE)
        # A plugin neither outlines nor moves constants.
        options = (*RELEASE, *NO_OUTLINER)
        assert ours == compiled(release_toolchain / "bin" / "clang", module, tmp_path / "release.o", *options)
        changed += ours != compiled(plugin, module, tmp_path / "default.o")
    assert changed, "the policy decides like the heuristic everywhere"


@pytest.mark.parametrize("major", STOCK)
def test_pretrained_policy_for_thumb_makes_its_code_smaller(major: int, tmp_path: Path) -> None:
    policy = pretrained_policy("inlining", tmp_path / "cache", name=PRETRAINED_THUMB)
    config = ToolchainConfig("release", tmp_path / "release", llvm_major=major, strategy="plugin", policies=(policy,))
    plugin = make_toolchain(config).clang
    source = tmp_path / "sum.cc"
    source.write_text(_FREESTANDING)
    target = ("--target=thumbv7em-none-eabi", "-mcpu=cortex-m4", "-ffreestanding")
    ours = compiled(plugin, source, tmp_path / "ours.o", *target, *RELEASE)
    assert Elf(ours).machine == ARM
    assert len(ours) < len(compiled(STOCK[major], source, tmp_path / "stock.o", *target))


@pytest.mark.parametrize("major", STOCK)
def test_heuristic_decides_without_the_option(
    release_plugin: Callable[[int], Path], tiny_corpus, tmp_path: Path, major: int
) -> None:
    for module in sorted(tiny_corpus.directory.rglob("*.bc")):
        ours = compiled(release_plugin(major) / "bin" / "clang", module, tmp_path / "plugin.o")
        assert ours == compiled(STOCK[major], module, tmp_path / "stock.o")


@pytest.mark.parametrize("major", STOCK)
def test_clang_takes_the_plugin_by_its_own_option(
    release_plugin: Callable[[int], Path], tiny_corpus, tmp_path: Path, major: int
) -> None:
    """An embedded policy needs no option of ours, so -fpass-plugin is enough."""
    module = tiny_corpus.directory / "lib/strings.cpp.o.bc"
    flag = f"-fpass-plugin={release_plugin(major) / 'lib' / PLUGIN}"
    launched = compiled(release_plugin(major) / "bin" / "clang", module, tmp_path / "launched.o", *RELEASE)
    assert compiled(STOCK[major], module, tmp_path / "direct.o", flag, *RELEASE) == launched


def test_links_and_assembly_have_no_warning_of_unused_flags(
    release_plugin: Callable[[int], Path], tmp_path: Path
) -> None:
    (tmp_path / "main.cc").write_text("#include <string>\nint main() { return std::string().size(); }\n")
    clang = release_plugin(19) / "bin" / "clang++"
    for arguments in (["-S", "main.cc"], ["-c", "main.s"], ["main.o", "-o", "main"]):
        done = subprocess.run([clang, "-Werror", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_training_logs_are_those_of_the_training_clang(
    plugin_toolchain: Callable[[int], Path], training_toolchain: Path, policy: Path, tiny_corpus, tmp_path: Path
) -> None:
    advisor = Advisor("policy", policy=policy, seed=3, log=True)
    logs = []
    for toolchain in (plugin_toolchain(19), training_toolchain):
        log = tmp_path / "log"
        module = tiny_corpus.directory / "lib/strings.cpp.o.bc"
        compiled(toolchain / "bin" / "clang", module, tmp_path / "m.o", *advisor.flags("inlining", log, None))
        assert read_log(log).decisions
        logs.append((log.read_bytes(), log.with_name("log.calls").read_bytes()))
    assert logs[0] == logs[1]


@pytest.mark.parametrize("major", STOCK)
def test_samples_and_forced_decisions_work_in_a_plugin(
    plugin_toolchain: Callable[[int], Path], tiny_corpus, major: int
) -> None:
    (tree,) = (m for m in tiny_corpus.modules if m.name.startswith("app/tree"))
    compiler = Compiler(plugin_toolchain(major) / "bin" / "clang", "inlining")
    plain = compiler(Request(tree, Advisor("log"))).samples[0]
    calls = plain.callsites
    assert calls is not None and plain.log is not None
    action = int(plain.log.contexts[0].columns["inlining_decision"].ravel()[0])
    names = tuple(calls.names[int(index[0])] for index in (calls.caller, calls.callee))
    flip = ForcedDecisions(
        tuple(sorted(names)), np.array([[*map(sorted(names).index, names), 0, 1 - action]], np.int32)
    )
    none = ForcedDecisions((), np.zeros((0, 4), np.int32))
    same, flipped = compiler(Request(tree, Advisor("log", samples=2), forced=(none, flip))).samples
    assert same.log is not None and flipped.log is not None
    decisions = [s.log.contexts[0].columns["inlining_decision"].ravel() for s in (plain, same, flipped)]
    np.testing.assert_array_equal(decisions[0], decisions[1])
    assert decisions[2][0] == 1 - decisions[0][0]


def test_plugin_of_another_version_says_which_one_is_needed(
    plugin_toolchain: Callable[[int], Path], tmp_path: Path
) -> None:
    (tmp_path / "m.c").write_text("int f(void) { return 1; }\n")
    for plugin, clang in ((19, 22), (22, 19)):
        for option in ("-fplugin", "-fpass-plugin"):
            flag = f"{option}={plugin_toolchain(plugin) / 'lib' / PLUGIN}"
            command = [STOCK[clang], flag, "-O1", "-c", "m.c"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode != 0
            assert f"LLVM {plugin}" in done.stderr
            assert f"--llvm-major {clang}" in done.stderr
            assert not (tmp_path / "m.o").exists()


@pytest.mark.parametrize("major", STOCK)
@pytest.mark.parametrize(("mode", "needed"), [("development", "training"), ("release", "release")])
def test_plugin_of_the_other_mode_gives_one_error(
    release_plugin: Callable[[int], Path],
    plugin_toolchain: Callable[[int], Path],
    tmp_path: Path,
    major: int,
    mode: str,
    needed: str,
) -> None:
    (tmp_path / "m.c").write_text("static int f(int x) { return x; }\nint g(int x) { return f(x); }\n")
    toolchain = (plugin_toolchain if mode == "release" else release_plugin)(major)
    command: list[str | Path] = [toolchain / "bin" / "clang", "-Oz", "-mllvm", f"-enable-ml-inliner={mode}"]
    done = subprocess.run([*command, "-c", "m.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and not (tmp_path / "m.o").exists()
    (error,) = (line for line in done.stderr.splitlines() if "error:" in line)
    assert f"--mode {needed}" in error


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_stock_linker_takes_the_plugin(
    release_plugin: Callable[[int], Path], sources: dict[str, str], tmp_path: Path, mode: str
) -> None:
    """The policy decides in the link; without the option LLVM's heuristic does."""
    (tmp_path / "tree.cc").write_text(sources["app/tree.c"])
    (tmp_path / "strings.cc").write_text(sources["lib/strings.cpp"])
    plugin = f"-Wl,--load-pass-plugin={release_plugin(19) / 'lib' / PLUGIN}"
    linked = []
    for flags in ([], [plugin], [plugin, "-Wl,-mllvm,-enable-ml-inliner=release"]):
        command: list[str | Path] = [f"{STOCK[19]}++", "-Oz", f"-flto={mode}", "-fuse-ld=lld", "-shared", "-fPIC"]
        subprocess.run([*command, *flags, "tree.cc", "strings.cc", "-o", "linked.so"], cwd=tmp_path, check=True)
        linked.append(Elf(memoryview((tmp_path / "linked.so").read_bytes())).text_size())
    assert linked[0] == linked[1] != linked[2]


def test_launcher_passes_arguments_and_environment_on(release_plugin: Callable[[int], Path], tmp_path: Path) -> None:
    """The name without the version decides which driver runs: clang++-19 links the C++ library."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "value.h").write_text("#define VALUE 3\n")
    (tmp_path / "a file.cc").write_text("#include <string>\n#include <value.h>\nint main() { return VALUE; }\n")
    (tmp_path / "clang++-19").symlink_to(release_plugin(19) / "bin" / "clang")
    command: list[str | Path] = [
        tmp_path / "clang++-19",
        "a file.cc",
        *[f"-DUNUSED_{i}" for i in range(5000)],
        "-o",
        "program",
    ]
    environment = os.environ | {"CPATH": str(tmp_path / "include")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 3
    failed = subprocess.run([tmp_path / "clang++-19", "-c", "a file.cc"], cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1 and "value.h'" in failed.stderr


def test_launcher_names_what_is_missing(release_plugin: Callable[[int], Path], tmp_path: Path) -> None:
    shutil.copytree(release_plugin(19), tmp_path / "copy", symlinks=True)
    os.unlink(tmp_path / "copy" / "lib" / PLUGIN)
    done = subprocess.run([tmp_path / "copy" / "bin" / "clang++", "--version"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{PLUGIN} is missing" in done.stderr and "--strategy plugin" in done.stderr


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launcher of WRAPPED/clang, built with the flags of distributions; there is no clang yet."""
    directory = tmp_path_factory.mktemp("launcher")
    flags = "-O2 -D_FORTIFY_SOURCE=2 -Wp,-D_FORTIFY_SOURCE=3 -ftrivial-auto-var-init=zero -fstack-protector-strong"
    llvm = Path(STOCK[19]).parents[1]
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_PREFIX_PATH": llvm,
        "CMAKE_C_COMPILER": llvm / "bin" / "clang",
        "CMAKE_CXX_COMPILER": llvm / "bin" / "clang++",
        "MLGO_CLANG_DIRECTORY": directory / "wrapped",
    }
    configure = ["cmake", "-G", "Ninja", *(f"-D{name}={value}" for name, value in definitions.items())]
    environment = os.environ | {"CFLAGS": flags, "CXXFLAGS": flags}
    subprocess.run([*configure, "-S", PLUGIN_PROJECT, "-B", directory / "bin"], env=environment, check=True)
    subprocess.run(["cmake", "--build", directory / "bin", "--target", "launcher"], check=True)
    for name in ("lib", "wrapped"):
        (directory / name).mkdir()
    (directory / "lib" / PLUGIN).touch()
    (directory / "bin" / "clang").symlink_to("launcher")
    return directory / "bin" / "clang"


@pytest.mark.parametrize(
    ("clang", "mode", "said"),
    [
        ("", 0, "clang is missing; install it"),
        ("#!/bin/sh\n", 0o644, "clang cannot be used: Permission denied; install it"),
        ("no program", 0o755, "clang does not run: Exec format error"),
        ("#!/nowhere/sh\n", 0o755, "clang does not run: the loader that it names does not exist"),
    ],
)
def test_launcher_says_why_clang_does_not_run(launcher: Path, clang: str, mode: int, said: str) -> None:
    wrapped = launcher.parents[1] / "wrapped" / "clang"
    wrapped.unlink(missing_ok=True)
    if clang:
        wrapped.write_text(clang)
        wrapped.chmod(mode)
    done = subprocess.run([launcher, "-c", "m.c"], capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr


def test_launcher_says_that_arguments_are_too_long(launcher: Path) -> None:
    """Arguments that just reach the launcher do not reach clang, because it adds some."""
    wrapped = launcher.parents[1] / "wrapped" / "clang"
    wrapped.unlink(missing_ok=True)
    wrapped.symlink_to(STOCK[19])
    # The kernel limits arguments to a quarter of the stack, but not to less than 128 KiB.
    limit = 128 << 10
    stack = functools.partial(resource.setrlimit, resource.RLIMIT_STACK, (4 * limit, resource.RLIM_INFINITY))
    for size in range(limit, limit // 2, -64):
        halves = ["-D" + "x" * (size // 2)] * 2
        try:
            done = subprocess.run([launcher, *halves], env={}, preexec_fn=stack, capture_output=True, text=True)
        except OSError as error:
            assert error.errno == errno.E2BIG
            continue
        assert done.returncode == 1
        assert "too long" in done.stderr
        return
    pytest.fail("no arguments were short enough for the launcher")


def test_description_says_how_it_was_built(plugin_toolchain: Callable[[int], Path]) -> None:
    toolchain = load_toolchain(plugin_toolchain(22))
    assert toolchain.built["strategy"] == "plugin"
    assert toolchain.llvm_version.startswith("22.")
    assert list(toolchain.features) == ["inlining"]


def test_versions_and_policies_that_a_plugin_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not 18"):
        ToolchainConfig("training", tmp_path / "out", "plugin", 18)
    with pytest.raises(UserError, match="not 18"):
        ToolchainConfig("training", tmp_path / "out", "sdk", 18)
    with pytest.raises(UserError, match="LLVM 22") as caught:
        ToolchainConfig("training", tmp_path / "out", "sdk", 22)
    assert "--llvm-source git:llvmorg-22" in caught.value.remedy and "--strategy plugin" in caught.value.remedy
    with publish(tmp_path / "policy", "policy") as partial:
        write_policy_info(partial, PolicyInfo("regalloc", (), 33, trained_by="ppo"))
    config = ToolchainConfig("release", tmp_path / "out", "plugin", 22, policies=(tmp_path / "policy",))
    with pytest.raises(UserError, match="inlining"):
        make_toolchain(config)
