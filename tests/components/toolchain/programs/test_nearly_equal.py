"""A sample of the campaign (tests/campaign): nearly equal functions print by every row what they print at -O0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.build import Builder, write_program
from tests.campaign.generate import generate, kinds_of_concepts
from tests.campaign.rows import select_rows
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

ROWS = "Oz-fold,lto,lto-policy-everywhere,thin"


@pytest.mark.parametrize("concept", kinds_of_concepts())
def test_nearly_equal_functions_print_what_they_print_at_o0(toolchain: Path, tmp_path: Path, concept: str) -> None:
    program = generate(1, kinds_of_concepts()[concept])
    write_program(program, tmp_path / "program")
    builder = Builder(program, toolchain / "bin", tmp_path / "program")
    assert builder.check(select_rows(ROWS))[1] == []
