"""Options of the commands that build programs under rows of flags."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from components.core.projects.flags.rows import (
    ALL_ROWS,
    ALLOWED,
    ICF_KINDS,
    OTHER_ROWS,
    ROW_NAMES,
    UNCONDITIONAL_ROWS,
    require_compilers,
)
from components.core.projects.option import RECIPE
from components.platform.console import say
from components.platform.console.number_types import JOBS
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage.options import PROGRAM

if TYPE_CHECKING:
    from components.core.projects.flags.builds import Project
    from components.core.projects.flags.request import RowsRequest
    from components.core.projects.recipe import Recipe

PROCESSORS = available_processors()


class RowNames(click.ParamType[tuple[str, ...], Any]):
    """Names of rows, separated by commas; "all" for every row. Its values are tuples of names.

    Args:
        conditional: also rows that --allow or --experimental have to allow, and rows that cannot be compared. Without
            it a verdict depends on the rows, so stock clang and the release clang have to build one each.
    """

    name = "names"

    def __init__(self, conditional: bool = False) -> None:
        self._compared = not conditional
        self._choices = (*(ROW_NAMES if conditional else UNCONDITIONAL_ROWS), ALL_ROWS)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(part for part in value.split(",") if part)
        for name in names:
            if name not in self._choices:
                other = f"the row {name} is measured by `mlgo evaluation flags` only"
                if name not in OTHER_ROWS:
                    other += ", because of what it assumes"
                problem = other if name in ROW_NAMES else f"there is no row {name!r}"
                self.fail(f"{problem}; choose among {', '.join(self._choices)}", parameter, context)
        if self._compared and names and ALL_ROWS not in names:
            try:
                require_compilers([UNCONDITIONAL_ROWS[name] for name in names], ("stock", "policy"))
            except UserError as error:
                self.fail(f"{error.problem}; {error.remedy}", parameter, context)
        return names


_OPTIONS = (
    click.option("--recipe", type=RECIPE, help="Recipe of one project or of a set, whose programs are built."),
    click.option(
        "--project", "projects", multiple=True, help="Only this project (repeatable).  [default: held-out ones]"
    ),
    click.option(
        "--build",
        "command",
        metavar="COMMAND",
        help="In place of --recipe, your build: a shell command that runs in a fresh copy of --source for every row. "
        "Its compilers are CC and CXX, and first in PATH; JOBS is --jobs.",
    ),
    click.option(
        "--source",
        type=click.Path(path_type=Path),
        help="Directory of the source tree. Objects and build directories in it are not copied.",
    ),
    click.option(
        "--program",
        "programs",
        multiple=True,
        metavar="PATH",
        help="Program of --build, relative to --source (repeatable).",
    ),
    click.option(
        "--exclude",
        "excluded",
        multiple=True,
        metavar="GLOB",
        help="Further files and directories of --source that are not copied (repeatable).",
    ),
    click.option("--stock-clang", type=PROGRAM, help="Clang of the baseline.  [default: the installed clang-N]"),
    click.option(
        "--row",
        "rows",
        type=RowNames(conditional=True),
        multiple=True,
        callback=lambda _context, _parameter, values: tuple(dict.fromkeys(itertools.chain(*values))),
        metavar="NAME",
        help=f"Only this row (repeatable, or separated by commas): {', '.join(ROW_NAMES)}.  [default: all that assume "
        "nothing that --allow names]",
    ),
    click.option(
        "--icf",
        type=click.Choice(ICF_KINDS),
        default="all",
        show_default=True,
        help="Identical code folding of the rows after icf-all. safe: functions whose addresses are taken stay apart.",
    ),
    click.option(
        "--allow",
        "allowed",
        type=click.Choice(list(ALLOWED)),
        multiple=True,
        help=f"Measure such rows, too; those after them have their flags (repeatable). They assume: "
        f"{'; '.join(f'{name}: {assumption}' for name, assumption in ALLOWED.items())}.",
    ),
    click.option(
        "--experimental",
        is_flag=True,
        help="Also the rows *-experimental: passes that LLVM has off in its own pipelines. Run the programs' tests.",
    ),
    click.option(
        "--jobs",
        type=JOBS,
        default=PROCESSORS,
        show_default=False,
        help="Parallel compiles of a build.  [default: processors]",
    ),
)


def program_options(*, recipe_alone: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options which name programs and rows to a command.

    The command gets what they ask for as `request`: a RowsRequest, or None if they name no programs.

    Args:
        recipe_alone: --recipe without --row means all rows; otherwise nothing is built.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_request(**options: Any) -> Any:
            values = {name: options.pop(name) for name in _PARAMETERS}
            needed = recipe_alone or values["recipe"] is None or values["rows"]
            return command(**options, request=_rows_request(**values) if needed else None)

        decorated: Callable[..., Any] = with_request
        for option in reversed(_OPTIONS):
            decorated = option(decorated)
        return decorated

    return decorate


def _rows_request(
    *,
    recipe: Path | None,
    projects: tuple[str, ...],
    command: str | None,
    source: Path | None,
    programs: tuple[str, ...],
    excluded: tuple[str, ...],
    stock_clang: Path | None,
    rows: tuple[str, ...],
    icf: str,
    allowed: tuple[str, ...],
    experimental: bool,
    jobs: int,
) -> RowsRequest | None:
    """Return what the options ask for; None if they name no programs.

    Raises:
        UserError: options that do not go together; a source tree that is missing or has files of a build.
    """
    from components.core.projects.flags.builds import OwnBuild
    from components.core.projects.flags.request import RowsRequest
    from components.core.projects.source_tree import SourceTree

    if recipe is None and command is None:
        if named := [name for name, value in (("--source", source), ("--program", programs)) if value]:
            raise UserError(f"{named[0]} belongs to --build", "pass the command that builds the programs: --build")
        of_programs = {
            "--project": projects,
            "--exclude": excluded,
            "--stock-clang": stock_clang,
            "--row": rows,
            "--allow": allowed,
            "--experimental": experimental,
        }
        if named := [name for name, value in of_programs.items() if value]:
            raise UserError(
                f"{named[0]} is given, but no program to build", "pass --recipe or --build, or leave it out"
            )
        return None
    if recipe is not None and command is not None:
        raise UserError("exactly one of --recipe and --build names what is built", "see --help")
    if recipe is not None:
        if source or programs or excluded:
            raise UserError("--source, --program and --exclude belong to --build", "leave them out, a recipe has them")
        to_build = _projects(recipe, projects)
    else:
        assert command is not None
        if projects:
            raise UserError("--project belongs to --recipe", "leave it out")
        if source is None or not programs:
            raise UserError(
                "--build needs --source and --program", "pass the source tree, and each program that it makes"
            )
        own = OwnBuild(SourceTree(source, excluded), command, programs)
        own.check()
        to_build = [own]
    return RowsRequest(tuple(to_build), jobs, stock_clang, rows, icf, allowed, experimental)


_PARAMETERS = tuple(inspect.signature(_rows_request).parameters)


def select_recipes(recipe: Path, projects: Sequence[str]) -> list[Recipe]:
    """Return the named projects of a recipe, or those that it holds out, or all if it holds out none."""
    from components.core.projects.recipe import load_recipes

    recipes = load_recipes(recipe)
    names = projects or recipes.split.get("heldout_projects") or [project.name for project in recipes.projects]
    return [recipes.project(name) for name in names]


def _projects(recipe: Path, names: tuple[str, ...]) -> list[Project]:
    from components.core.projects.flags.builds import make_project

    recipes = select_recipes(recipe, tuple(dict.fromkeys(names)))
    projects: list[Project] = []
    for project in recipes:
        if (programs_of := make_project(project)) is None:
            say(f"{project.name}: its recipe names no program, so it is left out")
        else:
            projects.append(programs_of)
    if not projects:
        raise UserError(
            f"no recipe of {', '.join(project.name for project in recipes)} names a program",
            "list programs as `binaries` in the recipe; libraries alone have no rows",
        )
    return projects
