"""Debian packages are built each in a separate root directory; packages that fail do not affect others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from components.core.formats.corpus import load_corpus
from components.core.projects.debian_build.package import DebianBuild, base_root, build_shipped_binaries
from components.core.projects.recipe import Recipe, Source
from components.corpus.sources import debian_packages
from components.corpus.sources.build_config import BuildConfig
from components.corpus.sources.debian_packages import digest_functions
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir

CLANG_MAJOR = DebianBuild().clang_major
CONTROL = """Source: {name}
Maintainer: Nobody <nobody@example.org>
Build-Depends: debhelper-compat (= 13)

Package: {name}
Architecture: any
Description: a test
"""
CHANGELOG = """{name} (1.0) unstable; urgency=low

  * A test.

 -- Nobody <nobody@example.org>  Sat, 01 Jan 2022 00:00:00 +0000
"""
RULES = "#!/usr/bin/make -f\n%:\n\tdh $@\noverride_{step}:\n{commands}"
FIRST = "int twice(int x) { return 2 * x; }\n"
SECOND = "extern int puts(const char *); int main(void) { return puts(__FILE__) + 1; }\n"


NETWORK_COMMAND = "getent hosts example.org || { echo Temporary failure in name resolution; false; }"


def package(
    folder: Path, name: str, commands: list[str], step: str = "dh_auto_build", **files: str
) -> dict[str, object]:
    """Write the source tree of a package that runs `commands` in a step of debhelper; return its project."""
    debian = folder / name / "debian"
    (debian / "source").mkdir(parents=True)
    (debian / "control").write_text(CONTROL.format(name=name))
    (debian / "changelog").write_text(CHANGELOG.format(name=name))
    (debian / "source" / "format").write_text("3.0 (native)\n")
    (debian / "rules").write_text(RULES.format(step=step, commands="".join(f"\t{command}\n" for command in commands)))
    (debian / "rules").chmod(0o755)
    (debian / "install").write_text("prog usr/bin\n" if "prog" in " ".join(commands) else "")
    for file, text in files.items():
        (folder / name / file.replace("_", ".")).write_text(text)
    return {"name": name, "source": {"path": name}, "build": "debian"}


def build(recipe: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components.corpus", "build", "--recipe", str(recipe), "--output", str(output)]
    return subprocess.run([*command, *options], capture_output=True, text=True)


def interrupt_build(recipe: Path, cache: Path, name: str, *options: str) -> None:
    """Start building a corpus, and terminate it while the package `name` compiles."""
    command = [sys.executable, "-m", "components.corpus", "build", "--recipe", str(recipe), *options]
    process = subprocess.Popen([*command, "--output", str(cache / "none")], stderr=subprocess.DEVNULL)
    log = cache / "logs" / "debian" / f"{name}.log"
    while not (log.exists() and "dpkg-buildpackage" in log.read_text(errors="replace")):
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(60) != 0


def opt_that_fails(folder: Path, word: str) -> Path:
    """Make a directory with an opt-19 that refuses files with `word` in their name, and reads others."""
    folder.mkdir()
    (folder / "opt-19").write_text(f'#!/bin/sh\ncase "$*" in *{word}*) exit 1 ;; esac\nexec /usr/bin/opt-19 "$@"\n')
    (folder / "opt-19").chmod(0o755)
    return folder


def left_out(corpus: Path, kind: str) -> dict[str, str]:
    report = json.loads((corpus / "report.json").read_text())
    return {item["object"]: item["detail"].partition(" (")[0] for item in report["left_out"] if item["kind"] == kind}


@pytest.fixture(scope="module")
def debian_cache() -> Iterator[Path]:
    """Yield a cache directory without packages and logs, for one test run at a time.

    It stays, because the root that packages are built in takes a minute of processor time. Its name has a digest of the
    scripts that make it, so that a change to them is tested.
    """
    cache = default_cache_dir() / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        for former in (cache / "logs", cache / "debian" / "packages"):
            shutil.rmtree(former, ignore_errors=True)
        yield cache
        root = base_root(cache, CLANG_MAJOR)
        for other in cache.glob(f"debian/*-clang-{CLANG_MAJOR}-*"):
            if other.is_dir() and not other.name.startswith(root.name):
                shutil.rmtree(other, ignore_errors=True)


@pytest.mark.toolchain
def test_package_whose_objects_lack_bitcode_fails(tmp_path: Path) -> None:
    """A package whose rules call a compiler by its path evades the shims on PATH."""
    built = tmp_path / "built"
    built.mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.c").write_text(FIRST.replace("twice", name))
        subprocess.run(["clang-19", "-c", tmp_path / f"{name}.c", "-o", built / f"{name}.o"], check=True)
    recipe = Recipe("plain", Source("path", str(tmp_path)), debian=True)
    config = BuildConfig(Path("clang"), tmp_path, tmp_path, "-Oz")
    package = debian_packages._extract(recipe, "1.0", built, tmp_path / "output", config, tmp_path / "log")
    assert "none of its 2" in package.failure
    assert package.modules == {}


@pytest.mark.toolchain
def test_failing_packages_are_skipped(tmp_path: Path, debian_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    projects = [
        package(
            tmp_path,
            "good",
            ["gcc -O2 -flto -c a.c", "cc -fPIC -c a.c -o shared.o", "gcc -c b.c -o b.o", "gcc a.o b.o -o prog"],
            a_c=FIRST,
            b_c=SECOND,
        ),
        package(tmp_path, "hangs", ["sleep 100000"]),
        package(tmp_path, "fills", ["fallocate -l 3G zeros"]),
        package(tmp_path, "calls", [NETWORK_COMMAND]),
        package(tmp_path, "script", ["echo nothing to compile"]),
        package(tmp_path, "late", ["gcc -c late.c"], "dh_auto_install", late_c="int late(int x) { return x ^ 77; }\n"),
        package(tmp_path, "wrong", ["gcc -c bad.c"], bad_c="int f(\n"),
        package(tmp_path, "copy", ["gcc -c same.c"], same_c=FIRST),
        package(tmp_path, "poison", ["gcc -c poison.c"], poison_c=SECOND),
    ]
    monkeypatch.setenv("PATH", f"{opt_that_fails(tmp_path / 'bin', 'poison.o')}:{os.environ['PATH']}")
    (tmp_path / "set.yaml").write_text(yaml.safe_dump({"projects": projects}))
    corpus = tmp_path / "corpus"
    options = ("--package-timeout-s", "25", "--package-disk-gib", "1", "--cache-dir", str(debian_cache))
    done = build(tmp_path / "set.yaml", corpus, *options)
    assert done.returncode == 0, done.stderr
    description = json.loads((corpus / "corpus_description.json").read_text())
    assert sorted(description["modules"]) == ["good/a.o", "good/b.o", "late/late.o"]
    assert left_out(corpus, "package_failed") == {
        "hangs": "it took longer than 25 s",
        "fills": "its build failed: it filled the disk that it was given",
        "calls": "its build failed: it wants the network, which a build has not",
        "script": "it has no C or C++",
        "wrong": "its build failed",
        "poison": left_out(corpus, "package_failed")["poison"],
    }
    assert "cannot read" in left_out(corpus, "package_failed")["poison"]
    assert set(left_out(corpus, "duplicate")) == {"good/shared.o", "copy/same.o"}
    assert "sleep 100000" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


@pytest.mark.toolchain
def test_flag_can_name_a_file_outside_of_the_root(tmp_path: Path, debian_cache: Path) -> None:
    """As a plan of `mlgo tune`, which may be anywhere on this machine."""
    settings = tmp_path / "settings" / "clang.cfg"
    settings.parent.mkdir()
    settings.write_text("-DFACTOR=2\n")
    settings.chmod(0o600)
    compile_and_link = ["gcc -c a.c", "gcc a.o -o prog"]
    package(tmp_path, "named", compile_and_link, a_c="int main(int n, char **) { return FACTOR * n; }\n")
    recipe = Recipe("named", Source("path", str(tmp_path / "named")), debian=True)
    flags, log = [f"--config={settings}"], tmp_path / "log"
    with build_shipped_binaries(recipe, Path("/usr/bin/clang-19"), flags, [], debian_cache, 1, log) as binaries:
        assert [path.name for path in binaries.rglob("*") if path.is_file()] == ["prog"]


@pytest.mark.toolchain
def test_second_build_continues_with_unbuilt_packages(tmp_path: Path, debian_cache: Path) -> None:
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"packages": ["lzip", "mlgo-has-no-such-package"]}))
    two = {"packages": ["mlgo-has-no-such-package", "lzip", "jansson"], "split": {"heldout_projects": ["jansson"]}}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(two))
    cache = ("--cache-dir", str(debian_cache))
    interrupt_build(tmp_path / "one.yaml", debian_cache, "lzip", *cache)
    assert not list(debian_cache.glob("debian/packages/*/lzip")), "an interrupted build has no result"
    built = {}
    for name in ("one", "two"):
        done = build(tmp_path / f"{name}.yaml", tmp_path / name, *cache)
        assert done.returncode == 0, done.stderr
        logs = (debian_cache / "logs" / "debian").glob("*.log")
        built[name] = {path.stem: path.stat().st_mtime_ns for path in logs}
    new = dict(built["two"].items() - built["one"].items())
    assert set(new) == {"jansson", "mlgo-has-no-such-package"}, "a failed download is retried"
    assert left_out(tmp_path / "two", "package_failed") == {"mlgo-has-no-such-package": "its source cannot be fetched"}
    splits = json.loads((tmp_path / "two" / "splits.json").read_text())
    assert {name.partition("/")[0] for name in splits["heldout"] if name.startswith("jansson")} == {"jansson"}
    done = build(tmp_path / "one.yaml", tmp_path / "none", *cache, "--heldout-project", "mlgo-has-no-such-package")
    assert done.returncode != 0 and "mlgo-has-no-such-package" in done.stderr


@pytest.mark.toolchain
def test_programs_of_a_package(tmp_path: Path, debian_cache: Path) -> None:
    commands = [
        "gcc -O2 -c first.c && ar crs libfirst.a first.o",
        "gcc -O2 -shared -fPIC first.c -o libfirst.so",
        "gcc -O2 second.c libfirst.a -o prog && ./prog",
        "cc second.c first.o -o check && ./check && rm check",
    ]
    second = "int twice(int); int main(void) { return twice(0); }\n"
    recipe = tmp_path / "linked.yaml"
    recipe.write_text(yaml.safe_dump(package(tmp_path, "linked", commands, first_c=FIRST, second_c=second)))
    done = build(recipe, tmp_path / "corpus", "--cache-dir", str(debian_cache), "--unit", "program")
    assert done.returncode == 0, done.stderr
    assert {module.name for module in load_corpus(tmp_path / "corpus")} == {"linked/prog", "linked/libfirst.so"}
    assert left_out(tmp_path / "corpus", "removed") == {"linked/check": "the linked file was moved or removed"}


CODE = "static int g(int x) { return x * 3; } int f(int x) { return g(x) + g(x + 1); }"


def compile_bitcode(path: Path, code: str, *flags: str) -> Path:
    command = ["clang-19", "-Oz", *flags, "-emit-llvm", "-c", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=code.encode(), check=True)
    return path


def test_digest_depends_on_code_but_not_on_relocation_model(tmp_path: Path) -> None:
    modules = [
        compile_bitcode(tmp_path / "static.bc", CODE, "-fno-PIC"),
        compile_bitcode(tmp_path / "shared.bc", CODE, "-fPIC"),
        compile_bitcode(tmp_path / "constant.bc", CODE.replace("3", "5")),
        compile_bitcode(tmp_path / "name.bc", CODE.replace("f(int", "h(int")),
        compile_bitcode(tmp_path / "data.bc", "int x = 1;"),
    ]
    static, shared, constant, name, data = digest_functions(modules, 19)
    assert static == shared and data == ""
    assert len({static, constant, name}) == 3


def test_error_names_the_invalid_module(tmp_path: Path) -> None:
    (tmp_path / "m.bc").write_bytes(b"BC\xc0\xde and no more")
    with pytest.raises(UserError, match=r"m\.bc"):
        digest_functions([tmp_path / "m.bc"], 19)


def test_missing_opt_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="opt-7 is missing"):
        digest_functions([tmp_path / "m.bc"], 7)
