"""Imports an existing corpus as a copy, so that the original is neither changed nor needed afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from components.core.formats.corpus import DESCRIPTION, Corpus, Module, inspect_corpus, load_corpus
from components.core.formats.links import LINKS
from components.corpus.command_edits import CommandEdits, edit_commands
from components.corpus.extraction.own_options import strip_imported
from components.corpus.profiles import copy_profiles
from components.platform.console import Progress
from components.platform.errors import UserError

_NO_EDITS = CommandEdits()


def import_modules(
    source: Path,
    output: Path,
    skip_damaged: bool = False,
    edits: CommandEdits = _NO_EDITS,
    max_modules_per_project: int | None = None,
) -> tuple[Corpus, dict[str, str]]:
    """Copy description, modules and profiles of the corpus in `source` to the directory `output`.

    links.json is copied, too, and no other file. This project's options are removed from the arguments, see
    own_options.py.

    Args:
        skip_damaged: skip modules whose files are missing or truncated, instead of raising.
        edits: of the modules' arguments, in the copy.
        max_modules_per_project: copy so many modules of a project at most, those whose names have the lowest digests.

    Returns:
        The corpus in `source`, with the copied modules only (its description has all), and skipped module -> what is
        wrong with it.

    Raises:
        UserError: `source` is not a corpus, or is damaged, or all of its modules are; a profile is missing; no module
            has an option that is to be changed.
    """
    if skip_damaged:
        corpus, damaged = inspect_corpus(source)
        modules = tuple(module for module in corpus if module.name not in damaged)
        if not modules:
            raise UserError(f"all {len(corpus)} modules of {source} are damaged", "make the corpus again")
        corpus = replace(corpus, modules=modules)
    else:
        corpus, damaged = load_corpus(source), {}
    if max_modules_per_project is not None:
        corpus = replace(corpus, modules=_limit(corpus, max_modules_per_project))
    if len(corpus) == len(corpus.description["modules"]) and not damaged:
        shutil.copyfile(source / DESCRIPTION, output / DESCRIPTION)
    else:
        description = {**corpus.description, "modules": [module.name for module in corpus]}
        (output / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")
    root, own_profiles = corpus.directory.resolve(), {Path(path).resolve() for path in edits.profiles()}
    with Progress("copying modules", total=len(corpus)) as progress:
        for module in corpus:
            for path in module.own_files():
                if not path.resolve().is_relative_to(root):
                    raise UserError(f"{path} is a link out of its corpus", "replace the link with the file")
                target = output / path.relative_to(corpus.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)  # no hard link: the original may be written to later
            progress.advance()
    if (source / LINKS).is_file():
        shutil.copyfile(source / LINKS, output / LINKS)
    strip_imported(output, [module.name for module in corpus])
    edit_commands(output, [module.name for module in corpus], edits)
    own = [module for module in corpus if module.command_override is None]

    def may_bring(profile: Path) -> bool:
        real = profile.resolve()
        return real in own_profiles or real.is_relative_to(root)

    directories = {module.name: str(module.cmd.parent) for module in own}
    copy_profiles(output, [module.name for module in own], directories, may_bring)
    return corpus, damaged


def _limit(corpus: Corpus, limit: int) -> tuple[Module, ...]:
    """Return at most `limit` modules of each project, in their order.

    Digests choose, so that the choice does not depend on the other modules.
    """
    by_project: defaultdict[str, list[str]] = defaultdict(list)
    for module in corpus:
        by_project[module.project].append(module.name)
    for names in by_project.values():
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    chosen = {name for names in by_project.values() for name in names[:limit]}
    return tuple(module for module in corpus if module.name in chosen)
