"""The compilers of a build under one row of flags."""

from __future__ import annotations

import pytest

from components.core.projects.flags.builds import compiler_arguments
from components.platform.errors import UserError


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ("", []),
        ("gcc", []),
        ("ccache gcc-12 -std=gnu89 '-DTITLE=a row'", ["-std=gnu89", "-DTITLE=a row"]),
        ("env LANG=C /opt/bin/clang -m32", ["-m32"]),
        ("distcc", []),
    ],
)
def test_options_of_the_users_compiler_are_kept(
    monkeypatch: pytest.MonkeyPatch, value: str, arguments: list[str]
) -> None:
    monkeypatch.setenv("CC", value)
    assert [*compiler_arguments("CC")] == arguments


@pytest.mark.parametrize(
    ("value", "problem"), [("gcc '-DA", "cannot be read: No closing quotation"), ("-m32", "names no compiler")]
)
def test_value_that_is_no_command_of_a_compiler_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str, problem: str
) -> None:
    monkeypatch.setenv("CC", value)
    with pytest.raises(UserError, match=f"the environment variable CC {problem}"):
        compiler_arguments("CC")
