"""The processors that a build is for: the user's cross compilers, whether clang has them, and how programs run here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.objects.elf import Elf
from components.core.formats.toolchain import Toolchain
from components.core.projects.cross_compilers import CrossCompiler, machine_name, name_cross_compilers, native_machine
from components.platform.errors import UserError
from components.platform.processes.output import capture

_X86_64, _I386 = 62, 3
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_TIMEOUT_S = 120.0
_NO_TARGET = ("unable to create target", "unknown target triple", "No available targets", "unknown target CPU")
_PROGRAM = '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'


@dataclass(frozen=True)
class Target:
    """What the compilers of a build compile for.

    Attributes:
        cross: the user's compilers for other processors, which clang stands in for.
        native: whether it stands in for native compilers, too. Otherwise these make tools of the build, as they did.
        known: all cross compilers that the user has.
        processor: another processor that a clang of the user compiles for under its own name; "" if there is none.
    """

    cross: tuple[CrossCompiler, ...] = ()
    native: bool = True
    known: tuple[CrossCompiler, ...] = ()
    processor: str = ""

    @property
    def machines(self) -> frozenset[int]:
        """Instruction sets of the files that count, if there are such files; all if empty."""
        return frozenset() if self.native else frozenset(one.machine for one in self.cross)


NATIVE = Target()
"""What builds are for that name nothing else."""


def named_target(found: Sequence[CrossCompiler], command: str) -> Target:
    """Return the target of a build that names a cross compiler in its command or environment, else of a native one."""
    named = tuple(name_cross_compilers(found, command))
    return Target(named, native=not named, known=tuple(found))


def target_of(named: Target, files: dict[str, int | None], by_clang: bool) -> Target:
    """Return the target of a build by what the user's own compilers linked.

    Args:
        named: what the build names.
        files: instruction sets by the names of the linked files; None for static libraries.
        by_clang: whether they have code of clang, which may compile for each processor under its own name.

    Raises:
        UserError: all are for another processor, and its compiler is not known.
    """
    machines = {machine: name for name, machine in files.items() if machine is not None}
    if not machines or named.machines & machines.keys():
        return named
    native = native_machine()
    foreign = {machine: name for machine, name in machines.items() if not _runs_here(machine)}
    cross = tuple(one for one in named.known if one.machine in foreign)
    if not foreign:
        return Target(known=named.known)
    machine, name = next(iter(foreign.items()))
    if native in machines or cross:
        return Target(cross, native=native in machines or by_clang, known=named.known)
    if by_clang:
        return Target(known=named.known, processor=machine_name(machine))
    raise UserError(
        f"{name} is for another processor, {machine_name(machine)}, and PATH has no gcc for it and Linux",
        "put the directory of the cross compiler into PATH, or name the compiler in CC",
    )


def require_target(release: Toolchain, target: Target) -> None:
    """Raise UserError if the release clang cannot compile and link a program as one of the cross compilers does."""
    if target.processor:
        done = capture([release.clang, "-print-targets"], _TIMEOUT_S)
        if target.processor not in done.stdout.split():
            raise _no_target(release, target.processor)
    failures = [_failure(release, one) for one in target.cross]
    if failures and all(failures):
        raise next(failure for failure in failures if failure is not None)


def _no_target(release: Toolchain, name: str) -> UserError:
    return UserError(
        f"the release clang in {release.directory} does not compile for {name}",
        "build one that does, mlgo toolchain --mode release --policy pretrained --targets all --output CLANG, and pass "
        "it: --release-toolchain CLANG",
    )


def _failure(release: Toolchain, compiler: CrossCompiler) -> UserError | None:
    with tempfile.TemporaryDirectory(prefix="mlgo-target-") as directory:
        (Path(directory) / "program.c").write_text(_PROGRAM)
        options = [*compiler.clang_options, "-Oz", "-flto", "-fuse-ld=lld", "program.c", "-o", "program"]
        done = capture([release.clang, *options], _TIMEOUT_S, cwd=directory)
    if done.returncode == 0:
        return None
    if any(text in done.stderr for text in _NO_TARGET):
        return _no_target(release, compiler.triple)
    lines = done.stderr.splitlines()
    why = next((line for line in lines if "error" in line), lines[0] if lines else "it fails")
    return UserError(
        f"the release clang cannot link a program for {compiler.triple} as {compiler.gcc} does: {why}",
        f"install the C library for {compiler.triple}",
    )


def _runs_here(machine: int) -> bool:
    return machine == native_machine() or (machine, native_machine()) == (_I386, _X86_64)


def emulator(path: Path, known: Sequence[CrossCompiler]) -> tuple[str, ...]:
    """Return the command, without the program, that runs a program of another processor; () if it runs by itself.

    Raises:
        UserError: there is none.
    """
    elf = Elf(memoryview(path.read_bytes()))
    interpreter = os.fsdecode(bytes(elf.section(".interp") or b"").rstrip(b"\0"))
    compilers = [one for one in known if one.machine == elf.machine]
    roots = [(one, one.library_root(interpreter)) for one in compilers] if interpreter else []
    processor, root = next(
        ((one.processor, root) for one, root in roots if root),
        (next((one.processor for one in compilers), machine_name(elf.machine)), ""),
    )
    if elf.machine == native_machine() or (_runs_here(elf.machine) and not root):
        return ()
    qemu = next(
        (found for name in (f"qemu-{processor}-static", f"qemu-{processor}") if (found := shutil.which(name))), ""
    )
    if not qemu:
        raise UserError(f"the programs are for {processor}", "install qemu-user-static, or name a check by --check")
    if interpreter and not root:
        raise UserError(f"the programs are for {processor}, whose libraries are not known", "name a check by --check")
    return (qemu, "-L", root) if root else (qemu,)


def is_registered(command: Sequence[str]) -> bool:
    """Return whether the kernel runs programs by an emulator, so that tests of a build run them, too."""
    name = os.path.basename(command[0]).removesuffix("-static")
    return (_BINFMT / name).exists()
