"""Tests the file of an inline plan by parsing it as documented."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PlannedModule, require_plan, write_plan
from components.core.console import UserError

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


def test_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no inline\.plan in"):
        require_plan(tmp_path)
