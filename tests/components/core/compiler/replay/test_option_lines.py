"""Tests that replays of random command lines open, run and remove no file that the lines name.

The lines are made of clang's own options: alone, with values of other options, in pairs and triples, joined, negated,
abbreviated, with odd prefixes. What a replay keeps of them is compiled under a shim that reports each file name that
the compiler uses.

MLGO_ATTACK_ROUNDS=1000 python -m pytest -m attack tests/components/core/compiler/replay/test_option_lines.py -s
"""

from __future__ import annotations

import functools
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from components.core.compiler.replay.command_line import replay_arguments
from components.platform.errors import UserError

ROUNDS = int(os.environ.get("MLGO_ATTACK_ROUNDS", "1"))
SEED = int(os.environ.get("MLGO_ATTACK_SEED", "1"))
LINES = 100
MARK = "zqfile"
OPTIONS = Path("/usr/lib/llvm-19/include/clang/Driver/Options.inc")
# Options and words that name a file; a replay must not act on any, wherever it stands.
HIDDEN = [
    *("-fplugin={}", "-fpass-plugin={}", "-load {}", "-mllvm -load={}", "-fprofile-use={}", "-specs={}", "--config={}"),
    *("@{}", "-fmodule-file={}", "-Xclang -load -Xclang {}", "-include {}", "-o {}", "{}", "-- {}", "-x c {}"),
    *("-fprofile-sample-use={}", "-mlink-builtin-bitcode {}", "-fthinlto-index={}", "-ivfsoverlay {}", "--sysroot={}"),
    *("-B{}", "--ld-path={}", "--target=../{}", "-fsanitize-ignorelist={}", "-fcrash-diagnostics-dir={}", "-cc1"),
    *(
        "-fprofile-list={}",
        "-fbasic-block-sections=list={}",
        "-mllvm -stats-output-file={}",
        "-ftime-trace={}",
        "-MF{}",
    ),
    *("-mllvm -pass-remarks-output={}", "-save-temps={}", "-fsave-optimization-record -foptimization-record-file={}"),
    *("-fprofile-remapping-file={}", "-fno-integrated-as", "-gcc-toolchain {}", "-mllvm -print-module-scope={}", "-S"),
    *(
        "-mllvm -opt-bisect-print-ir-path={}",
        "-fdebug-compilation-dir={}",
        "-split-dwarf-output {}",
        "-resource-dir {}",
    ),
    *("-Xassembler --MD -Xassembler {}", "-Wa,-I{}", "-Wa,--MD,{}", "-dependency-file {}", "-working-directory {}"),
]
VALUES = ["1", "x", "yes", "x86_64", "-O2", "+avx", "all", "a,b", "list={}", "{}", "/{}", "../{}", "@{}", "-fplugin={}"]
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static void note(const char *kind, const char *path) {
  char line[4200];
  int n = snprintf(line, sizeof line, "%s %.4000s\n", kind, path ? path : "");
  if (getenv("USED") && write(atoi(getenv("USED")), line, n)) {}
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int open(const char *p, int f, ...) { va_list a; va_start(a, f); mode_t m = va_arg(a, mode_t); va_end(a);
  note(f & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? "write" : "open", p); return REAL(open)(p, f, m); }
int open64(const char *p, int f, ...) { va_list a; va_start(a, f); mode_t m = va_arg(a, mode_t); va_end(a);
  note(f & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? "write" : "open", p); return REAL(open64)(p, f, m); }
int openat(int d, const char *p, int f, ...) { va_list a; va_start(a, f); mode_t m = va_arg(a, mode_t); va_end(a);
  note(f & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? "write" : "open", p); return REAL(openat)(d, p, f, m); }
int openat64(int d, const char *p, int f, ...) { va_list a; va_start(a, f); mode_t m = va_arg(a, mode_t); va_end(a);
  note(f & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? "write" : "open", p); return REAL(openat64)(d, p, f, m); }
FILE *fopen(const char *p, const char *m) { note(strpbrk(m, "wa+") ? "write" : "open", p); return REAL(fopen)(p, m); }
FILE *fopen64(const char *p, const char *m) {
  note(strpbrk(m, "wa+") ? "write" : "open", p); return REAL(fopen64)(p, m); }
void *dlopen(const char *p, int f) { note("dlopen", p); return REAL(dlopen)(p, f); }
int stat(const char *p, struct stat *s) { note("stat", p); return REAL(stat)(p, s); }
int stat64(const char *p, struct stat64 *s) { note("stat", p); return REAL(stat64)(p, s); }
int access(const char *p, int m) { note("stat", p); return REAL(access)(p, m); }
int unlink(const char *p) { note("remove", p); return REAL(unlink)(p); }
int remove(const char *p) { note("remove", p); return REAL(remove)(p); }
int rename(const char *p, const char *q) { note("write", q); return REAL(rename)(p, q); }
int mkdir(const char *p, mode_t m) { note("write", p); return REAL(mkdir)(p, m); }
int execv(const char *p, char *const *a) { note("run", p); return REAL(execv)(p, a); }
int execve(const char *p, char *const *a, char *const *e) { note("run", p); return REAL(execve)(p, a, e); }
#include <spawn.h>
int posix_spawn(pid_t *i, const char *p, const posix_spawn_file_actions_t *f, const posix_spawnattr_t *t,
                char *const *a, char *const *e) { note("run", p); return REAL(posix_spawn)(i, p, f, t, a, e); }
"""


class Compile:
    """Compiles a module under the shim."""

    def __init__(self, clang: Path, directory: Path) -> None:
        self.clang, self.directory = clang, directory
        self.scratch = directory / "scratch"
        self.scratch.mkdir(parents=True)
        (directory / "shim.c").write_text(SHIM)
        self.shim = directory / "shim.so"
        subprocess.run([clang, "-shared", "-fPIC", "-w", directory / "shim.c", "-o", self.shim], check=True)
        self.module = directory / "m.bc"
        source = directory / "m.c"
        source.write_text("int f(int x) { return x + 1; }\n")
        subprocess.run([clang, "-O1", "-g", "-emit-llvm", "-c", source, "-o", self.module], check=True)
        source.unlink()

    def files(self, arguments: list[str]) -> list[str]:
        """Return what a compile did with files: ["open /etc/x", ...]."""
        with open(self.directory / "used", "w+b") as used:
            subprocess.run(
                [self.clang, *arguments],
                cwd=self.scratch,
                env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(self.shim), "USED": str(used.fileno())},
                pass_fds=[used.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=60,
            )
            used.seek(0)
            return used.read().decode("utf-8", "replace").splitlines()

    def findings(self, arguments: list[str]) -> list[str]:
        """Return the files that no replay may use: those of a line, and others that it writes or runs.

        A compiler that crashes runs llvm-symbolizer.
        """
        own = (str(self.directory), "/dev/null", str(self.clang), str(self.clang.resolve()))
        return [
            line
            for line in self.files(arguments)
            if "symbolizer" not in line
            and (
                MARK in line
                or (line.startswith(("write", "remove", "run")) and not line.split(" ", 1)[1].startswith(own))
            )
        ]


def option_names(clang: Path) -> list[str]:
    """Return clang's options, of both parsers."""
    names = (
        set(re.findall(r'^OPTION\(\w+, "(--?[^"]+)"', OPTIONS.read_text(), re.MULTILINE)) if OPTIONS.exists() else set()
    )
    listed = subprocess.run([clang, "--autocomplete=#-"], capture_output=True, text=True).stdout
    names.update(line.split("\t")[0] for line in listed.splitlines() if line.startswith("-"))
    return sorted(names)


def mutate(option: str, draw: random.Random) -> str:
    chance = draw.random()
    if option.endswith(("=", ",")):
        return option + draw.choice(VALUES).format(MARK)
    if chance < 0.08:
        return f"-{option}"
    if chance < 0.12:
        return option[:-1] or option
    if chance < 0.17:
        return option + draw.choice(VALUES).format(MARK)
    if chance < 0.22:
        return f"{option}={draw.choice(VALUES).format(MARK)}"
    return "-fno-" + option[2:] if chance < 0.26 and option.startswith("-f") else option


def random_line(names: list[str], draw: random.Random) -> list[str]:
    words: list[str] = []
    for _ in range(draw.choice([1, 2, 2, 3])):
        words.append(mutate(draw.choice(names), draw))
        if draw.random() < 0.3:
            words.append(draw.choice(VALUES).format(MARK))
        if draw.random() < 0.6:
            words += draw.choice(HIDDEN).format(MARK).split()
    if draw.random() < 0.1:
        words = [word for one in words for word in ("-Xclang", one)]
    return words


@pytest.mark.attack
@pytest.mark.timeout(1200 * ROUNDS)
@pytest.mark.parametrize("major", [19, 22])
def test_replay_uses_no_file_that_a_random_line_names(major: int, tmp_path: Path) -> None:
    clang = Path(f"/usr/bin/clang-{major}")
    names, draw, counts = option_names(clang), random.Random(SEED), Counter[str]()
    compile_ = Compile(clang, tmp_path)
    plain = ["-c", "-x", "ir", str(compile_.module), "-o", str(compile_.scratch / "m.o")]
    assert not compile_.findings(plain)
    assert compile_.findings([f"-fplugin={MARK}", *plain]) and compile_.findings([f"--sysroot={MARK}", *plain])
    found = []
    for number in range(LINES * ROUNDS):
        words = random_line(names, draw)
        recorded = ["-cc1", *words] if draw.random() < 0.5 else words
        replay = functools.partial(
            replay_arguments, recorded, compile_.module, str(compile_.scratch / "m.o"), corpus=tmp_path
        )
        try:
            findings = compile_.findings(replay())
        except UserError:
            counts["refused"] += 1
            continue
        counts["compiled"] += 1
        if findings:
            try:
                replay(clang=clang)
            except UserError:  # what the compiler parses otherwise, which is asked here only to save time
                counts["parsed otherwise"] += 1
            else:
                found.append((recorded, findings))
                print(recorded, findings, flush=True)
        if counts["compiled"] % 500 == 0:
            print(number + 1, dict(counts), flush=True)
    assert not found and counts["compiled"] >= LINES * ROUNDS // 20
