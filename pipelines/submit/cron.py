"""Cron expressions of schedules: check them before anything is sent, and write them as each server reads them.

KFP reads six fields, seconds first, with github.com/robfig/cron v1.2.0 (`Parse`): five fields that begin with the
minute are valid there and mean something else. Vertex AI reads five fields and a time zone. A field is a list of `*`,
numbers, names, ranges and steps: the subset that both servers and crontab(5) read alike.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass

from components.platform.errors import UserError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EXAMPLE = 'for example --cron "0 3 * * 1", every Monday at 3:00'
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_PART = re.compile(r"(\*|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/([0-9]+))?")


@dataclass(frozen=True)
class _Field:
    """The range of one field of a cron expression, and the names of its values from `first` on."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    def normalized(self, text: str) -> str:
        """Return the field with numbers for names, and with the end of each range. ValueError if it is invalid."""
        parts = text.lower().split(",")
        if len(parts) > 1 and any(part.startswith("*") for part in parts):
            # Parsers disagree whether a day field with such a list restricts the days.
            raise ValueError("a list cannot contain *")
        return ",".join(self._part(part) for part in parts)

    def values(self, normalized: str) -> set[int]:
        """Return the values that a field from `normalized` matches."""
        found: set[int] = set()
        for part in normalized.split(","):
            span, _slash, step = part.partition("/")
            low, _dash, high = (f"{self.first}-{self.last}" if span == "*" else span).partition("-")
            found.update(range(int(low), int(high or low) + 1, int(step or 1)))
        return found

    def _part(self, part: str) -> str:
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no number, range or step")
        span, step = match[1], match[2]
        if step is not None and not 1 <= int(step) <= self.last:
            raise ValueError(f"the step of {part!r} is not between 1 and {self.last}")
        if span == "*":
            return part
        low, dash, high = span.partition("-")
        start = self._number(low)
        # "5/15" means "5-59/15".
        end = self._number(high) if dash else self.last if step is not None else start
        if end < start:
            raise ValueError(f"{part!r} ends before it begins")
        return (f"{start}-{end}" if dash or step is not None else f"{start}") + (f"/{step}" if step is not None else "")

    def _number(self, text: str) -> int:
        if text in self.names:
            return self.first + self.names.index(text)
        if not text.isascii() or not text.isdigit() or not self.first <= int(text) <= self.last:
            hint = ", and Sunday is 0" if self.names == _DAYS and text == "7" else ""
            raise ValueError(f"{text!r} is not between {self.first} and {self.last}{hint}")
        return int(text)


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _DAYS),
)


@dataclass(frozen=True)
class CronSchedule:
    """When a schedule starts runs.

    Attributes:
        fields: second, minute, hour, day of the month, month, day of the week.
        zone: IANA time zone; empty for the server's.
    """

    fields: tuple[str, ...]
    zone: str = ""

    def for_kfp(self) -> str:
        """Return the six fields that KFP reads. UserError if the schedule has a time zone, which KFP cannot have."""
        if self.zone:
            raise UserError(
                f"--cron: KFP has no time zone for a schedule ({self.zone})",
                "leave it out: all schedules use the server's, which its administrator sets (CRON_SCHEDULE_TIMEZONE)",
            )
        return " ".join(self.fields)

    def for_vertex(self) -> str:
        """Return the five fields and the time zone that Vertex AI reads. UserError if the seconds are not 0."""
        seconds, *fields = self.fields
        if seconds != "0":
            raise UserError(
                f"--cron: Vertex AI has no seconds, but the schedule's are {seconds!r}",
                f"pass five fields, the first of which is the minute: {' '.join(fields)!r}",
            )
        return " ".join([*([f"CRON_TZ={self.zone}"] if self.zone else []), *fields])


def parse_cron(text: str) -> CronSchedule:
    """Return the schedule in a cron expression of five fields, or of six with the seconds first.

    Args:
        text: may begin with `CRON_TZ=ZONE` or `TZ=ZONE`.

    Raises:
        UserError: it is no cron expression, or no date matches it.
    """
    zoned = _ZONE.fullmatch(text.strip())
    zone, expression = (zoned[1], zoned[2]) if zoned else ("", text)
    if zone and zone not in zoneinfo.available_timezones():
        raise UserError(f"--cron: {zone!r} is no time zone", "for example CRON_TZ=Europe/Berlin")
    fields = expression.split()
    if len(fields) not in (5, 6):
        raise UserError(f"--cron {text!r} has {len(fields)} fields, not 5 or 6", _EXAMPLE)
    if len(fields) == 5:
        fields = ["0", *fields]
    normalized = []
    for field, value in zip(_FIELDS, fields, strict=True):
        value = "*" if value == "?" and field.name.startswith("day") else value
        try:
            normalized.append(field.normalized(value))
        except ValueError as error:
            raise UserError(f"--cron {text!r}: {field.name} {value!r}: {error}", _EXAMPLE) from None
    if not _matches_a_date(normalized):
        raise UserError(f"--cron {text!r} matches no date", _EXAMPLE)
    return CronSchedule(tuple(normalized), zone)


def _matches_a_date(fields: list[str]) -> bool:
    """Return whether some month has one of the days. A day of the week is an alternative to the day of the month."""
    days, months, weekdays = fields[3:]
    if "*" not in weekdays:
        return True
    earliest = min(_FIELDS[3].values(days))
    return any(earliest <= _LONGEST_MONTH[month - 1] for month in _FIELDS[4].values(months))
