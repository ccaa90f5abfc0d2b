"""Options that name code: errors say which option takes what was given."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from components.core.projects.option import COMPILE_COMMANDS, CORPUS
from components.corpus.__main__ import main as corpus
from components.platform.errors import UserError
from components.trace.__main__ import main as trace
from pipelines.cli.main import cli
from pipelines.cli.pipeline import local_parameters
from pipelines.parameters.check import check_values
from pipelines.parameters.parameter import as_parameter


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: a build in build/, a corpus in c/, an empty directory, a recipe."""
    for name in ("build", "c", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "build/compile_commands.json").write_text("[]")
    (tmp_path / "c/corpus_description.json").write_text('{"modules": []}')
    (tmp_path / "r.yaml").write_text("projects: []")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "arguments", "problem", "remedy"),
    [
        (cli, ["run", "--corpus", "demo"], "--corpus demo is not a corpus", "did you mean --recipe demo?"),
        (cli, ["run", "--corpus", "build"], "--corpus build", "mean --compile-commands build/compile_commands.json?"),
        (cli, ["run", "--corpus", "r.yaml"], "--corpus r.yaml", "did you mean --recipe r.yaml?"),
        (cli, ["run", "--corpus", "gs://bucket/c"], "on this machine", "mlgo pipeline run --param corpus=gs://bucket"),
        (cli, ["run", "--compile-commands", "lua"], "is not a compilation database", "did you mean --recipe lua?"),
        (cli, ["run", "--compile-commands", "c"], "--compile-commands c", "did you mean --corpus c?"),
        (cli, ["run", "--compile-commands", "empty"], "no compile_commands.json in the directory empty", "bear"),
        (cli, ["run", "--recipe", "c"], "--recipe c is not a recipe", "did you mean --corpus c?"),
        (cli, ["run", "--recipe", "c/corpus_description.json"], "not a recipe", "did you mean --corpus c?"),
        (cli, ["run", "--recipe", "build"], "--recipe build", "mean --compile-commands build/compile_commands.json?"),
        (corpus, ["obtain", "--existing", "demo"], "--existing demo is not a corpus", "did you mean --recipe demo?"),
        (corpus, ["obtain", "--recipe", "c"], "--recipe c is not a recipe", "did you mean --existing c?"),
        (corpus, ["extract", "--compile-commands", "demo"], "demo", "mlgo corpus build --recipe demo --output DIR"),
        (corpus, ["extract", "--compile-commands", "c"], "is not", "mlgo corpus import --input c --output DIR"),
        (corpus, ["extract", "--input", "empty"], "--input empty is a directory", "--input-type directory"),
        (corpus, ["import", "--input", "build"], "--input build is not a corpus", "extract --compile-commands build/"),
        (trace, ["--corpus", "tiny"], "--corpus tiny is not a corpus", "mlgo corpus build --recipe tiny --output DIR"),
    ],
)
def test_code_given_to_another_option_is_recognized(
    working_directory: Path, command: click.Command, arguments: list[str], problem: str, remedy: str
) -> None:
    with pytest.raises(UserError) as caught:
        command.main([*arguments, "--output", "o"], standalone_mode=False)
    assert problem in caught.value.problem and remedy in caught.value.remedy, caught.value
    assert not (working_directory / "o").exists()


@pytest.mark.parametrize(
    ("parameters", "suggestion"),
    [
        ({"corpus": "demo"}, "--param recipe=demo"),
        ({"recipe": "c"}, "--param corpus=c"),
        ({"compile_commands": "tiny"}, "--param recipe=tiny"),
    ],
)
def test_parameters_of_a_pipeline_are_recognized_too(
    working_directory: Path, parameters: dict[str, str], suggestion: str
) -> None:
    values = {"recipe": "", "corpus": "", "compile_commands": "", **parameters}
    with pytest.raises(UserError, match="is not") as caught:
        check_values(values, as_parameter)
    assert suggestion in caught.value.remedy


def test_build_directory_stands_for_its_database(working_directory: Path) -> None:
    assert COMPILE_COMMANDS.convert("build", None, None) == Path("build/compile_commands.json")
    assert COMPILE_COMMANDS.convert("build/compile_commands.json", None, None) == Path("build/compile_commands.json")
    parameters = local_parameters(("compile_commands=build",))
    assert parameters == {"compile_commands": str(working_directory / "build/compile_commands.json")}
    with pytest.raises(UserError, match=r"compile_commands\.json"):  # it is read
        corpus.main(["extract", "--input", "build", "--output", "o"], standalone_mode=False)


def test_words_of_recipes_stay_recipes_and_paths_stay_paths(working_directory: Path) -> None:
    (working_directory / "demo").mkdir()
    (working_directory / "demo/corpus_description.json").write_text("{}")
    check_values({"recipe": "demo", "corpus": "", "compile_commands": "", "problem": "inlining"}, as_parameter)
    assert CORPUS.convert("demo", None, None) == Path("demo")
