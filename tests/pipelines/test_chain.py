"""The chain fits together, and every step's own command line takes what the chain passes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click
import pytest

from pipelines.chain import chain
from pipelines.options import PRESETS, RunOptions
from pipelines.step import Step

ROOT = Path(__file__).parents[2]


def source(tmp_path: Path, kind: str) -> dict[str, Path]:
    """One of the three ways to name code."""
    if kind == "recipe":
        return {"recipe": ROOT / "components" / "corpus" / "recipes" / "tiny.yaml"}
    if kind == "corpus":
        return {"corpus": tmp_path}
    (tmp_path / "compile_commands.json").write_text("[]")
    return {"compile_commands": tmp_path / "compile_commands.json"}


def steps(tmp_path: Path, preset: str = "demo", kind: str = "recipe", **more: Any) -> tuple[Step, ...]:
    return chain(RunOptions(output=tmp_path / "run", preset=preset, **source(tmp_path, kind), **more))


def test_each_step_reads_only_what_earlier_ones_made_and_names_it(tmp_path: Path) -> None:
    made: set[str] = set()
    for step in steps(tmp_path):
        assert set(step.inputs) <= made, step.name
        named = {argument.strip("{}") for argument in step.arguments if argument.startswith("{")}
        assert named == {*step.inputs, "output", *(("work",) if step.work else ())}, step.name
        assert step.output not in made
        made.add(step.output)
    assert made == {"training", "corpus", "trace", "vocab", "warmstart", "policy", "release", "evaluation"}


@pytest.mark.filterwarnings("ignore:.protected_args.")  # the name of what replaces it comes with Click 9
@pytest.mark.parametrize("kind", ["recipe", "corpus", "compile_commands"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_step_takes_its_arguments(tmp_path: Path, preset: str, kind: str) -> None:
    for step in steps(tmp_path, preset, kind):
        command: click.Command = importlib.import_module(f"{step.module}.__main__").main
        arguments = step.argv(tmp_path / "run")
        with command.make_context(step.module, arguments) as context:
            # Groups parse the subcommand's part only when they are invoked.
            while isinstance(command, click.Group) and context.protected_args:
                name, command, rest = command.resolve_command(context, [*context.protected_args, *context.args])
                assert command is not None
                context = command.make_context(name, rest, parent=context)
        assert context.params["output"] == tmp_path / "run" / step.output


def test_the_corpus_is_built_by_the_clang_of_the_llvm_that_compiles_it(tmp_path: Path) -> None:
    (corpus,) = (step for step in steps(tmp_path, llvm_major=18) if step.name == "corpus")
    assert corpus.arguments[corpus.arguments.index("--clang") + 1] == "clang-18"


def test_what_a_command_line_only_names_is_among_the_facts(tmp_path: Path) -> None:
    """The recipe of the evaluation's whole builds, and a source tree that the clangs are built from."""

    recipe = tmp_path / "r.yaml"
    tree = tmp_path / "llvm"
    tree.mkdir()
    seen = []
    for number in ("1", "11"):
        recipe.write_text(f"name: p{number}\nsource: {{deb: p}}\ncmake: {{}}\n")
        (tree / "driver.cpp").write_text(number)
        options = RunOptions(tmp_path / "run", recipe=recipe, llvm_source=str(tree))
        seen.append({step.name: step.facts for step in chain(options)})
    for name in ("toolchain-training", "corpus", "toolchain-release", "evaluation"):
        assert seen[0][name] != seen[1][name], name


def test_the_trainer_gets_the_budget_and_seed_of_the_run(tmp_path: Path) -> None:
    (ppo,) = (step for step in steps(tmp_path, train_minutes=3.5, seed=9) if step.name == "ppo")
    assert ppo.arguments[ppo.arguments.index("--minutes") + 1] == "3.5"
    assert ppo.arguments[ppo.arguments.index("--seed") + 1] == "9"
