"""Fetches the sources of recipes: Debian source packages, git tags, archives, local directories."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.core.projects.recipe import Recipe, Source
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.digests import json_digest
from components.platform.storage.downloads.archive import download_archive, unpack
from components.platform.storage.downloads.debsource import fetch_deb_source
from components.platform.storage.downloads.git import remote_commit, require_git, run_git
from components.platform.storage.downloads.retry import Say
from components.platform.storage.output_files import replace_text


def fetch_recipe(recipe: Recipe, into: Path, cache: Path, progress: Say = say) -> Path:
    """Put the recipe's source at `into`/source and its requirements at `into`/<name>; return `into`/source.

    A local path is linked, unless the recipe's own commands run in it: then it is copied, because a user's tree is
    never modified. Downloads are kept below `cache` and reused.
    """
    for name, source in recipe.requires:
        _fetch(source, into / name, cache, progress, in_place=True)
    in_place = recipe.commands is None and not recipe.prepare
    return _fetch(recipe.source, into / "source", cache, progress, in_place=in_place)


def _fetch(source: Source, into: Path, cache: Path, progress: Say, in_place: bool) -> Path:
    into.parent.mkdir(parents=True, exist_ok=True)
    match source.kind:
        case "deb":
            return fetch_deb_source(source.location, cache, into, progress)
        case "git":
            return _clone(source, into, progress)
        case "url":
            return unpack(download_archive(source.location, source.pin, cache, "the recipe", progress), into)
        case "path":
            return _local(Path(source.location), into, in_place)


def _local(path: Path, into: Path, in_place: bool) -> Path:
    if not path.is_dir():
        raise UserError(f"the source directory {path} does not exist", "correct source: path in the recipe")
    if in_place:
        into.symlink_to(path, target_is_directory=True)
    elif into.resolve().is_relative_to(path.resolve()):
        raise UserError(
            f"the source directory {path} contains {into}, where it would be copied to",
            "choose an output and a cache (MLGO_CACHE_DIR) outside of it",
        )
    else:
        shutil.copytree(path, into, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return into


def _clone(source: Source, into: Path, progress: Say) -> Path:
    require_git(f"it fetches {source.location}")
    progress(f"cloning {source.location} at {source.pin}")
    options = ["--quiet", "--depth=1", "--recurse-submodules", "--shallow-submodules", f"--branch={source.pin}"]
    command = ["-c", "advice.detachedHead=false", "clone", *options, "--", source.location, str(into)]
    task = f"clone {source.location} at {source.pin}"
    run_git(command, task, "check the URL, the tag and the network", progress, into)
    return into


def git_commit(source: Source, cache: Path, progress: Say = say) -> str:
    """Return the commit (hex) that the tag of a git source points to: a tag that was moved is another source.

    If the repository cannot be read, it is the commit that was seen last, which `cache` keeps, with a warning.

    Raises:
        UserError: the repository cannot be read, and was not before; or it has no such tag.
    """
    seen = cache / "git-commits" / json_digest([source.location, source.pin])
    try:
        commit = remote_commit(source.location, source.pin, progress)
    except UserError as error:
        if not seen.is_file():
            raise
        commit = seen.read_text(encoding="utf-8").strip()
        progress(f"warning: {error.problem}; it is taken for {commit[:12]}, as seen before")
        return commit
    seen.parent.mkdir(parents=True, exist_ok=True)
    replace_text(seen, f"{commit}\n")
    return commit
