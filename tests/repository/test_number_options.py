"""Tests that no option of any command accepts a number that is not finite or too large for the libraries."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click
import pytest

from components.platform.console.number_types import JOBS, FiniteFloat, FiniteFloatRange, environment_number
from components.platform.errors import UserError
from pipelines.spec import parameter_values

COMMANDS = (
    "corpus",
    "evaluation",
    "platform.launcher",
    "policy",
    "ppo",
    "toolchain",
    "trace",
    "tune",
    "vocab",
    "warmstart",
)
NOT_FINITE = ("nan", "inf", "-inf", "Infinity", "NaN", "1e999", "-1e999")


def walk_commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for inner, subcommand in command.commands.items():
            yield from walk_commands(subcommand, f"{name} {inner}")


def all_commands() -> dict[str, click.Command]:
    commands = {name: importlib.import_module(f"components.{name}.__main__").main for name in COMMANDS}
    commands["mlgo"] = importlib.import_module("pipelines.cli.main").cli
    return {name: command for top, group in commands.items() for name, command in walk_commands(group, top)}


NUMBERS = {
    f"{name} {parameter.opts[0]}": (command, parameter)
    for name, command in all_commands().items()
    for parameter in command.params
    if isinstance(parameter.type, click.types.FloatParamType | click.types.IntParamType | FiniteFloat)
}


def test_numeric_options_are_found() -> None:
    assert len(NUMBERS) > 40
    assert {"ppo --minutes", "trace --timeout-s", "mlgo run --train-minutes"} <= set(NUMBERS)


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("text", NOT_FINITE)
def test_options_refuse_numbers_that_are_not_finite(option: str, text: str) -> None:
    command, parameter = NUMBERS[option]
    with pytest.raises(click.BadParameter):
        parameter.type_cast_value(click.Context(command), (text,) if parameter.multiple else text)


@pytest.mark.parametrize(
    ("option", "number"),
    [
        (option, number)
        for option, (_command, parameter) in NUMBERS.items()
        for number in ("99999999999", "1e300", "9" * 5000)
        # Percentages without an upper limit are only compared with bounded numbers.
        if not isinstance(parameter.type, FiniteFloat) or number == "9" * 5000
    ],
)
def test_options_refuse_absurdly_large_numbers(option: str, number: str) -> None:
    """Threads, seconds and seeds have an upper limit, so that a mistake is reported at once."""
    command, parameter = NUMBERS[option]
    with pytest.raises(click.BadParameter):
        parameter.type_cast_value(click.Context(command), number)


@pytest.mark.parametrize("text", NOT_FINITE)
def test_pipeline_parameters_refuse_numbers_that_are_not_finite(text: str) -> None:
    definitions = {"rate": {"parameterType": "NUMBER_DOUBLE"}}
    spec = {"root": {"inputDefinitions": {"parameters": definitions}}}
    with pytest.raises(UserError, match="must be a finite number"):
        parameter_values(spec, {"rate": text})


@pytest.mark.parametrize("text", [*NOT_FINITE, "x", "0", "-1", "1e9"])
def test_environment_variables_refuse_numbers_out_of_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MLGO_POLL_S", text)
    with pytest.raises(UserError, match="MLGO_POLL_S"):
        environment_number("MLGO_POLL_S", 10)


def test_numbers_within_the_limits_are_accepted() -> None:
    assert FiniteFloatRange(0, 1).convert("0.5", None, None) == 0.5
    assert JOBS("64") == 64
    assert environment_number("MLGO_NOT_SET_ANYWHERE", 10) == 10


@pytest.mark.parametrize(
    ("option", "bound", "stated"),
    [
        ("corpus import --validation-fraction", 1.0, "0<=x<1"),
        ("corpus split --validation-fraction", 1.0, "0<=x<1"),
        ("mlgo run --train-minutes", 0.0, "x>0"),
        ("mlgo run --tune-minutes", 0.0, "x>0"),
    ],
)
def test_help_states_the_range_that_is_checked(option: str, bound: float, stated: str) -> None:
    _command, parameter = NUMBERS[option]
    assert isinstance(parameter.type, FiniteFloatRange)
    described = parameter.type._describe_range()
    assert stated == described or (stated == "x>0" and described.startswith("0<x"))
    with pytest.raises(click.BadParameter):
        parameter.type.convert(bound, parameter, None)
