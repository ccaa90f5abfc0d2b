"""Makes a corpus from loose bitcode files, and joins corpora: what mlgo-utils' make_corpus and combine do."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from typing import Any

from components.console import UserError
from components.formats.corpus import DESCRIPTION, file_problem, load_corpus, write_description
from components.storage.output_files import replace_text

_SUFFIX = ".bc"


def make_corpus(
    source: Path, output: Path, default_args: list[str], skip_damaged: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Copy every .bc file below `source` to `output` and describe them, compiled with `default_args`.

    Args:
        skip_damaged: leave files out that are not whole bitcode, instead of refusing them all.

    Returns:
        The names of the modules, and what is wrong with each that was left out.

    Raises:
        UserError: there is no such file, or one is not whole bitcode.
    """
    if not source.is_dir():
        raise UserError(f"there is no directory {source}", "name the directory that holds the .bc files")
    # In the order that pathlib finds them in, which is the order that mlgo-utils lists them in.
    names = [str(path.relative_to(source))[: -len(_SUFFIX)] for path in source.glob(f"**/*{_SUFFIX}")]
    if not names:
        raise UserError(f"{source} holds no {_SUFFIX} file", "name the directory that holds the bitcode")
    damaged = {name: problem for name in names if (problem := file_problem(source / (name + _SUFFIX)))}
    names = [name for name in names if name not in damaged]
    if damaged and (not names or not skip_damaged):
        name, problem = next(iter(damaged.items()))
        raise UserError(
            f"{len(damaged)} files below {source} are not whole bitcode: {name}{_SUFFIX} {problem}",
            "make them again" + (", or pass --skip-damaged to leave them out" if names else ""),
        )
    for name in names:
        target = output / (name + _SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / (name + _SUFFIX), target)
    write_description(output, names, command_override=default_args)
    return names, damaged


def combine_corpora(root: Path) -> list[str]:
    """Describe all corpora in the direct subdirectories of `root` as one, in `root`/corpus_description.json.

    Returns the names of the modules, each with its subdirectory before it. Raises `UserError` if there is no corpus,
    if one is damaged, or if they differ in more than their modules.
    """
    names: list[str] = []
    common: dict[str, Any] | None = None
    first = ""
    # glob's own order, which is the order that mlgo-utils lists the corpora in.
    for found in glob.glob(os.path.join(root, "*", DESCRIPTION)):
        folder = os.path.basename(os.path.dirname(found))
        description = dict(load_corpus(root / folder).description)
        names += [os.path.join(folder, name) for name in description.pop("modules")]
        if common is None:
            common, first = description, folder
        elif description != common:
            keys = sorted(k for k in {*common, *description} if common.get(k) != description.get(k))
            raise UserError(
                f"the corpora {first} and {folder} in {root} differ in {', '.join(keys)}",
                "combine only corpora that were made in the same way",
            )
    if common is None:
        raise UserError(f"no subdirectory of {root} is a corpus", f"each needs its own {DESCRIPTION}")
    common["modules"] = names
    replace_text(root / DESCRIPTION, json.dumps(common, indent=2))
    return names
