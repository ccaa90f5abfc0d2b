"""The size objective: bytes of native text, summed over modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from components.core.objectives.objective import Labels, Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from components.core.compiler.sample import Sample
    from components.core.objectives.objective import Float64

MODULE = ""
"""The case of a module in its outcome."""

_KIB = 1024


class Size:
    """See Objective. Methods import NumPy and pyarrow themselves: the module must be importable without them."""

    name = "size"
    labels = Labels(
        less="smaller",
        more="larger",
        quantity="size",
        better="smaller",
        case="module",
        values="text",
        unit="bytes",
        values_key="sizes",
        directions=("smaller", "equal", "larger"),
        title="Text size of the held-out modules",
        worst="Modules that grew most",
        worst_key="worst_modules",
        no_worse="None grew.",
        reward="% smaller than -Oz",
        axis="text size under -Oz (KiB)",
        projects="linked binaries",
    )
    additive = True
    needs_log = False
    forks_at_flips = False
    uses_function_sizes = True
    sweeps_thresholds = True
    recipe_field = "binaries"
    programs_decide = False

    def outcome(self, sample: Sample) -> Outcome:
        return {MODULE: sample.text_size_bytes}

    def baselines(self, trace: Path) -> dict[str, Outcome]:
        from components.core.formats.trace import read_modules  # nodes of a cluster have no pyarrow

        # A module that failed in the trace has no size, and one without decisions teaches nothing.
        table = read_modules(trace)
        rows = zip(table["module"].tolist(), table["text_size_bytes"].tolist(), table["decisions"], strict=True)
        return {name: {MODULE: size} for name, size, decisions in rows if size > 0 and decisions > 0}

    def reduction(self, baseline: Float64, other: Float64) -> float | None:
        before = baseline.sum().item()
        return 1.0 - other.sum().item() / before if before else None

    def without_each(self, baseline: Float64, other: Float64, unit: NDArray[np.int64]) -> tuple[Float64, Float64]:
        from components.core.objectives.estimate import ratios_without_each

        ratios, weights = ratios_without_each(other, baseline, unit)
        return 1.0 - ratios, weights

    def growth_percent(self, baseline: Float64, other: Float64) -> Float64:
        import numpy as np

        growth = np.where(other > baseline, np.inf, 0.0)
        np.divide(other, baseline, out=growth, where=baseline > 0)
        return 100.0 * np.where(baseline > 0, growth - 1.0, growth)

    def plot_positions(self, baseline: Float64) -> Float64:
        return baseline / _KIB

    def extent(self, baseline: Outcome) -> str:
        return f"{baseline[MODULE]} bytes"


SIZE = Size()


def linked_bytes(sample: Sample, definition_counts: Mapping[str, int]) -> float:
    """Return a module's bytes, with functions that several objects define weighted by the share that a link keeps.

    Args:
        definition_counts: function -> number of the project's objects that define it, see `read_object_counts`.
    """
    assert sample.function_sizes is not None
    sizes = sample.function_sizes.by_name() if definition_counts else {}
    return bytes_kept(sample.text_size_bytes, sizes, definition_counts)


_IMPORT_BYTES = 24 + 2 + 1 + 24 + 16 + 8
"""Bytes of an import of a dynamic ELF64 program besides its name: symbol, version, end of the name, relocation, PLT and
GOT entry."""


def import_bytes(names: Collection[str]) -> int:
    """Return what symbols that a program uses and does not define add to its dynamic symbol table and PLT."""
    return sum(_IMPORT_BYTES + len(name) for name in names)


def bytes_kept(text_size_bytes: int, sizes: Mapping[str, int], definition_counts: Mapping[str, int]) -> float:
    """Return the same from the sizes of at least the functions in `definition_counts`."""
    several = ((size, definition_counts[name]) for name, size in sizes.items() if name in definition_counts)
    return text_size_bytes - sum(size * (1 - 1 / count) for size, count in several)


def reduction_percent(baseline_bytes: int, other_bytes: int) -> float | None:
    """Return 100 * (1 - other / baseline); None if the baseline is 0."""
    return 100.0 * (1.0 - other_bytes / baseline_bytes) if baseline_bytes else None
