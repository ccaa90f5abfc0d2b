"""Shows explained inlining decisions in the terminal."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from components.platform.console.tables import table_console
from components.policy.explain import Explanation

_DECISIONS = {1: "inline", 0: "refuse", -1: "?"}


def print_explanation(explanation: Explanation, limit: int) -> None:
    """Print a table of at most `limit` decisions, the most harmful first, and a summary.

    Columns that the compiler's output gives no values for are left out.
    """
    console = table_console(160)
    is_measured, has_names = bool(explanation.measured_gains.size), bool(explanation.callers)
    order = "most harmful first" if is_measured else "not measured, least sure first"
    table = Table(title=f"Inlining decisions of the policy, {order}")
    for title in ("decision", *(("caller", "callee") if has_names else ())):
        table.add_column(title, overflow="fold")
    for title in ("policy", "heuristic", "margin", *(("saves bytes",) if is_measured else ())):
        table.add_column(title, justify="right")
    for i in explanation.worst_first()[:limit].tolist():
        gain = explanation.gain_bytes[i]
        table.add_row(
            str(i),
            *((explanation.callers[i], explanation.callees[i]) if has_names else ()),
            _DECISIONS[int(explanation.action[i])],
            _DECISIONS[int(explanation.heuristic[i])],
            f"{abs(explanation.logits[i, 1] - explanation.logits[i, 0]):.2f}",
            *(() if not is_measured else ("",) if np.isnan(gain) else (f"{gain:,.0f}",)),
        )
    console.print(table)
    console.print(_summary(explanation), highlight=False, soft_wrap=True)


def _summary(explanation: Explanation) -> str:
    known = explanation.heuristic >= 0
    parts = [f"{len(explanation)} decisions, {int(explanation.action.sum())} to inline"]
    if known.any():
        parts.append(f"{int((explanation.action != explanation.heuristic)[known].sum())} unlike LLVM's heuristic")
    measured = explanation.measured_gains
    if len(measured):
        harmful = measured[measured < 0]
        parts.append(
            f"{len(measured)} measured: {len(harmful)} make the module larger, by {abs(harmful.sum()):,.0f} bytes"
        )
    if explanation.size_bytes:
        parts.append(f"text {explanation.size_bytes:,} bytes")
    return "; ".join(parts)
