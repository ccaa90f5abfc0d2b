"""The search for a plan of a whole program, and the link that takes it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.compiler.compile import read_object
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PlannedModule, write_plan
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from tests.components.toolchain.programs.test_linker import HEADER, SOURCES
from tests.support.commands import run_command

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(600)]

OTHER = '#include <stdio.h>\nint main(int argc, char **argv) { printf("%s %d\\n", argv[0], argc); return 0; }\n'


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    for name, text in {"table.h": HEADER, **SOURCES, "other.c": OTHER}.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture(scope="module")
def corpus(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    invoke = CliRunner().invoke
    assert invoke(compilers, ["--unit", "program", "--output", str(root / "oz")]).exit_code == 0
    subprocess.run([root / "oz" / "clang++", *SOURCES, "-o", "program"], cwd=sources, check=True)
    extracted = invoke(extract, ["--unit", "program", "--input", str(root / "oz"), "--output", str(root / "corpus")])
    assert extracted.exit_code == 0, extracted.output
    return root / "corpus"


@pytest.fixture(scope="module")
def plan(
    corpus: Path, training_toolchain: Path, pretrained_release: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("plan") / "plan"
    inputs = ("--corpus", corpus, "--toolchain", training_toolchain, "--release-toolchain", pretrained_release)
    done = run_command("components.tune", *inputs, "--minutes", 0.5, "--output", directory, timeout=500)
    assert done.returncode == 0, done.stderr
    assert f"-Wl,-mllvm,-mlgo-inline-plan={directory / 'inline.plan'}" in done.stdout
    return directory


def link(release: Path, directory: Path, *options: str, files: tuple[str, ...] = tuple(SOURCES)) -> tuple[bytes, int]:
    """Return the program, and the text of the object that it was linked from in bytes."""
    words = [word for option in options for word in ("-Xlinker", "-mllvm", "-Xlinker", option)]
    objects = [] if any("keep-smaller" in option for option in options) else ["-Wl,--lto-obj-path=linked.o"]
    command = [release / "bin" / "clang++", "-Oz", "-g0", "-flto", "-x", "none", *files, *words, *objects, "-o", "app"]
    done = subprocess.run([str(word) for word in command], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0 and "warning: -mlgo" not in done.stderr, done.stderr
    text = read_object(directory / "linked.o", want_functions=False)[0] if objects else 0
    return (directory / "app").read_bytes(), text


def test_plan_of_a_program_is_smaller_than_the_heuristic(plan: Path) -> None:
    figures = json.loads((plan / "tune.json").read_text())
    assert figures["plan_bytes"] < figures["heuristic_bytes"]
    assert figures["modules"] == figures["corpus_modules"] == figures["programs"] == 1
    assert figures["release_as_found"] == figures["release_identical_twice"] == 1
    assert "-Wl,-mllvm,-mlgo-inline-plan" in (plan / "model-card.md").read_text()


def test_link_makes_the_program_that_was_found(plan: Path, pretrained_release: Path, sources: Path) -> None:
    figures = json.loads((plan / "tune.json").read_text())
    heuristic, heuristic_text = link(pretrained_release, sources)
    planned, planned_text = link(pretrained_release, sources, f"-mlgo-inline-plan={plan / 'inline.plan'}")
    assert (heuristic_text, planned_text) == (figures["heuristic_bytes"], figures["plan_bytes"])
    assert len(planned) <= len(heuristic)


def test_smallest_of_heuristic_policy_and_plan_is_kept(
    plan: Path, corpus: Path, pretrained_release: Path, sources: Path, tmp_path: Path
) -> None:
    """A plan that inlines what the search did not makes the program larger, and is not kept."""
    good = f"-mlgo-inline-plan={plan / 'inline.plan'}"
    planned, _ = link(pretrained_release, sources, good)
    kept, _ = link(pretrained_release, sources, good, "-mlgo-keep-smaller", f"-mlgo-choices={tmp_path / 'choices'}")
    choice = json.loads((tmp_path / "choices").read_text())
    assert set(choice["bytes"]) == {"heuristic", "policy", "plan"}
    assert choice["bytes"][choice["variant"]] == min(choice["bytes"].values())
    assert (kept == planned) or choice["variant"] != "plan"
    calls = {
        ("main", name, 0): 0 for name in ("_ZN5Table3addERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi",)
    }
    write_plan(tmp_path / "bad.plan", [PlannedModule("ld-temp.o", ForcedDecisions.of(calls))], 19)
    bad, _ = link(pretrained_release, sources, f"-mlgo-inline-plan={tmp_path / 'bad.plan'}", "-mlgo-keep-smaller")
    heuristic, _ = link(pretrained_release, sources, "-mlgo-keep-smaller")
    assert bad == heuristic


def test_plan_of_another_program_is_not_taken(plan: Path, pretrained_release: Path, sources: Path) -> None:
    """Every program defines main."""
    option = f"-mlgo-inline-plan={plan / 'inline.plan'}"
    assert link(pretrained_release, sources, option, files=("other.c",)) == link(
        pretrained_release, sources, files=("other.c",)
    )
