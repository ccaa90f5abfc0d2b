"""The console that tables are printed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from components.platform.console.escape import escape_lines

if TYPE_CHECKING:
    from rich.console import Console


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
