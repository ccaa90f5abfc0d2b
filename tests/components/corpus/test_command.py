"""mlgo corpus, run as a command: its output, messages and errors, and the files it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import load_corpus
from components.platform.storage import read_manifest, verify
from tests.support.commands import run_command

NAMES = ["obj/src/one.c.o", "obj/src/two.cc.o", "obj/lib/three.c.o"]


def corpus(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("components.corpus", *arguments, cwd=Path(__file__).parents[3])


def assert_refused(run: subprocess.CompletedProcess[str], *words: str) -> None:
    assert run.returncode == 1, run.stderr
    assert run.stderr.startswith("error: ") and "remedy: " in run.stderr and "Traceback" not in run.stderr
    for word in words:
        assert word in run.stderr


def test_extract_writes_a_complete_corpus(build: Path, tmp_path: Path) -> None:
    run = corpus("extract", "--compile-commands", build / "compile_commands.json", "--output", tmp_path / "c")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].startswith("3 extracted") and run.stdout.splitlines()[0].endswith(", 1 not built")
    assert "unbuilt.c.o" not in run.stdout, "who builds some of many targets expects no error"
    loaded = load_corpus(tmp_path / "c")
    assert [module.name for module in loaded] == NAMES
    assert len(loaded.split("train")) == len(loaded.split("heldout")) == len(loaded.split("validation")) == 1
    verify(tmp_path / "c")
    report = json.loads((tmp_path / "c/report.json").read_text())
    assert report["counts"] == {
        "extracted": 3,
        "no_bitcode": 1,
        "assembly": 1,
        "failed": 2,
        "missing": 1,
        "not_a_compile": 1,
    }
    assert len(report["left_out"]) == 6 and all(item["detail"] for item in report["left_out"])
    ((project, counts),) = report["projects"].items()
    assert project not in ("build", "src") and sum(counts.values()) == sum(report["counts"].values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"], "only the artifact remains"


def test_second_extract_replaces_the_corpus_and_uses_its_options(build: Path, tmp_path: Path) -> None:
    options = ["--compile-commands", build / "compile_commands.json", "--output", tmp_path / "c"]
    assert corpus("extract", *options).returncode == 0
    run = corpus("extract", *options, "--cmd-filter", "^-Oz$", "--obj-base-dir", build.parent, "--num-workers", 1)
    assert run.returncode == 0, run.stderr
    assert [module.name for module in load_corpus(tmp_path / "c")] == [f"build/{name}" for name in NAMES[:2]]


def test_split_command_holds_out_a_project(build: Path, tmp_path: Path) -> None:
    output = tmp_path / "c"
    options = ["--compile-commands", build / "compile_commands.json", "--obj-base-dir", build / "obj"]
    assert corpus("extract", *options, "--output", output).returncode == 0
    run = corpus("split", "--corpus", output, "--heldout-project", "lib", "--heldout-fraction", 0, "--seed", 3)
    assert run.returncode == 0, run.stderr
    splits = load_corpus(output).splits()
    assert splits.heldout == ("lib/three.c.o",) and splits.heldout_projects == ("lib",) and splits.seed == 3
    verify(output)
    assert_refused(corpus("split", "--corpus", output, "--heldout-project", "nothing"), "nothing", "src")
    assert load_corpus(output).splits() == splits and read_manifest(output)
    description = output / "corpus_description.json"
    description.write_text(description.read_text().replace("lib/three", "lib/thref"))
    assert_refused(corpus("split", "--corpus", output), "is damaged", "corpus_description.json")


def test_make_and_combine(build: Path, tmp_path: Path) -> None:
    extracted, root = tmp_path / "e", tmp_path / "root"
    options = ["--compile-commands", build / "compile_commands.json"]
    assert corpus("extract", *options, "--output", extracted).returncode == 0
    run = corpus("make", "--input", extracted, "--default-args", "-cc1 -Oz", "--output", tmp_path / "m")
    assert run.returncode == 0, run.stderr
    assert {m.arguments() for m in load_corpus(tmp_path / "m")} == {("-cc1", "-Oz")}
    for name in ("a", "b"):
        assert corpus("extract", *options, "--output", root / name).returncode == 0
    run = corpus("combine", "--root-dir", root)
    assert run.returncode == 0, run.stderr
    combined = load_corpus(root)
    assert len(combined) == 6 and {module.project for module in combined} == {"a", "b"}
    parts = {name: which for which in ("train", "validation", "heldout") for name in combined.splits().part(which)}
    assert all(parts[f"a/{name}"] == parts[f"b/{name}"] for name in NAMES), "equal contents stay together"
    verify(root)


def test_corpora_at_relative_paths_are_changed_in_place(build: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    options = ["--compile-commands", build / "compile_commands.json"]
    assert corpus("extract", *options, "--output", root / "a").returncode == 0
    (root / "notes.txt").write_text("mine")
    relative = os.path.relpath(root, Path(__file__).parents[3])
    for command in (["combine", "--root-dir", relative], ["split", "--corpus", relative, "--seed", "5"]):
        run = corpus(*command)
        assert run.returncode == 0, run.stderr
        verify(root)
    assert load_corpus(root).splits().seed == 5 and "notes.txt" not in {e.name for e in read_manifest(root).files}


def test_extract_without_modules_fails_and_writes_nothing(build: Path, tmp_path: Path) -> None:
    output = tmp_path / "c"
    options = ["--compile-commands", build / "compile_commands.json", "--output", output]
    assert_refused(
        corpus("extract", *options, "--cmd-filter", "^-O3$"), "yields no module", "filtered out", "unbuilt.c.o"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["extract", "--compile-commands", "{t}/none.json", "--output", "{t}/c"], ["none.json", "CMAKE_EXPORT"]),
        (["build", "--recipe", "{t}/none.yaml", "--output", "{t}/c"], ["no recipe at", "none.yaml"]),
        (["build", "--recipe", "{t}/r.yaml", "--output", "{t}/c", "--clang", "no-clang"], ["no-clang", "apt-get"]),
        (["build", "--recipe", "{t}/split.yaml", "--output", "{t}/c"], ["split: Object contains unknown field `held`"]),
        (["build", "--recipe", "{t}/r.yaml", "--output", "{t}/c", "--cache-dir", "{t}/k"], ["directory", "gone"]),
        (["split", "--corpus", "{t}"], ["is not a corpus"]),
        (["combine", "--root-dir", "{t}"], ["no subdirectory"]),
        (["make", "--input", "{t}/gone", "--output", "{t}/c"], ["there is no directory"]),
    ],
)
def test_bad_input_fails_with_one_message(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    project = "name: p\nsource: {path: gone}\ncmake: {}\n"
    (tmp_path / "r.yaml").write_text(project)
    (tmp_path / "split.yaml").write_text("projects: [r.yaml]\nsplit: {held: 1}\n")
    assert_refused(corpus(*(argument.format(t=tmp_path) for argument in arguments)), *words)
    assert not (tmp_path / "c").exists() and not list(tmp_path.glob(".c.*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["has no input", "--compile-commands FILE"]),
        (["--input-type", "params"], ["has no input", "--input PATH"]),
        (["--compile-commands", "{b}/compile_commands.json", "--input", "{b}"], ["--input", "name two inputs"]),
        (["--compile-commands", "{b}/compile_commands.json", "--input-type", "params"], ["params", "two inputs"]),
        (["--input", "{b}/compile_commands.json", "--thinlto-build", "local"], ["no list of objects", "obj-base-dir"]),
        (["--compile-commands", "{b}/x", "--thinlto-build", "local"], ["no list of objects"]),
        (["--input", "{b}/x", "--input-type", "json", "--thinlto-build", "local"], ["no list of objects"]),
        (["--thinlto-build", "local", "--obj-base-dir", "{t}/gone"], ["there is no directory {t}/gone"]),
        (["--thinlto-build", "local", "--obj-base-dir", "{b}"], ["holds no *.3.import.bc", "--save-temps=import"]),
        (["--thinlto-build", "local", "--cmd-filter", "x"], ["saves none", "omit --cmd-filter"]),
        (["--input", "{b}", "--input-type", "directory", "--default-args", "-O2"], ["--thinlto-build local"]),
        (["--input", "{t}", "--input-type", "directory"], ["{t} holds no *.o file", "build directory"]),
        (["--input", "{t}/gone", "--input-type", "directory"], ["there is no directory"]),
        (["--input", "{b}/obj/src", "--input-type", "directory", "--obj-base-dir", "{b}/obj/lib"], ["lies outside"]),
        (
            ["--input", "{b}/obj", "--input-type", "directory", "--thinlto-build", "distributed"],
            ["yields no module", "without a ThinLTO index", "-lto-embed-bitcode=post-merge-pre-opt"],
        ),
        (["--input", "{t}/params", "--input-type", "params"], ["2 not built", "one.o", "--obj-base-dir"]),
        (["--input", "{t}/params", "--input-type", "json"], ["not valid JSON"]),
        (["--input", "{t}/params", "--input-type", "bazel_aquery"], ["not valid JSON", "bazel aquery"]),
    ],
)
def test_bad_extract_input_fails_with_one_message(
    build: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "params").write_text("-o\nprogram\none.o\ntwo.o\n")
    before = sorted(tmp_path.iterdir())
    filled = [argument.format(t=tmp_path, b=build) for argument in arguments]
    run = corpus("extract", *filled, "--output", tmp_path / "c")
    assert_refused(run, *(word.format(t=tmp_path) for word in words))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("count", "problem", "remedy"),
    [
        (2, "2 modules are too few to train on", "train on at least 3 modules"),
        (3, "none of the 3 modules is left to select the best policy with: validation is empty", "add code"),
    ],
)
def test_corpus_too_small_to_be_split_is_refused_before_anything_is_trained(
    make_corpus, tmp_path: Path, count: int, problem: str, remedy: str
) -> None:
    """Three modules of the same content cannot be split either."""
    code = "static int f(int x) { return x; } int g(void) { return f(1); }"
    made = make_corpus(tmp_path / "corpus", {f"{number}.c": code for number in range(count)})
    for module in made.modules[1:]:
        shutil.copyfile(made.modules[0].bitcode, module.bitcode)
    done = corpus("obtain", "--existing", made.directory, "--output", tmp_path / "out")
    assert done.returncode == 1 and problem in done.stderr and f"remedy: {remedy}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_exactly_one_source_is_needed(tmp_path: Path) -> None:
    done = corpus("obtain", "--output", tmp_path / "out")
    assert done.returncode == 1 and "got none" in done.stderr
