"""Finds the user's gccs for other processors, and the options by which a clang compiles and links as they do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from components.core.projects.compiler_command import NotACompileError, compiler_of
from components.platform.processes.output import read_output

_GCC = re.compile(r"(?P<prefix>.+-)gcc(?:-[\d.]+)?")
_COMPILER_VARIABLES = ("CC", "CXX", "CPP")
_TOOL_VARIABLES = ("AR", "NM", "RANLIB", "STRIP", "LD")
PREFIX_VARIABLE = "CROSS_COMPILE"
"""Environment variable with the start of the names of the compilers of Linux, U-Boot, BusyBox and others."""
VARIABLES = (*_COMPILER_VARIABLES, *_TOOL_VARIABLES, PREFIX_VARIABLE)
"""Environment variables that name programs of a cross compiler."""
_TIMEOUT_S = 30.0
_MACHINES = (
    ("x86_64|amd64", 62, "x86_64"),
    ("i[3-6]86", 3, "i386"),
    ("aarch64|arm64", 183, "aarch64"),
    ("arm(?!.*b$|64).*", 40, "arm"),
    ("riscv64.*", 243, "riscv64"),
    ("riscv32.*", 243, "riscv32"),
    ("powerpc64le|ppc64le", 21, "ppc64le"),
    ("powerpc64|ppc64", 21, "ppc64"),
    ("powerpc|ppc", 20, "ppc"),
    ("s390x", 22, "s390x"),
    ("loongarch64", 258, "loongarch64"),
    ("mips(?:isa32)?(?:r\\d)?el", 8, "mipsel"),
    ("mips(?:isa32)?(?:r\\d)?", 8, "mips"),
    ("mips(?:isa)?64(?:r\\d)?el", 8, "mips64el"),
    ("mips(?:isa)?64(?:r\\d)?", 8, "mips64"),
)
"""First component of a triple, e_machine of ELF, name of QEMU."""
_ARM_MACHINE = "arm"
_TARGET_OPTION = re.compile(r"^[ \t]*(-m[\w-]+=)[ \t]+(\S+)$|^[ \t]*(-mthumb)[ \t]+\[enabled\]$", re.MULTILINE)
_COPIED = {"riscv64": ("-march=", "-mabi="), "riscv32": ("-march=", "-mabi=")}
"""Defaults of gcc that determine which instructions and calling convention clang may use."""
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class CrossCompiler:
    """A gcc for another processor.

    Attributes:
        prefix: start of the names of its programs, such as "aarch64-linux-gnu-".
    """

    prefix: str
    gcc: Path
    triple: str

    @property
    def machine(self) -> int:
        """Instruction set of what it links (e_machine of ELF); 0 if that is unknown."""
        return _of_triple(self.triple)[0]

    @property
    def processor(self) -> str:
        """Name of the processor, as QEMU has it; "" if that is unknown."""
        return _of_triple(self.triple)[1]

    @cached_property
    def clang_options(self) -> tuple[str, ...]:
        """Options of a clang, before those of a command, which compile for the same processors and find the headers
        and libraries of this gcc."""
        target, defaults = self._target()
        install = os.path.dirname(os.path.realpath(self.ask("-print-libgcc-file-name")))
        sysroot = self.ask("-print-sysroot")
        places = [f"--gcc-install-dir={install}"]
        if sysroot and os.path.realpath(sysroot) != os.sep:
            places.append(f"--sysroot={os.path.realpath(sysroot)}")
        return (f"--target={target}", *places, *defaults)

    def library_root(self, interpreter: str) -> str:
        """Return the directory in which a loader, such as /lib/ld-linux-aarch64.so.1, and the libraries are; "" if they
        are unknown."""
        place = os.path.abspath(self.ask(f"-print-file-name={os.path.basename(interpreter)}"))
        for name in (interpreter, *(f"/{folder}/{os.path.basename(interpreter)}" for folder in ("lib64", "lib"))):
            if place.endswith(name) and os.path.isfile(place):
                return place.removesuffix(name) or os.sep
        return ""

    def _target(self) -> tuple[str, list[str]]:
        """Return clang's target, and the options that make its defaults those of gcc."""
        printed = _TARGET_OPTION.findall(self.ask("-Q", "--help=target"))
        options = {name or thumb: value for name, value, thumb in printed}
        if self.processor != _ARM_MACHINE:
            names = _COPIED.get(self.processor, ())
            return self.triple, [name + options[name] for name in names if options.get(name)]
        # As a part of the target the architecture does not conflict with -mcpu of a command.
        architecture = options.get("-march=", "").partition("+")[0].replace("-", "")
        _, dash, rest = self.triple.partition("-")
        target = f"{architecture}{dash}{rest}" if architecture.startswith("arm") else self.triple
        defaults = ["-mthumb"] if "-mthumb" in options else []
        if options.get("-mfloat-abi=") != "soft":
            defaults.append(f"-mfpu={self._arm_fpu(options.get('-mfpu=', 'auto'))}")
        return target, defaults

    def _arm_fpu(self, fpu: str) -> str:
        """Return the floating-point unit that gcc compiles for, "auto" being that of its architecture."""
        if fpu != "auto":
            return fpu
        macros = frozenset(_MACRO.findall(self.ask("-dM", "-E", "-x", "c", os.devnull)))
        fused, neon = "__ARM_FEATURE_FMA" in macros, "__ARM_NEON" in macros
        if "__ARM_FEATURE_NUMERIC_MAXMIN" in macros:
            return "neon-fp-armv8" if neon else "fp-armv8"
        if neon:
            return "neon-vfpv4" if fused else "neon"
        return "vfpv4-d16" if fused else "vfpv3-d16" if "__ARM_ARCH_7A__" in macros else "vfpv2"

    def ask(self, *options: str) -> str:
        """Return what the compiler prints, "" if it fails."""
        return _output([str(self.gcc), *options])


