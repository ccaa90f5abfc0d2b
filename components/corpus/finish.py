"""What every command that writes a corpus ends with: report, split, and a line for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.console import say
from components.corpus.report import Report
from components.corpus.split import SplitConfig, split_modules
from components.formats.corpus import load_corpus
from components.formats.splits import Splits, write_splits
from components.projects.checked import Checked
from components.storage.uri import shown


def split_config(flags: dict[str, Any], recipe: dict[str, Any] | None = None, where: str = "") -> SplitConfig:
    """The recipe's split, overruled by the flags given."""
    written = Checked(recipe or {}, f"{where}: split")
    written.only(*SplitConfig.__dataclass_fields__)
    default = SplitConfig()
    chosen = {
        "validation_fraction": written.number("validation_fraction", default.validation_fraction, 0, 1),
        "heldout_fraction": written.number("heldout_fraction", default.heldout_fraction, 0, 1),
        "heldout_projects": written.strings("heldout_projects"),
        "seed": written.integer("seed", 0, 2**31 - 1, default.seed),
    }
    return SplitConfig(**{**chosen, **{key: value for key, value in flags.items() if value not in (None, ())}})


def finish(directory: Path, config: SplitConfig, report: Report) -> Splits:
    """Write report.json and splits.json of the corpus described in `directory`."""
    report.write(directory)
    splits = split_modules(load_corpus(directory).modules, config)
    write_splits(directory, splits)
    return splits


def announce(directory: Path, report: Report, splits: Splits) -> None:
    say(report.line())
    for line in report.examples():
        say(line)
    say(describe(directory, splits))


def describe(directory: Path, splits: Splits) -> str:
    unseen = f" (all of {', '.join(splits.heldout_projects)})" if splits.heldout_projects else ""
    return (
        f"corpus in {shown(directory)}: {len(splits.train)} modules train, {len(splits.validation)} validate, "
        f"{len(splits.heldout)} are held out{unseen}"
    )
