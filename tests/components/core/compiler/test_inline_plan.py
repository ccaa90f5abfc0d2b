"""Tests the file of an inline plan by parsing it as documented."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import (
    Choice,
    PlannedModule,
    add_choices,
    read_choices,
    require_plan,
    write_plan,
)
from components.platform.errors import UserError

MODULES = st.lists(
    st.builds(
        PlannedModule,
        st.text(min_size=1),
        st.dictionaries(
            st.tuples(st.text("abc", min_size=1), st.text("abc", min_size=1), st.integers(0, 9)), st.integers(0, 1)
        ).map(ForcedDecisions.of),
    ),
    max_size=5,
)


def md5(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode("utf-8", "surrogateescape")).digest()[:8], "little")


@given(MODULES)
def test_index_locates_the_decisions_of_each_module(modules: list[PlannedModule]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan"
        write_plan(path, modules, 19)
        data = path.read_bytes()
    line, rest = data.split(b"\n", 1)
    header = json.loads(line)
    index_bytes = rest[: 40 * len(modules)]
    assert header == {
        "version": 1,
        "problem": "inlining",
        "llvm_major": 19,
        "modules": len(modules),
        "crc": zlib.crc32(index_bytes),
    }
    end = len(line) + 1 + len(index_bytes)
    for module, entry in zip(modules, np.frombuffer(index_bytes, "<u8").reshape(-1, 5).tolist(), strict=True):
        source, file, offset, size, crc = entry
        assert (source, file) == (md5(module.source), md5(module.source.rsplit("/", 1)[-1]))
        content = data[offset : offset + size]
        assert content == module.decisions.sorted().content("inlining") and zlib.crc32(content) == crc
        assert offset == end
        end += size
    assert end == len(data)


CHOICES = st.lists(
    st.builds(Choice, st.text("0123456789abcdef", min_size=32, max_size=32), st.text(min_size=1), st.text())
)


@given(MODULES, CHOICES, CHOICES)
def test_choices_are_added_behind_the_decisions(
    modules: list[PlannedModule], first: list[Choice], second: list[Choice]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan"
        write_plan(path, modules, 19)
        before = path.read_bytes()
        add_choices(path, first, path)
        expected = {choice.digest: choice for choice in [*first, *second]}
        assert add_choices(path, second, path) == len(expected)
        line, rest = path.read_bytes().split(b"\n", 1)
        line_before, rest_before = before.split(b"\n", 1)
        header = json.loads(line)
        section = rest[len(rest_before) :]
        # A reader that does not know choices finds the fields and the decisions where they were.
        assert len(line) == len(line_before) and rest.startswith(rest_before)
        assert list(header.items()) == [*json.loads(line_before).items(), ("choices", zlib.crc32(section))]
        Path(directory, "choices").write_bytes(section)
        assert {choice.digest: choice for choice in read_choices(Path(directory, "choices"))} == expected


@pytest.mark.parametrize("line", ["{", "[]", '{"digest": "12", "variant": "policy", "name": ""}', "3", "[" * 100_000])
def test_file_without_choices_is_refused(tmp_path: Path, line: str) -> None:
    good = json.dumps({"digest": "0" * 32, "variant": "policy", "name": "a"})
    (tmp_path / "choices").write_text(f"{good}\n{line}\n")
    with pytest.raises(UserError, match="line 2"):
        read_choices(tmp_path / "choices")
    with pytest.raises(UserError, match=r"cannot read .*none"):
        read_choices(tmp_path / "none")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:60],
        lambda data: data[:-1],
        lambda _: b"",
        lambda _: b"3\n",
        lambda _: b"[" * 100_000 + b"\n",
        lambda data: data.replace(b'"modules": 1', b'"modules": -1'),
        lambda data: data.replace(b'"modules": 1', b'"modules": %d' % 10**30),
    ],
)
def test_choices_are_not_added_to_a_damaged_plan(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    plan = tmp_path / "plan"
    write_plan(plan, [PlannedModule("a.c", ForcedDecisions.of({("a", "b", 0): 1}))], 19)
    plan.write_bytes(damage(plan.read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        add_choices(plan, [], plan)


def test_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"inline\.plan"):
        require_plan(tmp_path)
