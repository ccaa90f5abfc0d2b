"""Object files, or modules that lld saved, in a directory."""

from __future__ import annotations

from pathlib import Path

from components.corpus.sources.objects import ObjectFile, locate_object
from components.platform.errors import UserError

SAVED_MODULE_SUFFIX = ".3.import.bc"
"""Suffix that lld's --save-temps=import appends to an object's name, for the module after ThinLTO's imports."""


def find_objects(directory: Path, base: Path | None = None) -> list[ObjectFile]:
    """Return the .o files below `directory`, named by their paths relative to it, or to `base`.

    Raises:
        UserError: there is none.
    """
    return _find_objects(directory, ".o", base, "pass the build directory; its objects must end in .o")


def find_saved_modules(directory: Path, base: Path | None = None) -> list[ObjectFile]:
    """Return the objects whose bitcode a link with local ThinLTO saved below `directory`. UserError if there is none.

    Path and name are those of the object; the path of the bitcode is the object's with SAVED_MODULE_SUFFIX.
    """
    remedy = "link with clang -flto=thin -fuse-ld=lld -Wl,--save-temps=import -Wl,--thinlto-emit-index-files"
    return _find_objects(directory, SAVED_MODULE_SUFFIX, base, remedy)


def _find_objects(directory: Path, suffix: str, base: Path | None, remedy: str) -> list[ObjectFile]:
    if not directory.is_dir():
        raise UserError(f"there is no directory {directory}", "pass the directory that holds the objects")
    # Sorted: training depends on the order of modules, and mlgo-utils' is the file system's.
    names = sorted(str(path.relative_to(directory)) for path in directory.glob(f"**/*{suffix}") if path.is_file())
    if not names:
        raise UserError(f"{directory} holds no *{suffix} file", remedy)
    cut = len(suffix) if suffix == SAVED_MODULE_SUFFIX else 0
    objects: list[ObjectFile] = []
    for name in names:
        item = locate_object(str(directory), name[: len(name) - cut], base)
        if item is None:
            raise UserError(
                f"the object {directory / name} lies outside of {base}",
                "pass --obj-base-dir with a directory that holds all objects, or omit it",
            )
        objects.append(item)
    return objects
