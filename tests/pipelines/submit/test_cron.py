"""Tests of cron expressions; cronsim, an independent parser, says when they start runs."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from pipelines.submit.cron import parse_cron

BOUNDS = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
START = datetime(2026, 1, 1)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> str:
    def part() -> str:
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, max(1, high)))
        return draw(st.sampled_from([f"{first}", f"{first}-{last}", f"{first}-{last}/{step}"]))

    values = ",".join(part() for _ in range(draw(st.integers(1, 3))))
    return draw(st.sampled_from([values, "*", f"*/{draw(st.integers(1, max(1, high)))}"]))


def times(expression: str) -> list[datetime]:
    return list(islice(CronSim(expression, START), 4))


@given(st.tuples(*(fields(low, high) for low, high in BOUNDS)))
def test_conversions_keep_the_times_of_a_schedule(parts: tuple[str, ...]) -> None:
    expression = " ".join(parts)
    schedule = parse_cron(expression)
    assert times(schedule.for_vertex()) == times(expression)
    assert times(schedule.for_kfp()) == times(f"0 {expression}") == times(expression)
    assert parse_cron(schedule.for_kfp()) == schedule == parse_cron(schedule.for_vertex())


@given(st.text(alphabet="0123456789*/,-? jansunTZ=", max_size=30) | st.text(max_size=12))
def test_any_text_is_converted_or_refused(text: str) -> None:
    try:
        schedule = parse_cron(text)
    except UserError as error:
        assert "--cron" in error.problem and error.remedy
    else:
        assert times(" ".join(schedule.fields))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 3 * * 1", "0 0 3 * * 1"),
        ("30 0 3 * * MON", "30 0 3 * * 1"),
        ("0 0 9 ? * mon-fri", "0 0 9 * * 1-5"),
        ("5/15 * * jan,Mar *", "0 5-59/15 * * 1,3 *"),
    ],
)
def test_schedule_is_written_with_six_fields_for_kfp(text: str, expected: str) -> None:
    assert parse_cron(text).for_kfp() == expected


def test_time_zone_is_passed_to_vertex_and_refused_for_kfp() -> None:
    schedule = parse_cron("TZ=Europe/Berlin 0 3 * * 1")
    assert schedule.for_vertex() == "CRON_TZ=Europe/Berlin 0 3 * * 1"
    with pytest.raises(UserError, match="KFP has no time zone") as error:
        schedule.for_kfp()
    assert "CRON_SCHEDULE_TIMEZONE" in error.value.remedy


def test_seconds_are_refused_for_vertex() -> None:
    with pytest.raises(UserError, match="Vertex AI has no seconds, but the schedule's are '30'"):
        parse_cron("30 0 3 * * 1").for_vertex()
    assert parse_cron("0 0 3 * * 1").for_vertex() == "0 3 * * 1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("every monday", "2 fields"),
        ("@daily", "1 fields"),
        ("0 3 * *", "4 fields"),
        ("60 3 * * 1", "minute '60'"),
        ("0 3 * * 7", "Sunday is 0"),
        ("0 3 * * fri-mon", "ends before it begins"),
        ("0 3 L * *", "day of the month 'L'"),
        ("0 3 * * 5#2", "day of the week"),
        ("*/0 * * * *", "the step"),
        ("0 3 , * *", "''"),
        ("? 3 * * *", "minute"),
        ("0 3 1,*/2 * 1", "a list cannot contain *"),
        ("0 0 30 2 *", "matches no date"),
        ("0 0 31 4,6 *", "matches no date"),
        ("TZ=Mars 0 3 * * 1", "'Mars' is no time zone"),
    ],
)
def test_invalid_schedule_is_refused_with_reason(text: str, named: str) -> None:
    with pytest.raises(UserError) as error:
        parse_cron(text)
    assert named in error.value.problem
