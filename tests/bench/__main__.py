"""`make bench`: run the benchmarks on the artifacts of the demo.

Calls `measure(context: BenchContext) -> dict[str, float]` of every module in this folder that has it. The figures are
written to build/bench.json, and those with a goal (goals.py) are printed as a table. Both sides of a ratio are measured
in the same run on the same modules, as medians of at least 3. A slow machine does not make this fail: the table shows
which goals were met.
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

from components.platform.command import run_step
from components.platform.console import say
from components.platform.errors import UserError
from tests.bench.context import SMALL, BenchContext
from tests.bench.goals import GOALS
from tests.bench.isolated import measure_alone

ROOT = Path(__file__).parents[2]
PARTS = Path(__file__).with_name("parts")


@click.command(context_settings={"show_default": True})
@click.option(
    "--run",
    "run_directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of a finished `mlgo run`. Default: the demo's, which is brought up to date first.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("build/bench.json"),
    help="JSON file to write the figures to, one key each.",
)
@click.option("--only", multiple=True, help="Run only this benchmark (name of its module). Repeatable.")
@click.option("--repeats", type=click.IntRange(min=3), default=3, help="Number of timings to take the median of.")
@click.option("--small", is_flag=True, help="Try whether the benchmarks run: figures that mean nothing, not written.")
def main(run_directory: Path | None, output: Path, only: tuple[str, ...], repeats: int, small: bool) -> int:
    """Run the benchmarks, and print the figures with their goals.

    \b
    Example:
      make bench
      python -m tests.bench --only trace --repeats 5
      python -m tests.bench --small --run runs/tiny
    """
    run_directory = _finished(run_directory.absolute()) if run_directory else _demo()
    names = part_names()
    unknown = set(only) - set(names)
    if unknown:
        raise UserError(f"unknown benchmarks: {', '.join(sorted(unknown))}", f"choose from {', '.join(names)}")
    figures: dict[str, float] = {}
    failed: list[str] = []
    sizes = SMALL if small else {"repeats": repeats}
    for name in only or names:
        scratch = Path(tempfile.mkdtemp(prefix=f"mlgo-bench-{name}-"))
        started_s = time.monotonic()
        say(f"[{name}] measures")
        try:
            figures |= measure_alone(name, BenchContext(run_directory, scratch, **sizes))
            say(f"[{name}] took {time.monotonic() - started_s:.1f} s")
        except Exception:  # a failing benchmark must not lose the figures of the others
            traceback.print_exc()
            failed.append(name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if not small:
        if only and output.exists():
            figures = json.loads(output.read_text(encoding="utf-8")) | figures
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        say(f"figures: {output}")
    _print(figures)
    if failed:
        raise UserError(f"these benchmarks failed: {', '.join(failed)}", "see the tracebacks above")
    return 0


def part_names() -> list[str]:
    """Return the names of the benchmarks."""
    return sorted(path.stem for path in PARTS.glob("*.py"))


def _finished(run: Path) -> Path:
    if not (run / "evaluation" / "metrics.json").is_file():
        raise UserError(f"{run} is not a finished run", "finish it with `mlgo run`, or omit --run")
    return run


def _demo() -> Path:
    """Run the demo, or bring it up to date (`mlgo run` reuses unchanged steps), so that figures are of current code."""
    run = ROOT / "runs" / "demo"
    recipe = ROOT / "components" / "core" / "projects" / "recipes" / "demo.yaml"
    command = [sys.executable, "-m", "pipelines", "run", "--recipe", str(recipe), "--output", str(run)]
    if subprocess.run(command, check=False, cwd=ROOT).returncode != 0:
        raise UserError("the run of the demo failed", "see its message above")
    return run


def _print(figures: dict[str, float]) -> None:
    table = Table(title="Benchmarks")
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
