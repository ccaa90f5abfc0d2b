"""policy.so: the generated C++ policy as the training clang loads it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from components.core.policy.generated.codegen import POLICY_SOURCE, SHARED_MACRO
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.storage.output_files import require_room

SHARED_OBJECT = "policy.so"
COMPILE_TIMEOUT_S = 120.0

COMPILE_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    # Makes sqrt one instruction, without a call of libm that would only set errno.
    "-fno-math-errno",
    "-fno-asynchronous-unwind-tables",
)
"""Flags to compile policy.cpp with, for the shared object and for a release clang."""


def build_shared_object(policy_cpp_dir: Path, clang: Path) -> Path:
    """Compile policy.cpp of a directory into policy.so in the same directory. UserError if that fails."""
    flags = [f"-D{SHARED_MACRO}", "-nostdlib"]
    return link_shared_object(policy_cpp_dir / SHARED_OBJECT, policy_cpp_dir / POLICY_SOURCE, clang, flags)


def link_shared_object(
    output: Path, source: Path, clang: Path, flags: Sequence[str], link_inputs: Sequence[str] = ()
) -> Path:
    """Compile a C++ source and link it into a shared object; `output` is replaced atomically.

    Args:
        clang: a clang (of a toolchain artifact, or any other). lld next to it or on the PATH is preferred to ld
            because it is faster.
        link_inputs: objects, archives and -l options to link with.

    UserError if there is no linker, or if the compiler fails (with the end of its stderr).
    """
    partial = output.with_name(f".{output.name}.partial-{secrets.token_hex(4)}")
    command = [
        str(clang),
        "-x",
        "c++",
        *COMPILE_FLAGS,
        *flags,
        "-shared",
        f"--ld-path={find_linker(clang)}",
        "-Wl,-s",
        str(source),
        "-x",
        "none",
        *link_inputs,
        "-o",
        str(partial),
    ]
    try:
        result = supervision.run(command, COMPILE_TIMEOUT_S)
        if result.returncode != 0:
            require_room(result.stderr, output)
            raise UserError(
                f"{clang} could not compile {source} (status {result.returncode}):\n{result.stderr[-2000:]}",
                "check that this clang runs, and that the policy directory is complete",
            )
        os.replace(partial, output)
    except supervision.ProcessTimeout:
        raise UserError(
            f"{clang} took more than {COMPILE_TIMEOUT_S:.0f} s for {source}", "check the machine's load"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return output


def find_linker(clang: Path) -> Path:
    """Return an ELF linker: lld next to `clang`, else lld or lld 19 on the PATH, else ld. UserError if none exists."""
    bundled = Path(clang).resolve().parent / "ld.lld"
    if bundled.is_file():
        return bundled
    for name in ("ld.lld", "ld.lld-19", "ld"):
        if path := shutil.which(name):
            return Path(path)
    raise UserError("no linker found: neither ld.lld nor ld is on the PATH", "apt-get install lld-19 (or binutils)")
