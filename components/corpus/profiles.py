"""Copies the profiles that modules are compiled with into their corpus, see components/core/formats/profiles.py."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from components.core.formats.profiles import PROFILE_OPTIONS, parse_profile_option
from components.corpus.extraction.file_io import read, write
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.input_files import open_regular, path_errors

FOLDER = "profiles"
_OPTION_PREFIXES = tuple(f"{option}=".encode() for option in PROFILE_OPTIONS)
_SUFFIX = ".profile"


def copy_profiles(
    corpus: Path,
    names: Iterable[str],
    directories: Mapping[str, str],
    may_bring: Callable[[Path], bool] | None = None,
) -> None:
    """Copy every profile that the modules' arguments name to `corpus`/profiles and rewrite the arguments.

    Profiles with equal content are copied once. The rewritten paths are relative to the .cmd files.

    Args:
        names: modules, whose .cmd files are in `corpus`.
        directories: module -> directory that its relative paths start from; the working directory if missing.
        may_bring: returns whether a file may become part of the corpus, so that files that someone else's arguments
            name are not published. None: all files may.

    Raises:
        UserError: a profile cannot be read, or may not become part of the corpus.
    """
    copies: dict[str, Path] = {}
    for name in names:
        cmd = corpus / f"{name}.cmd"
        command = read(str(cmd))
        if not any(mark in command for mark in _OPTION_PREFIXES):
            continue
        arguments = command.decode("utf-8", "surrogateescape").split("\0")
        for index, argument in enumerate(arguments):
            if profile := parse_profile_option(argument):
                option, path = profile
                source = os.path.abspath(os.path.join(directories.get(name, ""), path))
                if may_bring is not None and not may_bring(Path(source)):
                    raise UserError(
                        f"{name} names the profile {source}, which is outside of its corpus",
                        f"if it is the module's profile, confirm it with --cmd-replace {option} {source}; otherwise "
                        f"remove it with --cmd-remove {option}",
                    )
                if source not in copies:
                    copies[source] = _copy_profile(Path(source), corpus / FOLDER, name, option)
                arguments[index] = f"{option}={os.path.relpath(copies[source], cmd.parent)}"
        write(str(cmd), "\0".join(arguments).encode("utf-8", "surrogateescape"))
    if copies:
        say(f"copied {len(set(copies.values()))} profiles of modules into the corpus")


def _copy_profile(source: Path, folder: Path, module: str, option: str) -> Path:
    remedy = (
        f"{module} was compiled with it: restore it at the path that the build used, or compile modules without it: "
        f"--cmd-remove={option}"
    )
    with path_errors(source, remedy), os.fdopen(open_regular(source), "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
        target = folder / f"{digest[:16]}{_SUFFIX}"
        if not target.exists():
            folder.mkdir(exist_ok=True)
            stream.seek(0)
            with target.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
    return target
