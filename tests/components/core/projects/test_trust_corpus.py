"""Tests that where compiles cannot be confined, a corpus that a user names is compiled only on their word."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from components.core.formats.corpus import Corpus
from components.core.projects import option
from components.platform.errors import UserError
from components.platform.processes import sandbox
from components.trace.__main__ import main as trace
from tests.support.commands import ROOT

SOURCE = "int root(int x) { return x + 1; }\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of all steps with their names."""
    for path in sorted((ROOT / "components").glob("*/__main__.py")):
        module = importlib.import_module(f"components.{path.parent.name}.__main__")
        stack = [(path.parent.name, module.main)]
        while stack:
            name, command = stack.pop()
            yield name, command
            if isinstance(command, click.Group):
                stack += [(f"{name} {one}", sub) for one, sub in command.commands.items()]


@pytest.mark.parametrize("kind", ["none", "landlock"])
def test_named_corpus_is_refused_where_compiles_are_not_confined(
    kind: str, make_corpus: Callable[..., Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "kind", lambda: kind)
    corpus = make_corpus(tmp_path / "c", {"p/a.c": SOURCE}).directory
    runner = CliRunner()
    result = runner.invoke(trace, ["--corpus", str(corpus)])
    assert isinstance(result.exception, UserError) == (kind == "none")
    if isinstance(result.exception, UserError):
        assert "confined" in result.exception.problem and "--trust-corpus" in result.exception.remedy
    for words, variables in ((["--trust-corpus"], {}), ([], {option.TRUST_VARIABLE: "1"})):
        result = runner.invoke(trace, ["--corpus", str(corpus), *words], env=variables)
        assert result.exit_code == 2 and "Missing option --toolchain" in result.output


def test_each_command_that_compiles_a_corpus_has_the_option() -> None:
    found = set()
    for name, command in commands():
        if any(isinstance(parameter.type, option._CompiledCorpus) for parameter in command.params):
            assert any("--trust-corpus" in parameter.opts for parameter in command.params), name
            found.add(name)
    assert {"trace", "ppo", "tune", "forecast", "evaluation run", "corpus obtain", "policy explain"} <= found


def test_help_of_each_command_has_an_example() -> None:
    for name, command in commands():
        if not isinstance(command, click.Group):
            help_text = command.get_help(click.Context(command, info_name=name))
            assert f"mlgo {name.partition(' ')[0]}" in help_text, name


def test_steps_of_a_pipeline_compile_the_corpus_of_its_first_step() -> None:
    """Only that step, which takes a corpus that a user names, asks for their word."""
    text = (ROOT / "pipelines/compiled/training.yaml").read_text()
    named = [block for block in text.split("container:")[1:] if "- --corpus\n" in block]
    compiling = [block for block in named if "- pipelines." not in block]
    assert len(compiling) == 5 and all("- --trust-corpus\n" in block for block in compiling)
    assert all("--trust-corpus" not in block for block in text.split("container:") if "- --existing\n" in block)
