"""Last steps of commands that write a corpus: report, split, summary for the user; changes of a corpus in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from components.core.formats.bitcode_symbols import read_symbols
from components.core.formats.corpus import DESCRIPTION, REPORT, load_corpus
from components.core.formats.links import LINKS
from components.core.formats.splits import FILE as SPLITS
from components.core.formats.splits import Splits, write_splits
from components.core.projects.recipe_document import Text, convert
from components.corpus.profiles import FOLDER as PROFILES
from components.corpus.report import CorpusReport
from components.corpus.split import SplitConfig, split_modules
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.kinds import describe_kind
from components.platform.storage.manifest import MANIFEST, read_manifest, require_whole, scan_directory, write_manifest
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


@dataclass(frozen=True)
class SplitSummary:
    """The split of a corpus, and how much held-out code the other parts have.

    Attributes:
        known_percent: names of held-out modules that other modules define, too, mostly of inline functions; None
            without held-out or other names.
    """

    splits: Splits
    known_percent: float | None


def write_split_and_report(directory: Path, config: SplitConfig, report: CorpusReport) -> SplitSummary:
    """Write report.json and splits.json of the corpus in `directory`, and return the split."""
    report.write(directory)
    return write_split(directory, config)


def write_split(directory: Path, split: SplitConfig | Splits) -> SplitSummary:
    """Write splits.json of the corpus in `directory`, by a configuration or as it is, and return the split.

    The symbols of each module, which take most of the time, are read once.
    """
    modules = load_corpus(directory).modules
    symbols = [read_symbols(module.bitcode.read_bytes()) for module in modules]
    splits = split_modules(modules, split, symbols) if isinstance(split, SplitConfig) else split
    write_splits(directory, splits)
    known, heldout, held = set[str](), set[str](), {*splits.heldout}
    for module, its in zip(modules, symbols, strict=True):
        (heldout if module.name in held else known).update((its.strong | its.discardable) - its.local)
    return SplitSummary(splits, 100 * len(heldout & known) / len(heldout) if heldout and known else None)


def announce(directory: Path, report: CorpusReport, split: SplitSummary) -> None:
    """Print the report's summary, examples of skipped objects, and the sizes of the split."""
    say(report.line())
    for line in report.examples(display_path(directory / REPORT)):
        say(line)
    say(describe(directory, split))


def describe(directory: Path, split: SplitSummary) -> str:
    """Return a line with the number of modules in each part of the split, and how much held-out code others have."""
    splits, known = split.splits, split.known_percent
    heldout_note = f" (all of {', '.join(splits.heldout_projects)})" if splits.heldout_projects else ""
    overlap = "" if known is None else f"; the other modules define {known:.0f}% of their names, too"
    return (
        f"corpus in {display_path(directory)}: {len(splits.train)} modules train, {len(splits.validation)} validate, "
        f"{len(splits.heldout)} are held out{heldout_note}{overlap}"
    )


@contextmanager
def rewriting(directory: Path, verified: bool) -> Iterator[None]:
    """Remove the manifest of a corpus while the block changes the corpus, so that no reader takes it for finished.

    The new manifest lists the files of the corpus, and no others that a user keeps in the directory. If the block
    fails, the former manifest is restored.

    Args:
        verified: whether the files have to be those of the former manifest.

    Raises:
        UserError: the manifest is that of another tool or of another artifact; or the corpus is damaged.
    """
    directory = directory.absolute()
    path = directory / MANIFEST
    before = path.read_bytes() if path.exists() else None
    if before is not None:
        manifest = read_manifest(directory)
        if manifest.kind != "corpus":
            raise UserError(
                f"{directory} is {describe_kind(manifest.kind)}, not a corpus", "pass the directory of a corpus"
            )
        if verified:
            require_whole(manifest)
        path.unlink()
    try:
        yield
        write_manifest(directory, scan_directory(directory, _corpus_files(directory)), "corpus")
    except BaseException:
        if before is not None:
            path.write_bytes(before)
        raise


def _corpus_files(directory: Path) -> list[Path]:
    files = [directory / name for name in (DESCRIPTION, REPORT, SPLITS, LINKS)]
    files += (directory / PROFILES).glob("*")
    for module in load_corpus(directory):
        files += [module.cmd, *module.own_files()]
    return [path for path in dict.fromkeys(files) if path.is_file()]
