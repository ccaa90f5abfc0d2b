"""Types of the options of `mlgo toolchain --mode sdk`, which are parameters of the pipeline that builds an SDK, too."""

from __future__ import annotations

import re
import shlex

import click


class CodeGenerators(click.ParamType):
    """ "native", "all", or LLVM's names of targets with commas between."""

    name = "targets"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> str:
        if not re.fullmatch(r"[A-Za-z0-9]+(,[A-Za-z0-9]+)*", str(value)):
            self.fail(f"{value!r} is neither native nor all nor a list such as X86,AArch64", parameter, context)
        return str(value)


class ProjectNames(click.ParamType):
    """Names with commas between as a tuple."""

    name = "names"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        if value and not re.fullmatch(r"[a-z0-9-]+(,[a-z0-9-]+)*", str(value)):
            self.fail(f"{value!r} is not a list of projects such as polly,clang-tools-extra", parameter, context)
        return tuple(str(value).split(",")) if value else ()


class CmakeDefinition(click.ParamType):
    """NAME=VALUE as a pair."""

    name = "definition"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        name, equals, text = str(value).partition("=")
        if not (equals and re.fullmatch(r"\w+", name)):
            self.fail(f"{value!r} is not NAME=VALUE", parameter, context)
        return name, text


class CmakeDefinitions(click.ParamType):
    """NAME=VALUE with blanks between, quoted as in a shell, as a tuple of pairs."""

    name = "definitions"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[tuple[str, str], ...]:
        if isinstance(value, tuple):
            return value
        try:
            words = shlex.split(str(value))
        except ValueError as error:
            self.fail(f"{value!r} has no closing quote ({error})", parameter, context)
        return tuple(CmakeDefinition().convert(word, parameter, context) for word in words)
