"""Lets a build that calls compilers by their absolute paths call others, which only its own processes find there.

Bubblewrap mounts them over the installed ones in a mount namespace, which static programs notice like any other; a
library in LD_PRELOAD would not reach those, and would meet fakeroot's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from components.core.projects.compiler_scripts import installed_names

WRAPPER = "with-compilers"
"""Script that runs a command with the compilers of its directory in place of the installed ones."""
_BWRAP = "bwrap"
_TIMEOUT_S = 30.0


def write_wrapper(directory: Path, path: str) -> str:
    """Write WRAPPER into a directory of compilers, see `write_tools`.

    Clang's own programs stay: the compilers of the directory run one of them.

    Args:
        path: the PATH whose compilers are replaced.

    Returns:
        Why it cannot be used here; "" if it can.
    """
    replaced: dict[Path, str] = {}
    for names, own in zip(installed_names(path), ("gcc", "g++"), strict=True):
        for name in names:
            for folder in path.split(os.pathsep):
                program = Path(folder, name)
                # A program of another name dispatches by it: ccache, or a wrapper of the user.
                if program.is_file() and _is_gcc(target := program.resolve()):
                    replaced[target] = own
    if not replaced:
        return "no gcc is in PATH"
    if shutil.which(_BWRAP) is None:
        return "bubblewrap is not installed"
    binds = [f'--ro-bind "$here/{script}" {shlex.quote(str(target))}' for target, script in sorted(replaced.items())]
    wrapper = directory / WRAPPER
    wrapper.write_text(
        f'#!/bin/sh\nhere=$(cd "${{0%/*}}" && pwd) || exit\nexec {_BWRAP} --dev-bind / / {" ".join(binds)} -- "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    done = subprocess.run([wrapper, "true"], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    return "" if done.returncode == 0 else f"bubblewrap: {done.stderr.strip()}"


def _is_gcc(target: Path) -> bool:
    names = {name for group in installed_names(str(target.parent)) for name in group}
    return target.name in names and "clang" not in target.name
