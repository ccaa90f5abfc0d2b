"""The console that tables are printed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def table_console(width: int) -> Console:
    """Return a console for tables, `width` columns wide where there is no terminal.

    Without a terminal rich assumes 80 columns and wraps every cell.
    """
    from rich.console import Console  # takes long to import

    console = Console()
    return console if console.is_terminal else Console(width=width)
