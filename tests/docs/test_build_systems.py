"""The commands of docs/own-code.md, "Build systems", run as they stand there on a small project of each system."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.formats.corpus import load_corpus

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-code.md"
BAZEL_RULES = Path("/usr/share/bazel/rules")

SOURCES = {
    "library.c": "static int square(int x) { int all = 0; for (int i = 0; i < x; ++i) all += i * x; return all; }\n"
    f"int library(int a, int b) {{ return {' + '.join(f'square(a * b + {i})' for i in range(12))}; }}\n",
    "text.cpp": "#include <string>\n"
    "static std::string repeat(const std::string &text, int n) { std::string all; while (n-- > 0) all += text; "
    "return all; }\n"
    'extern "C" int size(int a) { return repeat(std::to_string(a), a).size() + repeat("x", a).size(); }\n',
    "main.c": "#include <assert.h>\nint library(int, int);\nint size(int);\n"
    "int main(int n, char **a) { assert(n); return library(n, 3) + size(n) < 0; }\n",
}
MAKEFILE = """CC = cc
CXX = c++
CFLAGS = -O2
CXXFLAGS = -O2
app: main.o library.o text.o
\t$(CXX) $(LDFLAGS) -o $@ $^
clean:
\trm -f app *.o
.PHONY: clean
"""
DEBIAN = {
    "Makefile": MAKEFILE,
    "debian/rules": "#!/usr/bin/make -f\n%:\n\tdh $@\n",
    "debian/control": "Source: small\nMaintainer: A <a@b.example>\nBuild-Depends: debhelper-compat (= 13)\n"
    "Standards-Version: 4.6.2\n\nPackage: small\nArchitecture: any\nDescription: small\n small\n",
    "debian/changelog": "small (1.0) unstable; urgency=low\n\n  * New.\n\n"
    " -- A <a@b.example>  Mon, 01 Jan 2024 00:00:00 +0000\n",
}
PROJECTS = {
    "CMake": {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\nproject(small C CXX)\n"
        "add_executable(app main.c library.c text.cpp)\n"
    },
    "autotools": {
        "configure.ac": "AC_INIT([small], [1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAC_PROG_CXX\n"
        "LT_INIT\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
        "Makefile.am": "noinst_LTLIBRARIES = libsmall.la\nlibsmall_la_SOURCES = library.c text.cpp\n"
        "bin_PROGRAMS = app\napp_SOURCES = main.c\napp_LDADD = libsmall.la\nnodist_EXTRA_app_SOURCES = none.cpp\n",
    },
    "Make": {"Makefile": MAKEFILE},
    "Meson": {
        "meson.build": "project('small', 'c', 'cpp')\n"
        "small = static_library('small', 'library.c', 'text.cpp')\nexecutable('app', 'main.c', link_with: small)\n"
    },
    "Bazel": {
        "WORKSPACE": "",
        "BUILD": 'cc_library(name = "small", srcs = ["library.c", "text.cpp"])\n'
        'cc_binary(name = "app", srcs = ["main.c"], deps = [":small"])\n',
    },
    "Debian packages": DEBIAN,
}


def blocks(text: str) -> list[str]:
    return re.findall(r"^```shell\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(page: Path, heading: str) -> str:
    """Return the text below a heading of the second level, with the sections in it."""
    (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    return text


def sections() -> dict[str, str]:
    """Return heading -> text; "" is what stands before the first one."""
    first, *others = re.split(r"^### (?=.)", section(PAGE, "Build systems"), flags=re.MULTILINE)
    return {"": first} | {heading: text for heading, _, text in (other.partition("\n") for other in others)}


def write_project(name: str, directory: Path) -> None:
    for file, text in (SOURCES | PROJECTS[name]).items():
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if name == "Debian packages":
        (directory / "debian" / "rules").chmod(0o755)
    if name == "Bazel":
        # Repositories that Bazel would download. Debian's rules are newer than its Bazel, which lacks one name.
        places = {"cc": directory.parent / "rules_cc", "java": BAZEL_RULES / "java", "proto": BAZEL_RULES / "proto"}
        lines = [f"build --override_repository=rules_{key}={place}\n" for key, place in places.items()]
        lines.append(f"build --disk_cache={directory.parent / 'cache'}\n")  # knows a compiler by its path
        (directory / ".bazelrc").write_text("".join(lines))
        rules = shutil.copytree(BAZEL_RULES / "cc", directory.parent / "rules_cc")
        for rule in (rules / "cc" / "private" / "rules_impl").glob("*.bzl"):
            text = rule.read_text().replace(', "use_cpp_toolchain")', ")")
            rule.write_text(text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]'))


@pytest.mark.unit
def test_every_section_with_commands_has_a_project() -> None:
    with_commands = {heading for heading, text in sections().items() if blocks(text)}
    assert with_commands == {"", *PROJECTS}


@pytest.mark.parametrize("name", PROJECTS)
def test_commands_of_the_page(name: str, pretrained_release: Path, tmp_path: Path) -> None:
    source, home = tmp_path / "small", tmp_path / "home"
    write_project(name, source)
    (home / "mlgo-pipeline" / "build").mkdir(parents=True)
    (home / "mlgo-pipeline" / "build" / "clang").symlink_to(pretrained_release)
    (home / "bin").mkdir()
    (home / "bin" / "mlgo").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m pipelines.cli.main "$@"\n')
    (home / "bin" / "mlgo").chmod(0o755)
    # `mlgo shrink` would build a release clang of its own where no clone has one.
    script = "\n".join([*blocks(sections()[""]), *blocks(sections()[name])])
    options = "--release-toolchain $RELEASE --no-other-compilers --measure file --check 'find . -name app'"
    script = re.sub(r"^mlgo shrink ", f"mlgo shrink {options} ", script, flags=re.MULTILINE)
    assert options in script
    environment = os.environ | {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    try:
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=source,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
            check=False,
        )
    finally:
        if name == "Bazel":
            subprocess.run(["bazel", "shutdown"], cwd=source, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    shrunk = json.loads((source / "mlgo-shrink" / "shrink.json").read_text())
    assert shrunk["chosen"] != "own" and shrunk["reduction_percent"] > 0, shrunk
    corpus = load_corpus(source / "corpus")
    objects = {Path(module.name).name.partition(".")[0] for module in corpus.modules}
    assert objects == {"library", "text", "main"}
    assert "1 link of the build (recorded)" in done.stdout
    assert "linked, as built, all (1):" in done.stdout
