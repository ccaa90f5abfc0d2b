"""What all tests share: slow ones last, so that a defect that a quick test finds is told first."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests, then slow ones, then those of the whole chain; the order within each stays."""
    items.sort(key=lambda item: 2 if "end_to_end" in item.path.parts else 1 if item.get_closest_marker("slow") else 0)
