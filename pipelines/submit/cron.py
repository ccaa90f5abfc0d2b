"""Cron expressions of schedules; the server itself says what is wrong with a field.

KFP reads six fields, seconds first, with github.com/robfig/cron v1.2.0 (`Parse`): five fields that begin with the
minute are valid there and mean something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.platform.errors import UserError

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")


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


def parse_cron(text: str) -> CronSchedule:
    """Return the schedule in a cron expression of five fields, or of six with the seconds first.

    Args:
        text: may begin with `CRON_TZ=ZONE` or `TZ=ZONE`.

    Raises:
        UserError: it has another number of fields.
    """
    zoned = _ZONE.fullmatch(text.strip())
    zone, expression = (zoned[1], zoned[2]) if zoned else ("", text)
    fields = expression.split()
    if len(fields) not in (5, 6):
        raise UserError(
            f"--cron {text!r} has {len(fields)} fields, not 5 or 6",
            'for example --cron "0 3 * * 1", every Monday at 3:00',
        )
    return CronSchedule(tuple(fields if len(fields) == 6 else ["0", *fields]), zone)
