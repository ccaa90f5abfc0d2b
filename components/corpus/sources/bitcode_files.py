"""Makes a corpus from bitcode files, and combines corpora, as mlgo-utils' make_corpus and combine do."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from typing import Any

from components.core.formats.corpus import DESCRIPTION, file_problem, load_corpus, write_description
from components.platform.errors import UserError
from components.platform.storage.manifest import MANIFEST, require_artifact
from components.platform.storage.output_files import replace_text

_SUFFIX = ".bc"


def make_corpus(
    source: Path, output: Path, default_args: list[str], skip_damaged: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Copy every .bc file below `source` to `output` and write the description of the corpus.

    Args:
        skip_damaged: skip files that are not complete bitcode, instead of raising.

    Returns:
        The names of the modules, and skipped module -> what is wrong with it.

    Raises:
        UserError: there is no .bc file, or one is not complete bitcode.
    """
    if not source.is_dir():
        raise UserError(f"there is no directory {source}", "pass the directory that holds the .bc files")
    # Sorted: training depends on the order of modules, and mlgo-utils' is the file system's.
    names = sorted(str(path.relative_to(source))[: -len(_SUFFIX)] for path in source.glob(f"**/*{_SUFFIX}"))
    if not names:
        raise UserError(f"{source} holds no {_SUFFIX} file", "pass the directory that holds the bitcode")
    damaged = {name: problem for name in names if (problem := file_problem(source / (name + _SUFFIX)))}
    names = [name for name in names if name not in damaged]
    if damaged and (not names or not skip_damaged):
        name, problem = next(iter(damaged.items()))
        raise UserError(
            f"{len(damaged)} files below {source} are not complete bitcode: {name}{_SUFFIX} {problem}",
            "compile them again" + (", or pass --skip-damaged to skip them" if names else ""),
        )
    for name in names:
        target = output / (name + _SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / (name + _SUFFIX), target)
    write_description(output, names, command_override=default_args)
    return names, damaged


def combine_corpora(root: Path) -> list[str]:
    """Combine all corpora in the direct subdirectories of `root` into one; write `root`/corpus_description.json.

    Returns:
        The names of the modules, prefixed with their subdirectory.

    Raises:
        UserError: there is no corpus, one is damaged, or they differ in more than their modules.
    """
    names: list[str] = []
    common: dict[str, Any] | None = None
    first = ""
    for path in sorted(glob.glob(os.path.join(root, "*", DESCRIPTION))):
        folder = os.path.basename(os.path.dirname(path))
        if (root / folder / MANIFEST).is_file():
            require_artifact(root / folder, "corpus", verify_content=True)
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
        raise UserError(f"no subdirectory of {root} is a corpus", f"each corpus needs a {DESCRIPTION}")
    common["modules"] = names
    replace_text(root / DESCRIPTION, json.dumps(common, indent=2))
    return names
