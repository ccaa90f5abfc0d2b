"""Which programs to build under which rows of flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.inline_plan import PLAN_FILE
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import find_stock_clang
from components.core.projects.flags.builds import BuildSetup, Project, find_binutils
from components.core.projects.flags.compare import compare_flags
from components.core.projects.flags.rows import FlagRow, plan_rows, require_compilers
from components.core.projects.flags.types import CompilerOfRow, FlagsComparison
from components.platform.storage.cache import default_cache_dir


@dataclass(frozen=True)
class RowsRequest:
    """Programs and the rows under which they are built.

    Attributes:
        stock_clang: clang of the baseline; None for the installed one of the release clang's version.
        rows: names of rows; () for all.
        icf: kind of identical code folding of the rows that have it, one of ICF_KINDS.
        allowed: keys of ALLOWED: what the programs tolerate, so that rows which assume it are built, too.
        experimental: also the rows with passes that LLVM has off in its own pipelines.
        other_compilers: also the rows of other compilers that the user has.
    """

    projects: tuple[Project, ...]
    jobs: int
    stock_clang: Path | None = None
    rows: tuple[str, ...] = ()
    icf: str = "all"
    allowed: tuple[str, ...] = ()
    experimental: bool = False
    other_compilers: bool = False

    def check(self, release: Toolchain, compared: Sequence[CompilerOfRow] = ()) -> None:
        """Raise UserError if a row cannot be built, a tool is missing, or one of `compared` builds no row."""
        stock = find_stock_clang(release, self.stock_clang)
        plan = Path(PLAN_FILE) if "plan" in compared else None
        require_compilers(self._rows(release, stock, plan), compared)
        find_binutils(stock)

    def compare(
        self, release: Toolchain, work: Path, plan: Path | None = None, compilers: Sequence[CompilerOfRow] = ()
    ) -> FlagsComparison:
        """Build the programs in `work`, which is empty afterwards, by the compilers of every row, and compare them.

        Args:
            plan: file of an inlining plan: rows of single files are also built with it.
            compilers: only these; () for all of each row.

        Raises:
            UserError: a row cannot be built, a tool is missing, or no program was built under any row.
        """
        stock = find_stock_clang(release, self.stock_clang)
        rows = self._rows(release, stock, plan)
        if compilers:
            rows = [row for row in (each.by(compilers) for each in rows) if row.compilers]
        setup = BuildSetup(work, default_cache_dir(), self.jobs, find_binutils(stock))
        try:
            return compare_flags(self.projects, rows, stock, release, setup)
        finally:
            setup.clear()

    def _rows(self, release: Toolchain, stock: Path, plan: Path | None) -> list[FlagRow]:
        rows, others = self.rows, self.other_compilers
        return plan_rows(release, stock, rows, self.icf, self.allowed, plan, self.experimental, others)
