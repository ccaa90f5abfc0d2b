"""Links the objects of a program's modules without its build, so that inline functions, names, padding and tables count
as in files that users ship.

Each program and shared library that the build is known to link is one file. All other objects for shared libraries
become one library, all others one program. References to what is missing stay unresolved, and of definitions that
several programs have, such as main, all are kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.projects.flags.section_sizes import measure
from components.core.projects.flags.types import SectionSizes
from components.core.projects.response_files import write_response_file
from components.forecast.linked_files import Library, LinkedFile
from components.forecast.measure import MeasuredUnit, ObjectSizes
from components.forecast.units import Linkage
from components.platform.processes import supervision

_TIMEOUT_S = 300.0
_FLAGS = tuple(
    "--unresolved-symbols=ignore-all --noinhibit-exec -z muldefs --eh-frame-hdr --strip-all --build-id=none".split()
)
_KINDS: dict[Linkage, tuple[str, ...]] = {
    "shared library": ("-shared",),
    "program": ("-pie", "--no-dynamic-linker"),
    "program at fixed addresses": ("-no-pie",),
}
_NO_ENTRY = ("-e", "0")
_ENTRY = ("-e", "main")


Compiler = Literal["stock", "policy", "release"]
"""Which of the objects of a unit: the attributes of `MeasuredUnit`."""


class LinkFailure(Exception):
    """The objects cannot be linked; the message says why."""


@dataclass(frozen=True)
class Linker:
    """Links objects with an lld, in a scratch directory."""

    lld: Path
    scratch: Path

    def sizes(self, units: Sequence[MeasuredUnit], by: Compiler) -> SectionSizes:
        """Return the sizes of the objects of one of the compilers when they are linked together.

        Raises:
            LinkFailure: the linker fails.
        """
        total = SectionSizes()
        for linkage, flags in _KINDS.items():
            paths = [_object(one, by) for one in units if one.unit.linkage == linkage]
            if paths:
                total += self._link(paths, [*flags, *_NO_ENTRY])
        return total

    def file_sizes(self, file: LinkedFile, measured: Mapping[int, MeasuredUnit], by: Compiler) -> SectionSizes:
        """Return the sizes of a file of the build that is linked of the objects of one of the compilers.

        Args:
            file: with at least one of the measured units.
            measured: number of a unit -> its objects.

        Raises:
            LinkFailure: the linker fails.
        """
        fixed = any(
            number in measured and measured[number].unit.linkage == "program at fixed addresses"
            for number in file.units
        )
        kind: Linkage = "shared library" if file.shared else "program at fixed addresses" if fixed else "program"

        # The rest of the file does not change: next to a sample of its modules, it would hide the change of these.
        complete = file.units <= measured.keys()
        inputs: list[str | Path] = []
        for item in file.inputs:
            if isinstance(item, Path):
                inputs += [item] if complete else []
                continue
            numbers = item.units if isinstance(item, Library) else (item,)
            paths = [_object(measured[number], by) for number in numbers if number in measured]
            if not isinstance(item, Library):
                inputs += paths
                continue
            inputs += ["--start-lib", *paths, "--end-lib"]
            if item.path is not None and complete:
                inputs.append(item.path)  # of which lld takes only what the objects before do not define
        return self._link(inputs, [*_KINDS[kind], *(() if file.shared else _ENTRY), *file.options])

    def _link(self, inputs: Sequence[str | Path], flags: Sequence[str]) -> SectionSizes:
        with tempfile.TemporaryDirectory(prefix="link-", dir=self.scratch) as directory:
            output, arguments = Path(directory, "linked"), Path(directory, "linked.rsp")
            write_response_file(arguments, inputs)
            command = [str(self.lld), *_FLAGS, *flags, f"@{arguments}", "-o", str(output)]
            try:
                done = supervision.run(command, _TIMEOUT_S, cwd=self.scratch, writable=self.scratch)
            except supervision.ProcessTimeout:
                raise LinkFailure(f"it takes more than {_TIMEOUT_S:.0f} s") from None
            done.require_disk_space(self.scratch)
            if done.returncode != 0:
                raise LinkFailure(done.stderr.partition("\n")[0][:300] or f"status {done.returncode}")
            return measure(output).sizes


def _object(unit: MeasuredUnit, by: Compiler) -> Path:
    sizes: ObjectSizes = getattr(unit, by)
    return sizes.path
