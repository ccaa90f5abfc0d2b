"""Object files, or modules that lld saved, in a directory."""

from __future__ import annotations

from pathlib import Path

from components.corpus.sources.objects import ObjectFile, locate_object
from components.platform.errors import UserError

SAVED_MODULE_SUFFIX = ".3.import.bc"
"""Suffix that lld's --save-temps=import appends to an object's name, for the module after ThinLTO's imports."""
_REMEDIES = {
    ".o": "pass the build directory; its objects must end in .o",
    SAVED_MODULE_SUFFIX: "link with clang -flto=thin -fuse-ld=lld -Wl,--save-temps=import "
    "-Wl,--thinlto-emit-index-files",
}


def find_objects(directory: Path, base: Path | None = None, suffix: str = ".o") -> list[ObjectFile]:
    """Return the .o files below `directory`, named by their paths relative to it, or to `base`.

    Raises:
        UserError: there is none.
    """
    if not directory.is_dir():
        raise UserError(f"there is no directory {directory}", "pass the directory that holds the objects")
    # Sorted: training depends on the order of modules, and mlgo-utils' is the file system's.
    names = sorted(str(path.relative_to(directory)) for path in directory.glob(f"**/*{suffix}") if path.is_file())
    if not names:
        raise UserError(f"{directory} holds no *{suffix} file", _REMEDIES[suffix])
    objects: list[ObjectFile] = []
    for name in names:
        item = locate_object(str(directory), name.removesuffix(SAVED_MODULE_SUFFIX), base)
        if item is None:
            raise UserError(
                f"the object {directory / name} lies outside of {base}",
                "pass --obj-base-dir with a directory that holds all objects, or omit it",
            )
        objects.append(item)
    return objects
