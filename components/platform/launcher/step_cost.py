"""What a step costs: the line in its log, the metadata of its artifact, and the table of several steps.

The launcher measures each step. The artifact that the step writes gets its figures as metadata, and those of the steps
before it (COSTS), which KFP hands to the steps that read the artifact: so the last report has a table of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import DecodeError, ValidationError, convert
from msgspec.json import decode

from components.platform.console import say
from components.platform.launcher.kfp_locations import copied_bytes, input_metadata
from components.platform.processes.cgroup import available_processors
from components.platform.processes.usage import UsageMeter
from components.platform.storage.object_storage.traffic import Traffic, moved

COSTS = "costs"
"""Metadata of an artifact: JSON text with the costs of the step that wrote it and of those before it, by task."""
PREFIX = "cost."
"""Beginning of the names of a step's own figures in metadata, which KFP's interface shows."""
COLUMNS = ("step", "seconds", "processor seconds", "processors used", "memory at most", "read", "written")
NOTE = (
    "A step whose result was reused counts as when it ran, the last one until it wrote this. Time is that of programs, "
    "without what a server takes to start them. Read and written are objects in object storage."
)
"""Below or above a table with COLUMNS."""
_MEGABYTE = 10**6
_LINE = re.compile(
    r"cost: (?P<seconds>[\d.]+) s on (?P<processors>\d+) processors?, (?P<processor_seconds>[\d.]+) processor seconds, "
    r"(?P<peak_memory_bytes>[\d.]+) MB of memory at most, object storage: (?P<read_bytes>[\d.]+) MB read, "
    r"(?P<written_bytes>[\d.]+) MB written"
)


@dataclass(frozen=True)
class StepCost:
    """What a step used.

    Attributes:
        seconds: time from the start to the end of the step's program.
        processors: that it might use.
        processor_seconds: user and system time of the step and its children.
        peak_memory_bytes: most memory of all its processes at a time, without cached files.
        read_bytes, written_bytes: objects that were moved from and to object storage, by the step or by KFP for it.
    """

    seconds: float
    processors: int
    processor_seconds: float
    peak_memory_bytes: int
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def processors_used(self) -> float:
        """Number of processors that were used on average."""
        return self.processor_seconds / self.seconds if self.seconds > 0 else 0.0

    def line(self) -> str:
        """Return the line in the log, which `find_cost` reads."""
        return (
            f"cost: {self.seconds:.1f} s on {self.processors} processor{'' if self.processors == 1 else 's'}, "
            f"{self.processor_seconds:.1f} processor seconds, {_megabytes(self.peak_memory_bytes)} of memory at most, "
            f"object storage: {_megabytes(self.read_bytes)} read, {_megabytes(self.written_bytes)} written"
        )

    def metadata(self) -> dict[str, float]:
        """Return the figures as metadata of an artifact."""
        return {f"{PREFIX}{name}": value for name, value in self.figures().items()}

    def figures(self) -> dict[str, float]:
        """Return the figures by the names of the attributes, seconds with one digit."""
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(self).items()}

    def row(self, step: str) -> list[str]:
        """Return the row of a table with COLUMNS."""
        return [
            step,
            f"{self.seconds:.1f}",
            f"{self.processor_seconds:.1f}",
            f"{self.processors_used:.1f} of {self.processors}",
            *(_megabytes(size) for size in (self.peak_memory_bytes, self.read_bytes, self.written_bytes)),
        ]


def is_cost_line(line: str) -> bool:
    """Return whether a line of a log is that of a step's cost."""
    return _LINE.search(line) is not None


def find_cost(lines: Iterable[str]) -> StepCost | None:
    """Return the cost in the last line that has one, None without one. A log that is appended to has several."""
    found = [match for line in lines if (match := _LINE.search(line))]
    if not found:
        return None
    values: dict[str, Any] = {name: float(text) for name, text in found[-1].groupdict().items()}
    sizes = {name: round(value * _MEGABYTE) for name, value in values.items() if name.endswith("_bytes")}
    return StepCost(**{**values, **sizes, "processors": int(values["processors"])})


