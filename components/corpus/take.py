"""Takes over a corpus that someone else made: a copy of its own, so that the original is neither changed nor needed."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.console import Progress
from components.formats.corpus import DESCRIPTION, Corpus, Module, load_corpus


def take_corpus(source: Path, output: Path) -> Corpus:
    """Copies description and modules of the corpus in `source` to the directory `output`; what else lies there stays.

    Returns the corpus in `source`. Raises `UserError` if it is none, or damaged.
    """
    corpus = load_corpus(source)
    shutil.copyfile(source / DESCRIPTION, output / DESCRIPTION)
    with Progress("copying modules", total=len(corpus)) as progress:
        for module in corpus:
            for path in _files(module):
                target = output / path.relative_to(corpus.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)  # no hard link: the original may be written to later
            progress.advance()
    return corpus


def _files(module: Module) -> list[Path]:
    files = [module.bitcode]
    if module.command_override is None:
        files.append(module.cmd)
    if module.thinlto_index is not None:
        files.append(module.thinlto_index)
    return files
