"""`make bench`: measures what this project promises, on the artifacts of the demo.

Every module of this folder with a function `measure(context: BenchContext) -> dict[str, float]` is called; its keys go
into build/bench.json, and those that have a goal (goals.py) into the table. Ratios are taken in the same run on the
same modules, as medians of at least 3. Nothing here fails because a machine is slow: the table says what was met.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from components.console import UserError, run_step, say
from tests.bench.context import BenchContext
from tests.bench.goals import GOALS
from tests.bench.isolated import measure_alone

ROOT = Path(__file__).parents[2]
HELPERS = {"asleep", "context", "goals", "isolated", "memory", "simulation", "slots", "training", "workload"}
OWN = {"__main__", "__init__"} | HELPERS


@click.command(context_settings={"show_default": True})
@click.option("--run", "run_directory", type=click.Path(path_type=Path, file_okay=False),
              help="A finished `mlgo run`. Default: the demo's, brought up to date first.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("build/bench.json"),
              help="The figures, a key each.")
@click.option("--only", multiple=True, help="Only this measurement (the name of its module). Repeatable.")
@click.option("--repeats", type=click.IntRange(min=3), default=3, help="Timings whose median counts.")  # fmt: skip
def main(run_directory: Path | None, output: Path, only: tuple[str, ...], repeats: int) -> int:
    """Measures and prints figures beside their goals.

    \b
    Example:
      make bench
      python -m tests.bench --only trace --repeats 5
    """
    run_directory = _finished(run_directory.absolute()) if run_directory else _demo()
    names = part_names()
    unknown = set(only) - set(names)
    if unknown:
        raise UserError(f"no such measurement: {', '.join(sorted(unknown))}", f"there are {', '.join(names)}")
    figures: dict[str, float] = {}
    failed: list[str] = []
    for name in only or names:
        scratch = Path(tempfile.mkdtemp(prefix=f"mlgo-bench-{name}-"))
        started_s = time.monotonic()
        say(f"[{name}] measures")
        try:
            figures |= measure_alone(name, BenchContext(run_directory, scratch, repeats))
            say(f"[{name}] took {time.monotonic() - started_s:.1f} s")
        except Exception:  # one broken measurement must not cost the figures of the others
            traceback.print_exc()
            failed.append(name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if only and output.exists():
        figures = json.loads(output.read_text(encoding="utf-8")) | figures
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    _print(figures)
    say(f"figures: {output}")
    if failed:
        raise UserError(f"these measurements failed: {', '.join(failed)}", "see the tracebacks above")
    return 0


def part_names() -> list[str]:
    """The modules of this folder that measure."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in OWN)


def _finished(run: Path) -> Path:
    if not (run / "evaluation" / "metrics.json").is_file():
        raise UserError(f"{run} is not a finished run", "finish it with `mlgo run`, or leave --run out")
    return run


def _demo() -> Path:
    """The demo's run. `mlgo run` reuses every step whose inputs did not change, so that no figure is of older code."""
    run = ROOT / "runs" / "demo"
    recipe = ROOT / "components" / "corpus" / "recipes" / "demo.yaml"
    command = [sys.executable, "-m", "pipelines", "run", "--recipe", str(recipe), "--output", str(run)]
    if subprocess.run(command, check=False, cwd=ROOT).returncode != 0:
        raise UserError("the run that the figures are measured on failed", "see its message above")
    return run


def _print(figures: dict[str, float]) -> None:
    table = Table(title="What was measured")
    for title in ("figure", "measured", "goal", "", "elsewhere"):
        table.add_column(title, justify="right" if title in ("measured", "goal") else "left")
    for goal in GOALS:
        if goal.key in figures:
            verdict = "met" if goal.met(figures[goal.key]) else "MISSED"
            shown = _number(figures[goal.key])
            table.add_row(goal.key, shown, f"{goal.sign} {_number(goal.value)}", verdict, goal.elsewhere)
        else:
            table.add_row(goal.key, "-", f"{goal.sign} {_number(goal.value)}", "not measured", goal.elsewhere)
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


if __name__ == "__main__":
    run_step(main)
