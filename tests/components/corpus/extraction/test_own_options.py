"""What this project's compilers build can be collected again: their options are not part of a module's arguments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core import problems
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import load_corpus
from components.corpus.extraction.own_options import strip_own_options
from tests.support.commands import run_command

EMBED = ["-Xclang", "-fembed-bitcode=all"]
OWN = [
    *(["-mllvm", option] for name in problems.names() for option in problems.get(name).llvm.release_options),
    *(["-mllvm", option] for name in problems.names() for option in problems.get(name).llvm.development_options),
    ["-mllvm", "-enable-ml-inliner", "-mllvm", "release"],
    ["-mllvm", "--regalloc-enable-advisor=release"],
    ["-mllvm", "-mlgo-inline-plan=/builds/inline.plan"],
    ["-mllvm", "-mlgo-inline-plan", "-mllvm", "inline.plan"],
    ["-mllvm", "-training-log=/tmp/log"],
    ["-fpass-plugin=/opt/release/lib/mlgo-inliner.so"],
    ["-load", "mlgo-inliner.so"],
]
FOREIGN = [
    ["-mllvm", "-inline-threshold=3"],
    ["-mllvm", "-inline-threshold", "-mllvm", "3"],
    ["-mllvm", "-load"],
    ["-fpass-plugin=/opt/other.so"],
    ["-load", "/opt/other.so"],
    ["-main-file-name", "mlgo-inliner.so"],
    ["-O2"],
    ["-mllvm"],
]


@pytest.mark.parametrize("own", OWN, ids=" ".join)
def test_own_options_are_removed_wherever_they_stand(own: list[str]) -> None:
    for foreign in FOREIGN[:-1]:
        assert strip_own_options(["-cc1", *own, *foreign]) == ["-cc1", *foreign]
        assert strip_own_options(["-cc1", *foreign, *own, "-Oz", *own]) == ["-cc1", *foreign, "-Oz"]


@pytest.mark.parametrize("foreign", FOREIGN, ids=" ".join)
def test_other_options_are_kept(foreign: list[str]) -> None:
    assert strip_own_options(["-cc1", "-Oz", *foreign]) == ["-cc1", "-Oz", *foreign]


def test_code_of_a_release_clang_is_traced_as_that_of_an_unmodified_one(
    training_toolchain: Path, pretrained_release: Path, tmp_path: Path
) -> None:
    sources = {
        "a.c": "static int f(int x) { return x * 3; }\nint a(int x) { return f(x) + f(x + 1); }\n",
        "b.c": "int a(int);\nstatic int g(int x) { return a(x) - 2; }\nint b(int x) { return g(x) * g(x + 2); }\n",
    }
    flags_of = {pretrained_release / "bin" / "clang": ["-mllvm", "-enable-ml-inliner=release"], Path("clang-19"): []}
    decisions = []
    for clang, flags in flags_of.items():
        build = tmp_path / f"build{len(decisions)}"
        build.mkdir()
        entries = []
        for source, code in sources.items():
            (build / source).write_text(code)
            command = [str(clang), "-Oz", *flags, *EMBED, "-c", source, "-o", f"{source}.o"]
            subprocess.run(command, cwd=build, check=True)
            entries.append({"directory": str(build), "file": source, "arguments": command})
        (build / "compile_commands.json").write_text(json.dumps(entries))
        corpus = build / "corpus"
        step("corpus", "extract", "--compile-commands", build / "compile_commands.json", "--output", corpus)
        step("trace", "--corpus", corpus, "--toolchain", training_toolchain, "--part", "all", "--output", build / "t")
        step("corpus", "import", "--input", corpus, "--output", build / "imported")
        for module in (*load_corpus(corpus), *load_corpus(build / "imported")):
            assert not any("enable-ml-inliner" in argument for argument in module.arguments())
        decisions.append(json.loads((build / "t" / "trace.json").read_text())["decisions"])
    assert decisions[0] == decisions[1] > 0


def test_imported_corpus_of_a_release_clang_can_be_replayed(tmp_path: Path) -> None:
    """mlgo-utils' extract_ir keeps the options."""
    source = tmp_path / "a.c"
    source.write_text("int a(int x) { return x; }\n")
    corpus = tmp_path / "theirs"
    corpus.mkdir()
    subprocess.run(["clang-19", "-Oz", "-emit-llvm", "-c", source, "-o", corpus / "a.o.bc"], check=True)
    recorded = ["-cc1", "-Oz", "-mllvm", "-enable-ml-inliner=release", "-fpass-plugin=/x/mlgo-inliner.so"]
    (corpus / "a.o.cmd").write_text("".join(f"{argument}\0" for argument in recorded))
    (corpus / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": ["a.o"]}))
    step("corpus", "import", "--input", corpus, "--output", tmp_path / "ours", "--heldout-fraction", "0")
    (module,) = load_corpus(tmp_path / "ours")
    assert module.arguments() == ("-cc1", "-Oz")
    assert replay_arguments(module.arguments(), module.bitcode, None)


def step(*arguments: object) -> None:
    name, *rest = arguments
    done = run_command(f"components.{name}", *rest)
    assert done.returncode == 0, done.stderr
