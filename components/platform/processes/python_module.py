"""Starts modules of this project in new processes. As a program, runs one: `python -P python_module.py MODULE ARG...`.

An installed wheel has this project's folders inside of a package (pipelines/installed), where `python -m` does
not look. PYTHONPATH would reach all descendants of the new process, such as the Python programs of a user's build, and
hide their modules; a program that extends its own sys.path does not. Imports nothing of this project.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The directory that holds this project's packages: a clone, or a folder in site-packages."""


def module_command(module: str, python: str | Path = "", options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a module of this project like `python -P -m MODULE`, from this installation's code.

    Args:
        module: such as "components.toolchain".
        python: the interpreter; "": that of this process.
        options: further options of the interpreter.
    """
    # -P: do not import a folder of the working directory that has the name of one of our modules.
    return [str(python or sys.executable), "-P", *options, __file__, module]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    del sys.argv[0]  # run_module replaces the next one, the module's name, by its file
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
