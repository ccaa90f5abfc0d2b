"""What the user should know of a build that is delivered."""

from __future__ import annotations

import stat
from pathlib import Path

from components.platform.storage.manifest import list_names
from components.shrink.builds.build import BuiltFiles

_MAX_NAMES = 5
"""Files that a note names."""


def notes_on(own: BuiltFiles, delivered: BuiltFiles) -> list[str]:
    """Return what differs although the build is delivered."""
    notes = []
    lost, unique = own.weaker_exports(delivered)
    if lost:
        notes.append(
            f"shared libraries export {lost} weak symbols less, copies of inline functions and templates: build what "
            "links with them again"
        )
    if unique:
        notes.append(
            f"{unique} variables of inline functions are unique in a process by gcc only: plugins that are opened with "
            "RTLD_LOCAL get their own"
        )
    if gained := own.gained_exports(delivered):
        name = max(gained, key=lambda one: gained[one])
        notes.append(
            f"{name} exports {gained[name]} symbols more than by your own compilers, as if the build had its list of "
            "exports for gcc only: -fvisibility=hidden or a version script for clang, too, makes it smaller"
        )
    if gone := own.lost_libraries(delivered):
        notes.append(
            f"nothing uses {', '.join(gone)} any more: only unused code did, or the configure step does not find "
            "it by clang"
        )
    if undefined := sorted(own.definitions - delivered.definitions):
        notes.append(
            f"its configuration does not define {list_names(undefined, _MAX_NAMES)}, which that of your own build "
            "does: a check fails, or asks for the compiler's name"
        )
    if delivered is not own and (names := own.unchanged(delivered)):
        more = f" and {len(names) - _MAX_NAMES} more files" if len(names) > _MAX_NAMES else ""
        notes.append(
            f"{', '.join(names[:_MAX_NAMES])}{more} have the sizes that your own compilers give, which the build may "
            "call by their paths there: let it use $CC and $CXX"
        )
    if delivered.dropped:
        notes.append(f"built without {' '.join(delivered.dropped)}, which clang does not have")
    if delivered.unmoved:
        notes.append(f"{', '.join(delivered.unmoved)} search for libraries where the build ran: build them again")
    return [*notes, *delivered.differences.notes]


def note_privileges(files: Path) -> list[str]:
    """Return a note on files that run with the rights of their owner or group, which is another one where they are."""
    names = [
        str(path.relative_to(files))
        for path in sorted(files.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    return [f"{list_names(names)} {verb} set-user-ID or set-group-ID bits, for the owner that they have here"]
