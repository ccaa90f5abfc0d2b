"""A compiler launcher that keeps the build directory's path out of compiled objects.

CMake spells sources and include directories with absolute paths; clang records them in the bitcode (source_filename)
and in its command line, so the content hash of a module would depend on its build directory.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_SCRIPT = """#!/bin/sh
# Spells paths below the build directory, in which the compiler runs, relative to it.
root={root}/
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    "$root"*) argument=${{1#"$root"}} ;;
    -I"$root"*) argument=-I${{1#-I"$root"}} ;;
    *) argument=$1 ;;
  esac
  shift
  set -- "$@" "$argument"
  left=$((left - 1))
done
exec "$@"
"""


def write_launcher(build_dir: Path) -> Path:
    """Write the launcher for commands that run in `build_dir`; return its path for CMAKE_C_COMPILER_LAUNCHER."""
    launcher = build_dir / "relative-paths"
    launcher.write_text(_SCRIPT.format(root=shlex.quote(str(build_dir.absolute()))))
    launcher.chmod(0o755)
    return launcher.absolute()
