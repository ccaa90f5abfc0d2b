"""Last steps of every command that writes a corpus: report, split, and a summary for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from components.core.formats.corpus import REPORT, load_corpus
from components.core.formats.splits import Splits, write_splits
from components.core.projects.recipe_document import Text, convert
from components.corpus.report import CorpusReport
from components.corpus.split import SplitConfig, split_modules
from components.platform.console import say
from components.platform.storage.uri import display_path

Fraction = Annotated[float, Meta(ge=0, le=1)]


class SplitSettings(Struct, forbid_unknown_fields=True):
    """The `split` mapping of a recipe: {validation_fraction: 0.1, heldout_projects: [zlib]}; None is the default."""

    validation_fraction: Fraction | None = None
    heldout_fraction: Fraction | None = None
    heldout_projects: tuple[Text, ...] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


def split_config(flags: dict[str, Any], recipe: dict[str, Any] | None = None, where: str = "") -> SplitConfig:
    """Return the split configuration: the recipe's, with command-line options taking precedence.

    Args:
        flags: options of `split_options`; None or () if not given.
        recipe: the `split` mapping of the recipe.
        where: name of the recipe, for errors.
    """
    settings = convert(recipe or {}, SplitSettings, f"{where}: split")
    chosen = {name: value for name, value in msgspec.structs.asdict(settings).items() if value is not None}
    return SplitConfig(**{**chosen, **{key: value for key, value in flags.items() if value not in (None, ())}})


def write_split_and_report(directory: Path, config: SplitConfig, report: CorpusReport) -> Splits:
    """Write report.json and splits.json of the corpus in `directory`, and return the split."""
    report.write(directory)
    splits = split_modules(load_corpus(directory).modules, config)
    write_splits(directory, splits)
    return splits


def announce(directory: Path, report: CorpusReport, splits: Splits) -> None:
    """Print the report's summary, examples of skipped objects, and the sizes of the split."""
    say(report.line())
    for line in report.examples(display_path(directory / REPORT)):
        say(line)
    say(describe(directory, splits))


def describe(directory: Path, splits: Splits) -> str:
    """Return a line with the number of modules in each part of the split."""
    heldout_note = f" (all of {', '.join(splits.heldout_projects)})" if splits.heldout_projects else ""
    return (
        f"corpus in {display_path(directory)}: {len(splits.train)} modules train, {len(splits.validation)} validate, "
        f"{len(splits.heldout)} are held out{heldout_note}"
    )
