"""Measure the tables of docs/performance.md: the work of a head for 1 to 512 slots of a simulated cluster.

python -m tests.bench.ray_scaling --run runs/demo --slots 1 --slots 512
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from components.platform.command import run_step
from components.platform.console import say
from tests.bench.simulation import Measured, measure_slots
from tests.bench.workload import read_workload


@click.command()
@click.option(
    "--run",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/demo"),
    show_default=True,
    help="Directory of a finished `mlgo run`.",
)
@click.option(
    "--slots",
    multiple=True,
    type=click.IntRange(min=1),
    default=tuple(2**n for n in range(10)),
    help="Number of slots of the cluster. Repeatable.",
)
@click.option(
    "--modules",
    multiple=True,
    type=click.IntRange(min=1),
    default=(16, 100, 1000),
    help="Number of modules of an iteration. Repeatable.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="Number of iterations to take the median of.")
def main(run: Path, slots: tuple[int, ...], modules: tuple[int, ...], repeats: int) -> int:
    """Print the tables of docs/performance.md."""
    with tempfile.TemporaryDirectory(prefix="mlgo-slots-") as scratch:
        workload = read_workload(run.absolute(), Path(scratch))
        for count in slots:
            _tell(measure_slots(workload, count, modules, repeats))
    return 0


def _tell(done: Measured) -> None:
    iterations = "; ".join(
        f"{size} modules {seconds:.2f} s (ideal {done.ideal_s[size]:.2f})" for size, seconds in done.iteration_s.items()
    )
    say(
        f"{done.slots} slots {100 * done.busy:.1f}% busy, {done.modules_per_s:.1f} modules/s, each "
        f"{done.driver_ms:.2f} ms of the trainer and {done.head_ms:.2f} ms of Ray, "
        f"machine {100 * done.machine:.0f}% busy; {iterations}"
    )


if __name__ == "__main__":
    run_step(main)
