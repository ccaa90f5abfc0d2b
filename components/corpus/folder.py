"""Which object files, or which modules that lld saved, a directory holds."""

from __future__ import annotations

from pathlib import Path

from components.console import UserError
from components.corpus.objects import ObjectFile, object_at

SAVED = ".3.import.bc"
"""Behind an object's name: what lld's --save-temps=import calls a module into which ThinLTO has imported."""


def from_directory(directory: Path, base: Path | None = None) -> list[ObjectFile]:
    """The .o files below `directory`, named by their paths relative to it, or to `base`.

    Raises `UserError` if there is none.
    """
    return _below(directory, ".o", base, "name the build directory: its objects end in .o")


def from_saved(directory: Path, base: Path | None = None) -> list[ObjectFile]:
    """The objects of whose modules a link with local ThinLTO saved the bitcode below `directory`.

    Path and name are the object's: the bitcode's has `SAVED` behind it. Raises `UserError` if there is none.
    """
    remedy = "link with clang -flto=thin -fuse-ld=lld -Wl,--save-temps=import -Wl,--thinlto-emit-index-files"
    return _below(directory, SAVED, base, remedy)


def _below(directory: Path, suffix: str, base: Path | None, remedy: str) -> list[ObjectFile]:
    if not directory.is_dir():
        raise UserError(f"there is no directory {directory}", "name the directory that holds the objects")
    # In the order that pathlib finds them in, which is the order that mlgo-utils lists them in.
    found = [str(path.relative_to(directory)) for path in directory.glob(f"**/*{suffix}") if path.is_file()]
    if not found:
        raise UserError(f"{directory} holds no *{suffix} file", remedy)
    cut = len(suffix) if suffix == SAVED else 0
    objects: list[ObjectFile] = []
    for name in found:
        item = object_at(str(directory), name[: len(name) - cut], base)
        if item is None:
            raise UserError(
                f"the object {directory / name} lies outside of {base}",
                "pass --obj-base-dir with a directory that holds all objects, or leave it out",
            )
        objects.append(item)
    return objects
