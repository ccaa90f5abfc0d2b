"""Tests of the options that name programs and rows of flags."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from components.core.projects.flags.options import RowNames, program_options
from components.platform.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ([], None),
        (["--recipe", "ninja"], None),
        (["--recipe", "ninja", "--row", "lto,icf-all", "--row", "lto"], ("lto", "icf-all")),
        (["--recipe", "ninja", "--row", "all"], ("all",)),
    ],
)
def test_recipe_of_a_pipeline_is_built_only_under_rows(arguments: list[str], rows: tuple[str, ...] | None) -> None:
    requests: list[Any] = []

    @click.command
    @program_options(recipe_alone=False)
    def command(request: Any) -> None:
        requests.append(request)

    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (request,) = requests
    assert rows is None if request is None else request.rows == rows
    assert request is None or request.projects[0].name == "ninja"


def test_unknown_row_is_named_with_those_there_are() -> None:
    with pytest.raises(click.BadParameter, match="'icf'"):
        RowNames().convert("lto,icf", None, None)


@pytest.mark.parametrize("name", ["no-pie", "smallest-experimental", "gcc-Oz", "newest"])
def test_row_that_assumes_something_is_no_row_of_a_pipeline(name: str) -> None:
    """It would be refused when the policy is trained."""
    assert RowNames(conditional=True).convert(name, None, None) == (name,)
    with pytest.raises(click.BadParameter, match=name) as e:
        RowNames().convert(name, None, None)
    assert name not in e.value.message.split("; choose among ")[1].split(", ")


@pytest.mark.parametrize(
    ("rows", "missing"),
    [("program", "stock clang"), ("smallest,program-smallest", "stock clang"), ("outliner", "the release clang")],
)
def test_rows_on_which_a_verdict_depends_have_to_be_built_by_both_compilers(rows: str, missing: str) -> None:
    assert RowNames(conditional=True).convert(rows, None, None) == tuple(rows.split(","))
    assert RowNames().convert(f"{rows},lto", None, None) and RowNames().convert(f"{rows},all", None, None)
    with pytest.raises(click.BadParameter, match=missing):
        RowNames().convert(rows, None, None)


@pytest.mark.parametrize("option", ["--row lto", "--project ninja", "--exclude build", "--allow no-pie"])
def test_option_of_programs_is_refused_without_programs(option: str) -> None:
    @click.command
    @program_options(recipe_alone=False)
    def command(request: Any) -> None:
        raise AssertionError

    done = CliRunner().invoke(command, option.split())
    assert isinstance(done.exception, UserError)
    assert option.split()[0] in done.exception.problem
