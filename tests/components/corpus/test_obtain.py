"""`mlgo corpus obtain`, which the pipelines run: every input of an extraction, and what is refused before it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.corpus import load_corpus
from components.core.projects.extraction_options import SOURCES, Source, check_extraction
from components.platform.errors import UserError
from pipelines.local.run_locally import local_steps
from pipelines.local.step import RunLocations
from pipelines.parameters.parameter import as_option, as_parameter
from pipelines.spec import COMPILED
from tests.components.corpus.sources.test_inputs import flags_of
from tests.components.corpus.test_programs import MAKEFILE, compile_by, invoke, write
from tests.components.corpus.test_programs import SOURCES as PROGRAM_SOURCES
from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]


def obtain(output: Path, *flags: object) -> subprocess.CompletedProcess[str]:
    return run_command("components.corpus", "obtain", "--output", output, *flags, timeout=240)


def names(output: Path, *flags: object) -> list[str]:
    done = obtain(output, *flags)
    assert done.returncode == 0, done.stderr
    return sorted(module.name for module in load_corpus(output))


@pytest.mark.parametrize("kind", ["json", "params", "directory", "bazel_aquery"])
def test_each_kind_of_input_with_distributed_thinlto(kind: str, distributed: Path, tmp_path: Path) -> None:
    flags = (*flags_of(kind, distributed, tmp_path), "--thinlto-build", "distributed", "--cmd-filter", ".")
    objects = ["obj/app/main.cc.o", "obj/lib/helper.c.o", "obj/lib/leaf.c.o", "obj/lib/name.cc.o"]
    assert names(tmp_path / "corpus", *flags) == objects
    assert load_corpus(tmp_path / "corpus").modules[0].thinlto_index is not None


def test_modules_are_filtered_by_the_problems_level_unless_another_is_given(distributed: Path, tmp_path: Path) -> None:
    flags = (*flags_of("params", distributed, tmp_path), "--thinlto-build", "distributed")
    assert names(tmp_path / "speed", *flags, "--problem", "regalloc") == [
        "obj/app/main.cc.o",
        "obj/lib/helper.c.o",
        "obj/lib/name.cc.o",
    ]
    done = obtain(tmp_path / "size", *flags)
    assert done.returncode == 1 and "1 modules are too few" in done.stderr, done.stderr


def test_local_thinlto_has_its_directory_and_arguments(local: Path, tmp_path: Path) -> None:
    flags = ("--input", local, "--thinlto-build", "local", "--default-args", "-O2 -fPIC")
    assert len(names(tmp_path / "corpus", *flags)) == 4
    description = json.loads((tmp_path / "corpus" / "corpus_description.json").read_text())
    assert description["has_thinlto"] and description["global_command_override"] == ["-O2", "-fPIC"]


def test_database_is_an_input_too(distributed: Path, tmp_path: Path) -> None:
    flags = ("--compile-commands", distributed, "--obj-base-dir", distributed / "obj", "--cmd-filter", ".")
    assert names(tmp_path / "corpus", *flags, "--thinlto-build", "distributed")[0] == "app/main.cc.o"


@pytest.mark.parametrize(
    ("kind", "filtered"), [("params", "^-O[23]$"), ("bazel_aquery", "."), ("directory", "."), ("local", "")]
)
def test_pipeline_passes_them_to_its_step(
    kind: str, filtered: str, distributed: Path, local: Path, tmp_path: Path
) -> None:
    if kind == "local":
        given = {"input": str(local), "thinlto_build": "local", "default_args": "-O2 -fPIC"}
    else:
        flags = [str(flag) for flag in flags_of(kind, distributed, tmp_path)]
        pairs = dict(zip(flags[::2], flags[1::2], strict=True))
        given = {flag.removeprefix("--").replace("-", "_"): value for flag, value in pairs.items()}
        given |= {"thinlto_build": "distributed", "cmd_filter": filtered}
    (step,) = [step for step in local_steps(COMPILED, given) if step.name == "corpus"]
    locations = RunLocations(str(tmp_path), str(tmp_path / ".files"))
    command = [sys.executable if word == "python" else word for word in step.argv(locations)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(load_corpus(tmp_path / "corpus").modules) == (3 if filtered == "^-O[23]$" else 4)
    # The step is not reused once an object has changed.
    (changed, *_others) = sorted((local if kind == "local" else distributed / "obj").rglob("*.o"))
    before = step.cache_inputs
    os.utime(changed, (1, changed.stat().st_mtime + 10))
    assert next(step for step in local_steps(COMPILED, given) if step.name == "corpus").cache_inputs != before


@pytest.mark.toolchain
def test_programs_of_recorded_links_are_modules(tmp_path: Path) -> None:
    from components.corpus.compilers import compilers

    made = tmp_path / "compilers"
    invoke(compilers, "--unit", "program", "--output", str(made))
    project = write(tmp_path / "project", {**PROGRAM_SOURCES, "Makefile": MAKEFILE})
    compile_by(made, "make -s libapi.so user whole static", project, check=True)
    flags = ("--input", made, "--unit", "program", "--obj-base-dir", project)
    assert names(tmp_path / "corpus", *flags) == ["libapi.so", "static", "user", "whole"]


@pytest.mark.parametrize(
    ("source", "options", "named", "remedy"),
    [
        ("recipe", {"cmd_filter": "O2"}, "--cmd-filter O2 is not for --recipe", "--compile-commands ... and --input"),
        ("recipe", {"obj_base_dir": "d"}, "--obj-base-dir d is not for --recipe", "--input"),
        ("corpus", {"unit": "program"}, "--unit program is not for --corpus", "--recipe ... and --input"),
        ("compile_commands", {"unit": "program"}, "--unit program is not for --compile-commands", "--input"),
        ("compile_commands", {"input_type": "json"}, "--input-type json is not for --compile-commands", "--input"),
        ("compile_commands", {"thinlto_build": "local"}, "local takes no list of objects", "import.bc"),
        ("input", {"thinlto_build": "local", "input_type": "params"}, "as --input-type params names", "import.bc"),
        ("input", {"thinlto_build": "local", "cmd_filter": "O2"}, "needs arguments", "leave it out"),
        ("input", {"default_args": "-O2"}, "objects contain their arguments", "--thinlto-build local"),
        ("input", {"input_type": "params"}, "start from the directory that the linker ran in", "--obj-base-dir DIR"),
        ("input", {"input_type": "bazel_aquery"}, "start from the directory", "execution_root"),
        ("input", {"cmd_filter": "["}, "is not a regular expression", "docs.python.org"),
        ("input", {"unit": "program", "input_type": "json"}, "--input-type json is not for --unit program", "leave"),
        ("input", {"unit": "program", "thinlto_build": "distributed"}, "is not for --unit program", "leave it out"),
        ("input", {"unit": "program", "problem": "regalloc"}, "regalloc is compiled at -O2", "--unit object"),
        ("recipe", {"unit": "program", "problem": "regalloc"}, "regalloc is compiled at -O2", "--unit object"),
    ],
)
def test_options_that_the_source_does_not_have_are_refused(
    source: Source, options: dict[str, Any], named: str, remedy: str
) -> None:
    with pytest.raises(UserError) as refused:
        check_extraction(as_option, source, **{"problem": "inlining", **options})
    assert named in refused.value.problem and remedy in refused.value.remedy, str(refused.value)
    with pytest.raises(UserError, match="--param ") as refused:
        check_extraction(as_parameter, source, **{"problem": "inlining", **options})


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_its_defaults(source: Source) -> None:
    check_extraction(as_option, source, "inlining")
    check_extraction(as_option, source, "regalloc")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--existing", "c", "--cmd-filter", "O2"), "--cmd-filter O2 is not for --existing"),
        (("--input", "a", "--recipe", "demo"), "got 2"),
        (("--input", "a", "--input-type", "params"), "--obj-base-dir DIR"),
        (("--input", "nowhere", "--input-type", "directory"), "nowhere"),
    ],
)
def test_step_refuses_them_itself(flags: tuple[str, ...], named: str, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    done = obtain(tmp_path / "corpus", *(str(tmp_path / "c") if word == "c" else word for word in flags))
    assert done.returncode == 1 and named in done.stderr and "remedy: " in done.stderr, done.stderr
    assert not (tmp_path / "corpus").exists()
