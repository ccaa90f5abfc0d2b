"""A mapping read from YAML, whose every access checks the type and names the place in the error."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator
from typing import Any

from components.core.console import UserError

_REQUIRED = object()


def is_text(value: object) -> bool:
    """Whether a value is text that files and command lines can hold: no NUL, no lone surrogate, both of which YAML can
    spell."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def shorten(value: object) -> str:
    """A value for an error message: aliases in YAML can stand for more than a machine can print."""
    return f"{reprlib.repr(value):.60}"


class TypedMapping:
    """A mapping with string keys. `where` names it in errors ("demo.yaml: lz4: cmake")."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, dict) or not all(map(is_text, value)):
            raise UserError(f"{where}: expected keys and values, found {shorten(value)}", "see the recipes of the demo")
        self.value: dict[str, Any] = value

    def error(self, problem: str, remedy: str = "correct the recipe") -> UserError:
        return UserError(f"{self.where}: {problem}", remedy)

    def named(self, name: str) -> TypedMapping:
        """The same mapping, with `name` in its errors."""
        return TypedMapping(self.value, f"{self.where}: {name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def only(self, *known: str) -> None:
        """Refuse other keys than these."""
        for key in self.value:
            if key not in known:
                raise self.error(f"unknown key {key!r}", f"the keys are {', '.join(known)}")

    def _get(self, key: str, default: Any) -> Any:
        if key in self.value:
            return self.value[key]
        if default is _REQUIRED:
            raise self.error(f"{key} is missing")
        return default

    def string(self, key: str, default: Any = _REQUIRED) -> str:
        value = self._get(key, default)
        if not is_text(value) or not value:
            raise self.error(f"{key} must be text, found {shorten(value)}")
        return str(value)

    def scalar(self, key: str) -> str:
        """Text, a number or a truth value, as CMake spells it."""
        value = self._get(key, _REQUIRED)
        if isinstance(value, bool):
            return "ON" if value else "OFF"
        finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if not (finite or is_text(value)):
            raise self.error(f"{key} must be one value, found {shorten(value)}")
        return str(value)

    def integer(self, key: str, least: int, most: int, default: Any = _REQUIRED) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(f"{key} must be a whole number from {least} to {most}, found {shorten(value)}")
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A finite number within the bounds."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(f"{key} must be a number from {least:g} to {most:g}, found {shorten(value)}")
        return float(value)

    def truth(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, found {shorten(value)}")
        return value

    def mapping(self, key: str, default: Any = _REQUIRED) -> TypedMapping:
        return TypedMapping(self._get(key, default), f"{self.where}: {key}")

    def items(self, key: str) -> list[Any]:
        value = self._get(key, [])
        if not isinstance(value, list):
            raise self.error(f"{key} must be a list, found {shorten(value)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        values = self.items(key)
        if not all(map(is_text, values)):
            raise self.error(f"{key} must be a list of texts, found {shorten(values)}")
        return tuple(values)
