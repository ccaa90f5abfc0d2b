"""Brings the profiles that modules are compiled with into their corpus, see components/compiler/profiles.py."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from components.compiler.profiles import PROFILE_OPTIONS, profile_of
from components.console import UserError, say
from components.corpus.files import read, write
from components.storage.input_files import open_regular, path_errors

FOLDER = "profiles"
_MARKS = tuple(f"{option}=".encode() for option in PROFILE_OPTIONS)
_SUFFIX = ".profile"


def bring_profiles(
    corpus: Path,
    names: Iterable[str],
    directories: Mapping[str, str],
    may_bring: Callable[[Path], bool] | None = None,
) -> None:
    """Copy every profile that the modules' arguments name to `corpus`/profiles, once, and have the arguments name that.

    Args:
        names: modules, whose .cmd files are in `corpus`.
        directories: module -> where its relative paths start, as far as that is known; the working directory otherwise.
        may_bring: whether a file may become part of the corpus, any by default: what a stranger's arguments name is not
            published.

    Raises:
        UserError: a profile cannot be read, or may not become part of the corpus.
    """
    copies: dict[str, Path] = {}
    for name in names:
        cmd = corpus / f"{name}.cmd"
        command = read(str(cmd))
        if not any(mark in command for mark in _MARKS):
            continue
        arguments = command.decode("utf-8", "surrogateescape").split("\0")
        for place, argument in enumerate(arguments):
            if found := profile_of(argument):
                option, path = found
                source = os.path.abspath(os.path.join(directories.get(name, ""), path))
                if may_bring is not None and not may_bring(Path(source)):
                    raise UserError(
                        f"{name} names the profile {source}, which is outside of its corpus",
                        f"if it is that module's, say so: --cmd-replace {option} {source}; or leave it out: "
                        f"--cmd-remove {option}",
                    )
                if source not in copies:
                    copies[source] = _copy(Path(source), corpus / FOLDER, name, option)
                arguments[place] = f"{option}={os.path.relpath(copies[source], cmd.parent)}"
        write(str(cmd), "\0".join(arguments).encode("utf-8", "surrogateescape"))
    if copies:
        say(f"{len(set(copies.values()))} profiles that modules were compiled with are part of the corpus")


def _copy(source: Path, folder: Path, module: str, option: str) -> Path:
    remedy = (
        f"{module} was compiled with it: put it back where the build had it, or have modules compiled without: "
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