def find_cross_compilers(path: str) -> list[CrossCompiler]:
    """Return the gccs for other processors with Linux that are in the directories of a PATH, each by the name without a
    version if there is one."""
    found: dict[str, CrossCompiler] = {}
    for directory in path.split(os.pathsep):
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(directory))
        for name in names:
            match = _GCC.fullmatch(name)
            if match is None or match["prefix"] in found:
                continue
            triple = match["prefix"][:-1]
            if "-" in triple and is_native(triple):
                continue
            gcc = shutil.which(name, path=path)
            triple = _output([gcc, "-dumpmachine"]) if gcc else ""
            if gcc and "linux" in triple and _of_triple(triple)[0] and not is_native(triple):
                found[match["prefix"]] = CrossCompiler(match["prefix"], Path(gcc), triple)
    return list(found.values())


def search_path() -> str:
    """Return PATH with the directories of compilers that the environment names by their paths."""
    directories = [os.path.dirname(word) for _, word in _named_programs() if os.path.isabs(word)]
    return os.pathsep.join(dict.fromkeys([os.environ.get("PATH", os.defpath), *directories]))


def name_cross_compilers(found: Sequence[CrossCompiler], command: str) -> list[CrossCompiler]:
    """Return those of the cross compilers that a build's command or the environment name, by a program or a triple."""
    texts = [os.environ.get(name, "") for name in VARIABLES]
    return [
        one
        for one in found
        if any(re.search(rf"(?<![\w.-]){re.escape(one.prefix[:-1])}(?![\w.])", text) for text in (command, *texts))
    ]


def variables_for(directory: Path | None, found: Sequence[CrossCompiler]) -> dict[str, str]:
    """Return the user's environment variables that name programs of cross compilers, with those of a directory in their
    places, as far as it has them; without a directory they have no paths."""
    variables = {}
    for name, word in _named_programs():
        base = os.path.basename(word)
        if name == PREFIX_VARIABLE:
            if any(base == one.prefix for one in found):
                variables[name] = base  # the directory is first in PATH
        elif any(base.startswith(one.prefix) for one in found):
            words = shlex.split(os.environ[name])
            program = base if directory is None else str(directory / base)
            if directory is None or os.path.isfile(program):
                variables[name] = shlex.join([program, *words[words.index(word) + 1 :]])
    return variables


def _named_programs() -> Iterator[tuple[str, str]]:
    """Yield the variables of the environment that name a program, with its word."""
    for name in VARIABLES:
        with suppress(ValueError, NotACompileError):
            words = shlex.split(os.environ.get(name, ""))
            if words:
                yield name, compiler_of(words)[0] if name in _COMPILER_VARIABLES else words[0]


def is_native(triple: str) -> bool:
    """Return whether programs for a target run on this machine."""
    return _of_triple(triple)[1] == _of_triple(os.uname().machine)[1]


def native_machine() -> int:
    """Return the instruction set of this machine (e_machine of ELF); 0 if that is unknown."""
    return _of_triple(os.uname().machine)[0]


def machine_name(machine: int) -> str:
    """Return the name of an instruction set (e_machine of ELF)."""
    return next((name for _, number, name in _MACHINES if number == machine), f"e_machine {machine}")


def _of_triple(triple: str) -> tuple[int, str]:
    first = triple.partition("-")[0]
    return next(((number, name) for names, number, name in _MACHINES if re.fullmatch(names, first)), (0, ""))


def _output(command: list[str]) -> str:
    return read_output(command, _TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}).strip()
