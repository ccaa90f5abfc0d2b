"""Run a benchmark in a separate process: gin and TensorFlow are configured once per process, differently by step."""

from __future__ import annotations

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from tests.bench.context import BenchContext


def measure_alone(name: str, context: BenchContext) -> dict[str, float]:
    """Return the figures of tests/bench/parts/<name>.py."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, name, context).result()


def _measure(name: str, context: BenchContext) -> dict[str, float]:
    # Not in __main__.py, which a spawned process does not import.
    figures: dict[str, float] = importlib.import_module(f"tests.bench.parts.{name}").measure(context)
    return figures