def cost_in_metadata(metadata: Any) -> StepCost | None:
    """Return the cost of the step that wrote an artifact with this metadata, None if it has none."""
    if not isinstance(metadata, Mapping):
        return None
    values = {key.removeprefix(PREFIX): value for key, value in metadata.items() if str(key).startswith(PREFIX)}
    try:
        return convert(values, StepCost, strict=False)  # numbers are floats in ML Metadata
    except ValidationError:
        return None


def table_rows(costs: Mapping[str, StepCost]) -> list[list[str]]:
    """Return the rows of a table with COLUMNS, the sum last."""
    rows = [cost.row(step) for step, cost in costs.items()]
    values = list(costs.values())
    if len(values) > 1:
        processor_s = sum(cost.processor_seconds for cost in values)
        sums = (sum(cost.read_bytes for cost in values), sum(cost.written_bytes for cost in values))
        peak = max(cost.peak_memory_bytes for cost in values)
        core_hours = f"{processor_s / 3600:.2f} core hours"
        total = ["all", f"{sum(cost.seconds for cost in values):.1f}", f"{processor_s:.1f}", core_hours]
        rows.append([*total, *map(_megabytes, (peak, *sums))])
    return rows


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / _MEGABYTE:.1f} MB"


class StepMeter:
    """Measures a step that the launcher runs.

    Args:
        task: name under which its cost is reported.
        executor_input: KFP's, whose input artifacts may have the costs of earlier steps.
    """

    def __init__(self, task: str, executor_input: Mapping[str, Any], usage: UsageMeter) -> None:
        self._task, self._executor_input, self._usage = task, executor_input, usage
        self._earlier = dict(_earlier_costs(executor_input))
        before = moved()
        self._before = Traffic(copied_bytes(executor_input, "inputs") - before.read_bytes, -before.written_bytes)
        self._ended: StepCost | None = None

    def end(self) -> None:
        """End the measurement; write the line of the log."""
        self._ended = self.cost()
        with suppress(OSError):  # nobody reads the output: that is no error of a step
            say(self._ended.line())

    def cost(self) -> StepCost:
        """Return the cost of the step, or so far."""
        if self._ended is not None:
            return self._ended
        usage = self._usage.read()
        traffic = moved() + self._before + Traffic(0, copied_bytes(self._executor_input, "outputs"))
        return StepCost(
            usage.seconds,
            available_processors(),
            usage.processor_seconds,
            usage.peak_memory_bytes,
            traffic.read_bytes,
            traffic.written_bytes,
        )

    def costs(self) -> dict[str, StepCost]:
        """Return the costs of the earlier steps that are known, and of this one, by task."""
        return {**self._earlier, self._task: self.cost()}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the artifact that the step wrote."""
        costs = {task: cost.figures() for task, cost in self.costs().items()}
        return {**self.cost().metadata(), COSTS: json.dumps(costs)}


_running: list[StepMeter] = []


@contextmanager
def measured(task: str, executor_input: Mapping[str, Any]) -> Iterator[StepMeter]:
    """Measure the step that runs in the block, and write its cost to the log; arguments as of `StepMeter`."""
    with UsageMeter() as usage:
        meter = StepMeter(task, executor_input, usage)
        _running.append(meter)
        try:
            yield meter
        finally:
            _running.pop()
            meter.end()


def costs_so_far() -> dict[str, StepCost]:
    """Return the costs of the steps whose results this one reads, directly or not, and its own so far, by task.

    Empty if no launcher runs this step.
    """
    return _running[-1].costs() if _running else {}


def _earlier_costs(executor_input: Mapping[str, Any]) -> Iterator[tuple[str, StepCost]]:
    """Yield task and cost of each step that the metadata of input artifacts know; what is not valid is left out."""
    for metadata in input_metadata(executor_input):
        with suppress(DecodeError, ValidationError):
            yield from decode(str(metadata.get(COSTS, "{}")), type=dict[str, StepCost]).items()
