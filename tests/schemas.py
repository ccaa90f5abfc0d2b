"""Check of documents against the fields that a published API has."""

from __future__ import annotations

from typing import Any


def check_fields(value: Any, kind: Any, messages: dict[str, dict[str, Any]], where: str = "") -> None:
    """Raise ValueError unless `value` fits a type: a Python type, [type], {str: type}, or the name of a message.

    Args:
        messages: type of each field that a client may set, by message.
        where: what `value` is, for the error.
    """
    named = f"{where}: " if where else ""
    if isinstance(kind, list):
        for item in value:
            check_fields(item, kind[0], messages, where)
    elif isinstance(kind, dict):
        for item in value.values():
            check_fields(item, kind[str], messages, where)
    elif isinstance(kind, type):
        if not isinstance(value, kind):
            raise ValueError(f"{named}{value!r} is no {kind.__name__}")
    else:
        for key, item in value.items():
            if key not in messages[kind]:
                raise ValueError(f"{named}{kind} has no field {key}")
            check_fields(item, messages[kind][key], messages, f"{where}.{key}" if where else key)
