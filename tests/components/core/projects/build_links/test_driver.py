"""Links as a driver's arguments say them."""

from __future__ import annotations

import pytest

from components.core.projects.build_links.driver import lto_of


@pytest.mark.parametrize(
    ("words", "lto"),
    [
        ((), None),
        (("-flto",), "full"),
        (("-flto=auto",), "full"),
        (("-flto=thin", "-O2"), "thin"),
        (("-flto=thin", "-flto"), "full"),
        (("-flto", "-fno-lto"), None),
        (("-fno-lto", "-flto=thin"), "thin"),
    ],
)
def test_last_option_of_lto_counts(words: tuple[str, ...], lto: str | None) -> None:
    assert lto_of(words) == lto
