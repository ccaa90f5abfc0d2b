"""Tables, and the console that they are printed on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from components.platform.console.escape import escape_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def table_console(width: int) -> Console:
    """Return a console for tables, `width` columns wide where there is no terminal.

    Text that is printed and cells of tables are shown as they are: nothing in them is rich's markup, and what a
    terminal or a CI system would obey is escaped. Without a terminal rich assumes 80 columns and wraps every cell.
    """
    from rich.console import Console  # takes long to import
    from rich.text import Text

    class EscapingConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_lines(text), **{**options, "markup": False, "emoji": False})

    console = EscapingConsole()
    return console if console.is_terminal else EscapingConsole(width=width)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are; those longer than the terminal are not broken at words."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """Return a table for a `table_console`. left: number of columns that begin at the left; the others are numbers."""
    from rich.table import Table

    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*row)
    return table
