"""Prints the explanation of a policy's inlining decisions in one module."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from components.core.compiler.objects.function_names import demangle, shorten
from components.core.counterfactual.explain import Explanation
from components.platform.console.tables import table_console

_DECISIONS = {1: "inline", 0: "refuse", -1: "?"}
_MIN_NAME = 20
_OTHER_COLUMNS = 66
"""Characters of a line without the two names."""


def print_explanation(explanation: Explanation, limit: int) -> None:
    """Print a table of at most `limit` decisions, the most harmful first, and a summary.

    Columns that the compiler's output gives no values for are left out.
    """
    console = table_console(160)
    is_measured, has_names = bool(explanation.measured_gains.size), bool(explanation.callers)
    order = "most harmful first" if is_measured else "not measured, least sure first"
    table = Table(title=f"Inlining decisions of the policy, {order}")
    for title in ("decision", *(("caller", "callee") if has_names else ())):
        table.add_column(title, no_wrap=True)
    for title in ("policy", "heuristic", "margin", *(("saves bytes",) if is_measured else ())):
        table.add_column(title, justify="right", no_wrap=True)
    chosen = explanation.worst_first()[:limit].tolist()
    symbols = [names[i] for i in chosen for names in (explanation.callers, explanation.callees)] if has_names else []
    width = max((console.width - _OTHER_COLUMNS) // 2, _MIN_NAME)
    names = [shorten(name, width) for name in demangle(symbols)]
    for number, i in enumerate(chosen):
        gain = explanation.gain_bytes[i]
        table.add_row(
            str(i),
            *names[2 * number : 2 * number + 2],
            _DECISIONS[int(explanation.action[i])],
            _DECISIONS[int(explanation.heuristic[i])],
            f"{abs(explanation.logits[i, 1] - explanation.logits[i, 0]):.2f}",
            *(() if not is_measured else ("",) if np.isnan(gain) else (f"{gain:,.0f}",)),
        )
    console.print(table)
    console.print(_summary(explanation), highlight=False, soft_wrap=True)


def _summary(explanation: Explanation) -> str:
    has_heuristic = explanation.heuristic >= 0
    parts = [f"{len(explanation)} decisions, {int(explanation.action.sum())} to inline"]
    if has_heuristic.any():
        differs = (explanation.action != explanation.heuristic)[has_heuristic]
        parts.append(f"{int(differs.sum())} unlike LLVM's heuristic")
    measured = explanation.measured_gains
    if len(measured):
        harmful = measured[measured < 0]
        parts.append(
            f"{len(measured)} measured: {len(harmful)} make the module larger, by {abs(harmful.sum()):,.0f} bytes"
        )
    if explanation.size_bytes:
        parts.append(f"text {explanation.size_bytes:,} bytes")
    return "; ".join(parts)
