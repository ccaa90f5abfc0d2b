"""A parameter of a pipeline, written once: its option, type, help, and what outside of the run it names."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from components.platform.errors import UserError
from components.platform.storage.uri import NO_WORDS, Words

FormatParameter = Callable[[str, object], str]
"""Writes a parameter with its value in a message, as the user gave it: `as_option` or `as_parameter`."""


def as_option(name: str, value: object) -> str:
    """Return a parameter as an option of `mlgo run`."""
    return f"--{name.replace('_', '-')} {value}"


def as_parameter(name: str, value: object) -> str:
    """Return a parameter as an option of `mlgo pipeline`."""
    return f"--param {name}={value}"


@dataclass(frozen=True)
class Reference:
    """Something outside of the run that a parameter names. Its content decides whether a step is reused, not its name.

    Attributes:
        identify: returns texts that change whenever the content of a local file or directory does.
        kind: "location": path or URI of something that exists; "program": also its name on the PATH; "state": the state
            of retraining, which steps write and which need not exist yet.
        words: values that name nothing, whatever files are in the working directory; or a function that returns them.
        refers_to_files: what it names refers to further files, so a URI is downloaded to identify these.
        step_option: option of the steps that get it, where that has another name: "--existing".
        archives: it may also be the URL of an archive on a web server, whose checksum identifies the content.
    """

    identify: Callable[[Path], tuple[str, ...]]
    kind: Literal["location", "program", "state"] = "location"
    words: Words | Callable[[], Words] = NO_WORDS
    refers_to_files: bool = False
    step_option: str = ""
    archives: bool = False


@dataclass(frozen=True)
class Option:
    """How `mlgo run` offers a parameter, where that differs from the pipeline.

    Attributes:
        type: converts and checks what names files of this machine.
        default: instead of the pipeline's.
    """

    metavar: str | None = None
    type: click.ParamType | None = None
    default: str | None = None


@dataclass(frozen=True)
class Parameter:
    """One parameter of a pipeline.

    Attributes:
        help: what it means. {name} and {name=value} stand for other parameters, which an option and a page of KFP write
            differently.
        type: of every value but "".
        default: the pipeline's; "" if there is none, or if a step or a rule decides.
        empty: what "" means: "the preset's". None: "" is not offered.
        example: a valid value, for messages.
        option: None if only the pipeline has the parameter.
        reference: what it names, None if that is a value.
    """

    name: str
    help: str
    type: click.ParamType = click.STRING
    default: str | int = ""
    empty: str | None = None
    example: str = ""
    option: Option | None = None
    reference: Reference | None = None

    @property
    def words(self) -> Words:
        """Values that name nothing outside of the run."""
        words = self.reference.words if self.reference else NO_WORDS
        return words if isinstance(words, Words) else words()

    @property
    def literals(self) -> tuple[str, ...]:
        """The only values of the pipeline's parameter, () if there are others. KFP shows a list and refuses others."""
        if not isinstance(self.type, click.Choice):
            return ()
        return (*self.type.choices, *([""] if self.empty else []))

    @property
    def step_option(self) -> str:
        """The option of the steps that get this parameter as it is."""
        own = self.reference.step_option if self.reference else ""
        return own or f"--{self.name.replace('_', '-')}"

    @property
    def option_default(self) -> str | int | None:
        """The default of the option, None if there is none."""
        default = self.default if self.option is None or self.option.default is None else self.option.default
        return None if default == "" else default

    def convert(self, value: object, format_parameter: FormatParameter) -> Any:
        """Return a value that is not empty as its type makes it. UserError if it is invalid."""
        try:
            return self.type.convert(value, None, None)
        except (click.BadParameter, TypeError) as error:  # a default that is a list, of a pipeline written by hand
            problem = f"{format_parameter(self.name, value)}: {getattr(error, 'message', error)}"
            raise UserError(problem, f"for example {format_parameter(self.name, self.example)}") from None

    def absolute(self, value: str) -> str:
        """Return a text that names something on this machine by its absolute path; others as they are.

        Steps run in other working directories.
        """
        kind = self.reference.kind if self.reference else None
        if kind == "program":
            program = shutil.which(value)
            return os.path.abspath(program) if program else value
        if kind == "state":
            return os.path.abspath(value) if value and "://" not in value else value
        return self.words.absolute(value) if kind else value

    def describe(self) -> str:
        """Return the description for KFP, docs/reference.md and readers of the compiled pipeline."""
        described = re.sub(r"\{(\w+)(=[^}]*)?\}", lambda match: f"`{match[1]}{match[2] or ''}`", self.help)
        return f"{described} Empty: {self.empty}." if self.empty else described

    def click_option(self) -> Callable[[click.decorators.FC], click.decorators.FC]:
        """Return the decorator that gives a command this option. ValueError if only the pipeline has it."""
        if self.option is None:
            raise ValueError(f"{self.name} is no option")
        text = re.sub(r"\{(\w+)=?([^}]*)\}", lambda match: as_option(match[1], match[2]).rstrip(), self.help)
        return click.option(
            f"--{self.name.replace('_', '-')}",
            self.name,
            type=self.option.type or self.type,
            default=self.option_default,
            metavar=self.option.metavar,
            help=text if self.option_default is not None or not self.empty else f"{text}  [default: {self.empty}]",
        )


def as_text(value: object) -> str:
    """Return the value of an option as the text that the pipeline takes: 2.5, a,b, the path of a file."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(value) if isinstance(value, tuple) else str(value)
