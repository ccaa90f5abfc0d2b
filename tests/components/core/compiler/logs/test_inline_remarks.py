"""The decisions in an optimization record; its names of functions are tested with the explanations of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.compiler.logs.inline_remarks import count_departures, read_inline_remarks


def remark(cost: int, threshold: int, inline: bool) -> str:
    return f"""--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
Function:        f
Args:
  - Callee:          'cost_estimate: 1'
  - threshold:       '{threshold}'
  - cost_estimate:   '{cost}'
  - ShouldInline:    '{str(inline).lower()}'
...
"""


MANDATORY = """--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
Function:        f
Args:
  - Callee:          g
...
"""


def test_departures_are_decisions_unlike_the_heuristics(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text(
        remark(-30, 5, True) + remark(5, 5, True) + MANDATORY + remark(5, 5, False) + remark(-65, -65 + 1, False)
    )
    assert count_departures(record) == (4, 2)
    assert len(read_inline_remarks(record)) == 4


def test_record_without_the_heuristics_fields_counts_nothing(tmp_path: Path) -> None:
    assert count_departures(tmp_path / "missing") == (0, 0)
    (tmp_path / "record").write_text(MANDATORY + "  - ShouldInline:    'true'\n")
    assert count_departures(tmp_path / "record") == (0, 0)


@pytest.mark.parametrize("content", ["[" * 100_000, "- " * 20_000, "a: &a [x]\nb: [*a, *a]\n"])
def test_deep_records_and_aliases_are_not_read(content: str, tmp_path: Path) -> None:
    """YAML's parser would end this process by a stack overflow."""
    (tmp_path / "record").write_text(content)
    assert read_inline_remarks(tmp_path / "record") == []
