"""The links that the compilers of a build recorded.

A record is a file: number of the driver's arguments, directory that it ran in, name of the driver, arguments, each ends
with NUL; then the content of the last response file among the arguments.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from components.core.compiler.clang_programs import llvm_binutils
from components.core.formats.links import Link
from components.core.projects.build_links.driver import make_link
from components.core.projects.compiler_scripts import SCRIPT_DIRECTORY, fill_template, write_executable
from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes

_SCRIPT = Path(__file__).with_name("record-link")
LINKS = "links"
"""Name of the directory of the records, next to the compilers."""
_PREFIX = "link-"
_LINKER = "ld"
_RELOCATABLE = """\
# Relocatable links go through RECORDER, but for those of compilers, which have gone through it.
case "$MLGO_LINK $* " in
recorded*) ;;
*' -r '* | *' -i '* | *' --relocatable '*) exec RECORDER "$0" "$@" ;;
esac
exec PROGRAM "$@"
"""


def write_link_recorder(directory: Path, clang: Path) -> str:
    """Write the program that records links into a directory of compilers, and return how their scripts call it.

    An `ld` that records relocatable links is written, too, for builds that run it themselves.

    Args:
        clang: their clang, next to which its llvm-objcopy is.
    """
    (directory / LINKS).mkdir()
    objcopy = llvm_binutils(clang)["ar"].with_name("llvm-objcopy")
    script = directory / _SCRIPT.name
    script.write_text(_SCRIPT.read_text(encoding="utf-8").replace("OBJCOPY", shlex.quote(str(objcopy))))
    script.chmod(0o755)
    recorder = f"{SCRIPT_DIRECTORY}/{_SCRIPT.name}"
    # Not one that this function wrote into a directory of the PATH.
    directories = [path for path in os.get_exec_path() if not has_recorder(Path(path))]
    if linker := shutil.which(_LINKER, path=os.pathsep.join(directories)):
        text = fill_template(_RELOCATABLE, RECORDER=recorder, PROGRAM=shlex.quote(linker))
        write_executable(directory / _LINKER, text)
    return recorder


def has_recorder(compilers: Path) -> bool:
    """Return whether the compilers in a directory record the links of builds."""
    return (compilers / _SCRIPT.name).is_file()


def compilers_near(tree: Path) -> list[Path]:
    """Return the directories of compilers that record links in the current directory, in `tree`, and next to it.

    The last to record comes first: an earlier build of the tree may have used others.
    """
    places = dict.fromkeys(map(os.path.realpath, (Path(), tree, tree.parent)))
    found = {script.with_name(LINKS) for place in places for script in Path(place).glob(f"*/{_SCRIPT.name}")}
    records = sorted(filter(os.path.isdir, found), key=os.path.getmtime, reverse=True)
    return [directory.parent for directory in records]


def read_recorded(compilers: Path) -> list[Link]:
    """Return the last link of each file that exists, in the order of the build."""
    records = [(path.stat().st_mtime_ns, path) for path in (compilers / LINKS).glob(f"{_PREFIX}*")]
    last: dict[str, Link] = {}
    for written_ns, path in sorted(records):
        link = _read(path)
        # A link has failed if its file is not newer than its record.
        if link is not None and os.path.exists(link.output) and os.stat(link.output).st_mtime_ns >= written_ns:
            last.pop(link.output, None)
            last[link.output] = link
    return list(last.values())


def _read(record: Path) -> Link | None:
    """Return the link of a record; None if it is incomplete, because the build was killed, or not UTF-8."""
    content = read_bytes(record)
    number, _, rest = content.partition(b"\0")
    if not number.isdigit():
        return None
    *words, response = rest.split(b"\0", int(number) + 2)
    if len(words) != int(number) + 2:
        return None
    try:
        directory, driver, *arguments = (word.decode() for word in words)
        added = split_response_file(response, record) if response else None
    except (UnicodeDecodeError, UserError):
        return None
    return make_link(driver, arguments, directory, added)
