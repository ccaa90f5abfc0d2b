from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.compiler.logs.callsites import callsites_path, read_callsites
from components.core.compiler.logs.training_log import LogError

NAMES = ["main", "_ZN3foo3barEv", "größer", "llvm.local"]


def write(path: Path, decisions: list[tuple[int, int, int]], flags: list[int], names: list[bytes]) -> Path:
    header = json.dumps({"version": 1, "decisions": len(decisions), "functions": len(names)}).encode() + b"\n"
    table = np.array(decisions, "<i4").reshape(-1, 3).tobytes()
    path.write_bytes(header + table + bytes(flags) + b"".join(name + b"\0" for name in names))
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    names=st.lists(st.binary(max_size=8).map(lambda name: name.replace(b"\0", b"")), min_size=1, max_size=6),
    data=st.data(),
)
def test_written_callsites_are_read_back(names: list[bytes], data: st.DataObject, tmp_path: Path) -> None:
    ids = st.integers(0, len(names) - 1)
    decisions = data.draw(st.lists(st.tuples(ids, ids, st.integers(0, 1)), max_size=20))
    flags = data.draw(st.lists(st.integers(0, 255), min_size=len(names), max_size=len(names)))
    read = read_callsites(write(tmp_path / "calls", decisions, flags, names))
    columns = (read.caller.tolist(), read.callee.tolist(), read.inlined.astype(int).tolist())
    assert list(zip(*columns, strict=True)) == decisions
    assert read.discardable.tolist() == [bool(flag & 1) for flag in flags]
    assert [name.encode("utf-8", "surrogateescape") for name in read.names] == names


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "calls", [(0, 1, 1), (2, 3, 0)], [0, 1, 1, 0], [name.encode() for name in NAMES])
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with pytest.raises(LogError, match="calls: byte"):
            read_callsites(path)
    path.write_bytes(content + b"x\0")
    with pytest.raises(LogError, match="expected 4 names, found 5"):
        read_callsites(path)


@pytest.mark.parametrize("bad", [(0, 4, 1), (-1, 0, 1)])
def test_id_outside_of_functions_is_refused(bad: tuple[int, int, int], tmp_path: Path) -> None:
    path = write(tmp_path / "calls", [(0, 1, 1), bad], [0] * 4, [name.encode() for name in NAMES])
    with pytest.raises(LogError, match="decision 1") as caught:
        read_callsites(path)
    assert caught.value.byte == path.read_bytes().index(b"\n") + 1 + 12


def test_other_version_and_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    path.write_bytes(b'{"version": 2, "decisions": 0, "functions": 0}\n')
    with pytest.raises(LogError, match="version 2"):
        read_callsites(path)
    with pytest.raises(LogError, match="no callsites"):
        read_callsites(callsites_path(tmp_path / "m.log"))
