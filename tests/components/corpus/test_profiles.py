"""Profiles are copied with the modules that were compiled with them; clang replays real ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.replay.command_line import replay_arguments, require_replayable
from components.core.formats.corpus import Module, load_corpus
from components.corpus.__main__ import main
from components.platform.errors import UserError
from components.platform.storage import verify

SOURCE = """
int other(int);
int hot(int a) { int s = 0;
  for (int i = 0; i < a; ++i)
    s += other(i);
  return s; }
"""
PROFILE = "hot:100000:5000\n 0: 5000\n 1: 90000\n 2: 90000\n"
HOT = ".text.hot."


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Return a finished build with a sample profile in its directory: two modules use it, one does not."""
    directory = tmp_path / "build"
    directory.mkdir()
    (directory / "app.prof").write_text(PROFILE)
    entries = []
    for name, flags in (("hot", ["app.prof"]), ("lib/hot", [str(directory / "app.prof")]), ("cold", [])):
        (directory / f"{name}.c").parent.mkdir(exist_ok=True)
        (directory / f"{name}.c").write_text(SOURCE)
        profile = [f"-fprofile-sample-use={flag}" for flag in flags]
        command = ["clang-19", "-O2", "-gmlt", *profile, "-Xclang", "-fembed-bitcode=all", "-c", f"{name}.c"]
        subprocess.run([*command, "-o", f"{name}.o"], cwd=directory, check=True)
        entries.append({"directory": str(directory), "file": f"{name}.c", "arguments": [*command, "-o", f"{name}.o"]})
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    return directory


def run(*arguments: str | Path) -> None:
    main(list(map(str, arguments)), standalone_mode=False)


def extract(build: Path, output: Path, *more: str) -> Path:
    run("extract", "--compile-commands", build / "compile_commands.json", "--output", output, *more)
    return output


def name_profile(corpus: Path, path: str) -> None:
    """Let a module name another profile than its own."""
    cmd = corpus / "lib/hot.o.cmd"
    cmd.write_text(re.sub(r"(?<=-fprofile-sample-use=)[^\0]*", path, cmd.read_text()))


def is_hot(module: Module, tmp_path: Path) -> bool:
    """Return whether clang puts the replayed module's function into the section for hot functions."""
    output = tmp_path / "replayed.o"
    arguments = replay_arguments(module.arguments(), module.bitcode, output, corpus=module.directory)
    subprocess.run(["clang-19", *arguments], check=True, cwd=tmp_path)
    return HOT in Elf(output.read_bytes()).section_sizes(allocated_only=True)


def test_profiles_are_used_after_the_build_is_removed(build: Path, tmp_path: Path) -> None:
    corpus = extract(build, tmp_path / "corpus")
    verify(corpus)
    assert len(list((corpus / "profiles").iterdir())) == 1
    shutil.rmtree(build)
    moved = corpus.rename(tmp_path / "moved")
    modules = load_corpus(moved).modules
    require_replayable(modules)
    assert {module.name: is_hot(module, tmp_path) for module in modules} == {
        "hot.o": True,
        "lib/hot.o": True,
        "cold.o": False,
    }
    assert [len(module.profiles()) for module in modules] == [1, 1, 0]


