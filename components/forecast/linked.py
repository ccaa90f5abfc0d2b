"""Links the objects of a program's modules without its build, so that inline functions, names, padding and tables count
as in files that users ship.

All objects for shared libraries become one library, all others one program. References to what is missing stay
unresolved, and of definitions that several programs have, such as main, all are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.projects.flags.section_sizes import measure
from components.core.projects.flags.types import SectionSizes
from components.core.projects.response_files import write_response_file
from components.forecast.measure import MeasuredUnit, ObjectSizes
from components.forecast.units import Linkage
from components.platform.processes import supervision

_TIMEOUT_S = 300.0
_FLAGS = (
    "--unresolved-symbols=ignore-all",
    "--noinhibit-exec",
    "-z",
    "muldefs",
    "--eh-frame-hdr",
    "--strip-all",
    "--build-id=none",
)
_KINDS: dict[Linkage, tuple[str, ...]] = {
    "shared library": ("-shared",),
    "program": ("-pie", "--no-dynamic-linker", "-e", "0"),
    "program at fixed addresses": ("-no-pie", "-e", "0"),
}


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
        objects: list[ObjectSizes] = [getattr(one, by) for one in units]
        total = SectionSizes()
        for linkage, flags in _KINDS.items():
            paths = [sizes.path for one, sizes in zip(units, objects, strict=True) if one.unit.linkage == linkage]
            if paths:
                total += self._link(paths, flags)
        return total

    def _link(self, objects: Sequence[Path], flags: Sequence[str]) -> SectionSizes:
        output, arguments = self.scratch / "linked", self.scratch / "linked.rsp"
        write_response_file(arguments, objects)
        command = [str(self.lld), *_FLAGS, *flags, f"@{arguments}", "-o", str(output)]
        try:
            done = supervision.run(command, _TIMEOUT_S, cwd=self.scratch, writable=self.scratch)
        except supervision.ProcessTimeout:
            raise LinkFailure(f"it takes more than {_TIMEOUT_S:.0f} s") from None
        done.require_disk_space(self.scratch)
        if done.returncode != 0:
            raise LinkFailure(done.stderr.partition("\n")[0][:300] or f"status {done.returncode}")
        return measure(output).sizes
