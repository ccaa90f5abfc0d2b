"""Tests the keys of forced decisions and the compiler's report about them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Request
from components.core.compiler.forced_decisions import ForcedDecisions, Key, ordinals, read_unreached
from components.core.compiler.logs.training_log import LogError


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_ordinal_counts_earlier_decisions_with_the_same_key(keys: list[tuple[int, int]]) -> None:
    columns = np.array(keys, np.int32).reshape(-1, 2)
    counts = ordinals(columns[:, 0], columns[:, 1])
    assert counts.tolist() == [keys[:i].count(key) for i, key in enumerate(keys)]


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(st.tuples(NAMES, st.just("") | NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 99)))
def test_actions_by_key_round_trip(actions: dict[Key, int]) -> None:
    forced = ForcedDecisions.of(actions)
    assert forced.actions() == actions and len(forced) == len(actions)
    line, rest = forced.content("inlining").split(b"\n", 1)
    assert json.loads(line) == {
        "version": 1,
        "problem": "inlining",
        "decisions": len(actions),
        "names": len(forced.names),
    }
    names = rest[16 * len(actions) :]
    assert [name.decode("utf-8", "surrogateescape") for name in names.split(b"\0")[:-1]] == list(forced.names)


def test_unnamed_caller_is_written() -> None:
    forced = ForcedDecisions.of({("", "", 0): 1, ("", "g", 0): 0})
    assert forced.names == ("", "g") and forced.rows.tolist() == [[0, -1, 0, 1], [0, 1, 0, 0]]


FORCED = ForcedDecisions.of({("b", "x", 1): 1, ("b", "x", 0): 0, ("a", "x", 0): 1})


def test_unreached_rows_are_indices_of_the_unsorted_rows(tmp_path: Path) -> None:
    (tmp_path / "m.forced").write_text('{"version":2,"decisions":3,"unreached":[0,1]}')
    assert [tuple(row) for row in FORCED.rows[FORCED.order].tolist()] == sorted(map(tuple, FORCED.rows.tolist()))
    unreached = read_unreached(tmp_path / "m.forced", FORCED)
    assert unreached.tolist() == sorted(FORCED.order[:2].tolist()) and unreached.dtype == np.intp


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{}",
        b'{"version": 1, "decisions": 3, "unmatched": 0}',
        b"[1]",
        b"\xff",
        b'{"version": 2, "decisions": 2, "unreached": []}',
        b'{"version": 2, "decisions": 3, "unreached": [3]}',
        b'{"version": 2, "decisions": 3, "unreached": ["x"]}',
        b'{"version": 2, "decisions": 3, "unreached": [1e400]}',
    ],
)
def test_missing_or_invalid_report_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "m.forced"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LogError, match="forced decisions"):
        read_unreached(path, FORCED)


def test_forced_decisions_must_fit_the_samples(tiny_corpus) -> None:
    forced = ForcedDecisions((), np.zeros((0, 4), np.int32))
    with pytest.raises(ValueError, match="2 sets"):
        Request(tiny_corpus.modules[0], Advisor("log"), forced=(forced, forced))
    with pytest.raises(ValueError, match="samples"):
        Request(tiny_corpus.modules[0], Advisor("default"), forced=(forced,))