def test_instrumentation_profile_is_used_after_the_build_is_removed(tmp_path: Path) -> None:
    """A profile of -fprofile-use, which clang reads again when it compiles the module's bitcode."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "hot.c").write_text(SOURCE)
    instrumented = subprocess.run(
        ["clang-19", "-O2", "-fprofile-generate", "-S", "-emit-llvm", "hot.c", "-o", "-"],
        cwd=build,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    record = re.search(r"@__profd_hot = .*? \{ i64 -?\d+, i64 (-?\d+),", instrumented)
    assert record, "clang records a hash of the function's control flow, by which it finds its counters"
    (build / "app.proftext").write_text(f":ir\nhot\n{int(record[1]) % 2**64}\n2\n90000\n5000\n")
    merge = ["/usr/lib/llvm-19/bin/llvm-profdata", "merge", "app.proftext", "-o", "app.profdata"]
    subprocess.run(merge, cwd=build, check=True)
    command = ["clang-19", "-O2", "-fprofile-use=app.profdata", "-Xclang", "-fembed-bitcode=all", "-c", "hot.c"]
    command += ["-o", "hot.o"]
    subprocess.run(command, cwd=build, check=True)
    entry = {"directory": str(build), "file": "hot.c", "arguments": command}
    (build / "compile_commands.json").write_text(json.dumps([entry]))
    corpus = extract(build, tmp_path / "corpus")
    shutil.rmtree(build)
    (module,) = load_corpus(corpus.rename(tmp_path / "moved")).modules
    require_replayable([module])
    assert any(argument.startswith("-fprofile-instrument-use-path=") for argument in module.arguments())
    assert len(module.profiles()) == 1 and is_hot(module, tmp_path)
    module.cmd.write_text("\0".join(a for a in module.arguments() if "profile-instrument-use" not in a))
    assert not is_hot(module, tmp_path), "the bitcode alone does not have the profile"


def test_import_and_combine_keep_profiles(build: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    corpus = extract(build, tmp_path / "corpus")
    run("import", "--input", corpus, "--output", tmp_path / "all/one")
    shutil.rmtree(corpus)
    run("combine", "--root-dir", tmp_path / "all")
    modules = {module.name: module for module in load_corpus(tmp_path / "all").modules}
    require_replayable(modules.values())
    assert is_hot(modules["one/lib/hot.o"], tmp_path) and not is_hot(modules["one/cold.o"], tmp_path)


@pytest.mark.parametrize("named", ["/etc/passwd", "../../secret", "../profiles/link"])
def test_import_refuses_profiles_outside_of_the_corpus(build: Path, tmp_path: Path, named: str) -> None:
    corpus = extract(build, tmp_path / "corpus")
    (tmp_path / "secret").write_text("secret")
    (corpus / "profiles/link").symlink_to(tmp_path / "secret")
    name_profile(corpus, named)
    with pytest.raises(UserError, match=r"lib/hot\.o"):
        run("import", "--input", corpus, "--output", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    profile = build / "app.prof"
    run("import", "--input", corpus, "--output", tmp_path / "copy", "--cmd-replace", "-fprofile-sample-use", profile)
    assert is_hot(load_corpus(tmp_path / "copy").modules[1], tmp_path)


def test_import_refuses_links_out_of_the_corpus(build: Path, tmp_path: Path) -> None:
    corpus = extract(build, tmp_path / "corpus")
    outside = (corpus / "cold.o.cmd").rename(tmp_path / "outside.cmd")
    (corpus / "cold.o.cmd").symlink_to(outside)
    with pytest.raises(UserError, match=r"cold\.o\.cmd"):
        run("import", "--input", corpus, "--output", tmp_path / "copy")


def test_missing_profile_is_reported_and_can_be_removed(build: Path, tmp_path: Path) -> None:
    (build / "app.prof").unlink()
    with pytest.raises(UserError, match=r"app\.prof") as raised:
        extract(build, tmp_path / "corpus")
    assert "--cmd-remove=-fprofile-sample-use" in raised.value.remedy and not (tmp_path / "corpus").exists()
    corpus = extract(build, tmp_path / "corpus", "--cmd-remove=-fprofile-sample-use")
    assert not any(is_hot(module, tmp_path) for module in load_corpus(corpus).modules)


def test_profile_can_be_added_to_all_modules(build: Path, tmp_path: Path) -> None:
    corpus = extract(build, tmp_path / "corpus")
    profile = shutil.copy(build / "app.prof", tmp_path / "new.prof")
    run("import", "--input", corpus, "--output", tmp_path / "other", f"--cmd-add=-fprofile-sample-use={profile}")
    Path(profile).unlink()
    assert all("profiles/" in " ".join(module.arguments()) for module in load_corpus(tmp_path / "other").modules)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../outside.prof", "../profiles/link.profile", "../profiles/none"])
def test_replay_refuses_profiles_outside_of_the_corpus(build: Path, tmp_path: Path, path: str) -> None:
    corpus = extract(build, tmp_path / "corpus")
    (tmp_path / "outside.prof").write_text(PROFILE)
    (corpus / "profiles/link.profile").symlink_to(tmp_path / "outside.prof")
    name_profile(corpus, path)
    with pytest.raises(UserError, match=r"-fprofile-sample-use=: lib/hot\.o"):
        require_replayable(load_corpus(corpus).modules)
