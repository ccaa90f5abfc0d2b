"""Tests of cron expressions."""

from __future__ import annotations

import pytest

from components.platform.errors import UserError
from pipelines.submit.cron import parse_cron


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 3 * * 1", "0 0 3 * * 1"),
        ("30 0 3 * * MON", "30 0 3 * * MON"),
        (" 5/15  * * jan,Mar *", "0 5/15 * * jan,Mar *"),
    ],
)
def test_schedule_is_written_with_six_fields_for_kfp(text: str, expected: str) -> None:
    assert parse_cron(text).for_kfp() == expected


def test_time_zone_is_refused_for_kfp() -> None:
    with pytest.raises(UserError, match="KFP has no time zone") as error:
        parse_cron("TZ=Europe/Berlin 0 3 * * 1").for_kfp()
    assert "CRON_SCHEDULE_TIMEZONE" in error.value.remedy


@pytest.mark.parametrize(
    ("text", "named"), [("every monday", "2 fields"), ("@daily", "1 fields"), ("0 3 * *", "4 fields")]
)
def test_other_number_of_fields_is_refused(text: str, named: str) -> None:
    with pytest.raises(UserError) as error:
        parse_cron(text)
    assert named in error.value.problem
