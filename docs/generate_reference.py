"""Write docs/reference.md from the commands themselves: `make reference`, or python docs/generate_reference.py.

Needs neither TensorFlow nor kfp. A test compares the page with what this makes.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.pop("MLGO_IMAGE", None)  # with it, there are only the commands of an image

from pipelines.cli.main import COMMANDS, IMPORTED, cli  # noqa: E402  (after the path and the environment)
from pipelines.spec import COMPILED_PIPELINES  # noqa: E402

PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Commands, options and parameters

Made by `make reference` from the commands themselves. `mlgo COMMAND --help` prints the same.
"""
PARAMETERS = """## Parameters of the pipelines

`mlgo pipeline run` and `submit` take each as `--param NAME=VALUE`.
"""


def main() -> None:
    PAGE.write_text(reference())


def reference() -> str:
    """Return the page."""
    commands = [pair for pair in _commands() if not isinstance(pair[1], click.Group) or pair[1].params]
    contents = [f"- [`{path}`](#{path.replace(' ', '-')}): {_short(command)}" for path, command in commands]
    contents += ["- [Parameters of the pipelines](#parameters-of-the-pipelines)"]
    sections = [_section(path, command) for path, command in commands]
    parameters = [_parameters(name, path) for name, path in COMPILED_PIPELINES.items()]
    return "\n".join([HEAD, *contents, "", *sections, PARAMETERS, *parameters]).rstrip() + "\n"


def _commands() -> Iterator[tuple[str, click.Command]]:
    steps = {name: importlib.import_module(f"components.{name}.__main__").main for name in COMMANDS}
    others = {"run": cli.commands["run"]} | {name: command.load() for name, command in IMPORTED.items()}
    for name in ("run", *COMMANDS, *sorted(IMPORTED)):
        yield from _with_subcommands(f"mlgo {name}", steps.get(name) or others[name])


def _with_subcommands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            yield from _with_subcommands(f"{path} {name}", subcommand)


def _short(command: click.Command) -> str:
    return _escape(command.get_short_help_str(1000))


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, **command.context_settings)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    rows = [_row(parameter, context) for parameter in command.params]
    table = "| option | |\n|---|---|\n" + "".join(row for row in rows if row) + "\n" if any(rows) else ""
    return f"## `{path}`\n\n```\n{usage}\n```\n\n{_help(command)}{table}"


def _help(command: click.Command) -> str:
    """Return the text of a command's help; paragraphs that click leaves as they are become code."""
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("\b\n"):
            head, *lines = paragraph.removeprefix("\b\n").split("\n")
            example = textwrap.dedent("\n".join(lines))
            paragraphs.append(f"{_escape(head)}\n\n```\n{example}\n```" if lines else _escape(head))
        else:
            paragraphs.append(_escape(" ".join(paragraph.split())))
    return "".join(f"{paragraph}\n\n" for paragraph in paragraphs if paragraph)


def _row(parameter: click.Parameter, context: click.Context) -> str:
    record = parameter.get_help_record(context)  # None for arguments, which the usage names, and for hidden options
    if record is None:
        return ""
    names, text = record
    option = names.replace("|", "\\|")
    return f"| `{option}` | {_escape(text)} |\n"


def _parameters(pipeline: str, path: Path) -> str:
    spec = next(iter(yaml.safe_load_all(path.read_text())))
    parameters = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    rows = "".join(
        f"| `{name}` | {_default(value)} | {_escape(value['description'])} |\n" for name, value in parameters.items()
    )
    return f"### Pipeline `{pipeline}`\n\n| parameter | default | |\n|---|---|---|\n{rows}"


def _default(definition: dict[str, object]) -> str:
    value = definition.get("defaultValue", "")
    if isinstance(value, float):  # a compiled pipeline has no other numbers
        value = f"{value:g}"
    return f"`{value}`" if value != "" else ""


def _escape(text: str) -> str:
    """Return text as Markdown of one line. Code between backquotes stays as it is, but for the bars of a table."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    escaped = (part if part.startswith("`") else re.sub(r"([<>*_\\[\]])", r"\\\1", part) for part in parts)
    return "".join(escaped).replace("|", "\\|")


if __name__ == "__main__":
    main()
