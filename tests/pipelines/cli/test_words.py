"""Options that take a word or a path: the word wins, and a path that equals a word is written ./WORD."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import click
import pytest

from components.core.projects.recipe import recipe_words
from components.platform.errors import UserError
from components.platform.storage.options import PROGRAM, ArtifactOr
from components.platform.storage.uri import Words
from pipelines.cli.main import cli
from pipelines.cli.pipeline import local_parameters
from pipelines.local import run_locally
from pipelines.local.run_locally import local_steps
from pipelines.local.step import Step
from pipelines.parameters.tables import BY_NAME, PLACES
from pipelines.retrain.retraining import training_start
from pipelines.retrain.state import Deployed, State
from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]
WORDS = {name: BY_NAME[name].words for name in PLACES}


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which has a folder for each word that an option takes, and files for recipes."""
    for words in WORDS.values():
        for word in words.words:
            if word in recipe_words():
                (tmp_path / word).write_text("no recipe: [")
            else:
                (tmp_path / word).mkdir(exist_ok=True)
                (tmp_path / word / "x").touch()
    for name in ("local", "git:llvmorg-19.1.7", "sdk", "native", "training", "none"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def value(step: Step, flag: str) -> str:
    return step.arguments[step.arguments.index(flag) + 1]


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Step]:
    """Return the steps that `mlgo run` would run."""
    steps: dict[str, Step] = {}

    def plan(pipeline: Path, parameters: dict[str, str], _output: Path, _runner: Any, **more: Any) -> set[str]:
        steps.update({step.name: step for step in local_steps(pipeline, parameters, **more)})
        raise KeyboardInterrupt

    monkeypatch.setattr(run_locally, "run_locally", plan)
    with pytest.raises((KeyboardInterrupt, click.Abort)):
        cli.main(["run", *arguments, "--output", "o"], standalone_mode=False)
    return steps


def test_defaults_are_no_paths(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = planned(monkeypatch, "--recipe", "lua")
    assert value(steps["toolchain-training"], "--llvm-source") == "deb"
    assert value(steps["warmstart"], "--start-from") == "heuristic"
    assert value(steps["corpus"], "--recipe") == str(ROOT / "components/core/projects/recipes/lua.yaml")


def test_words_win_over_paths_in_a_run(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("--start-from", "pretrained", "--llvm-source", "git:llvmorg-19.1.7")
    steps = planned(monkeypatch, "--recipe", "tiny", *more)
    assert value(steps["warmstart"], "--start-from") == "pretrained"
    assert value(steps["toolchain-training"], "--llvm-source") == "git:llvmorg-19.1.7"


def test_a_path_with_a_slash_is_no_word(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = planned(monkeypatch, "--recipe", "tiny", "--llvm-source", "./deb")
    assert value(steps["toolchain-training"], "--llvm-source") == str(crowded / "deb")


@pytest.mark.parametrize(("name", "word"), [(name, word) for name in PLACES for word in WORDS[name].words[:3]])
def test_parameters_of_a_pipeline_are_words_first(crowded: Path, name: str, word: str) -> None:
    assert local_parameters((f"{name}={word}",)) == {name: word}
    assert local_parameters((f"{name}=./{word}",)) == {name: str(crowded / word)}


def test_missing_place_is_named_as_the_user_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.spec import COMPILED

    with pytest.raises(UserError, match=re.escape("--param corpus=/none does not exist")):
        local_steps(COMPILED, {"corpus": "/none"})
    with pytest.raises(UserError, match=re.escape("--param llvm_source=dep does not exist")) as caught:
        local_steps(COMPILED, {"corpus": str(tmp_path), "llvm_source": "dep"})
    assert "deb, git:" in caught.value.remedy


def test_a_converted_path_never_equals_a_word(crowded: Path) -> None:
    kind = ArtifactOr("pretrained")
    assert kind.convert("pretrained", None, None) == "pretrained"
    assert kind.convert("./pretrained", None, None) == crowded / "pretrained"
    assert kind.convert((crowded / "pretrained").as_uri(), None, None) == crowded / "pretrained"
    words = Words(("a",), ("git:",))
    assert "a" in words and "git:b" in words and "b" not in words and "" not in words


def test_a_program_is_looked_up_on_the_path_unless_it_has_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "true"
    own.write_text("#!/bin/sh\n")
    own.chmod(own.stat().st_mode | stat.S_IXUSR)
    assert PROGRAM.convert("true", None, None) != own
    assert PROGRAM.convert("./true", None, None) == own
    with pytest.raises(UserError, match="is not a program"):
        PROGRAM.convert("./false", None, None)


def test_a_deployed_policy_is_never_a_word(crowded: Path) -> None:
    deployed = Deployed("pretrained", "d", "inlining", "19.1.7", (), {}, 1.0, None, 0.0)
    assert training_start(State(deployed=deployed), {}) == str(crowded / "pretrained")


def test_help_says_that_words_win() -> None:
    shown = run_command("pipelines", "run", "--help")
    assert "./WORD" in shown.stdout
