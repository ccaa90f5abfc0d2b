from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from components.core.formats.vocab import QUANTILES, load_vocab, quantiles, read_buckets, vocab_digest, write_vocab
from components.platform.errors import UserError
from components.platform.storage.manifest import write_manifest
from components.platform.storage.publish import publish

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(values=hnp.arrays(np.float64, (2, QUANTILES), elements=NUMBERS, fill=NUMBERS))
def test_written_vocab_is_read_back_exactly(values: np.ndarray, tmp_path: Path) -> None:
    buckets = {"b_second": np.sort(values[0]), "a_first": np.sort(values[1])}
    with publish(tmp_path / "vocab", "vocab") as partial:
        write_vocab(partial, buckets, {"problem": "inlining"})
    read = load_vocab(tmp_path / "vocab")
    assert list(read) == list(buckets)
    for name, expected in buckets.items():
        assert read[name].dtype == np.float64
        np.testing.assert_array_equal(read[name], expected)


def test_text_has_one_number_per_line(tmp_path: Path) -> None:
    write_vocab(tmp_path, {"f": np.linspace(-3, 996, QUANTILES), "g": np.full(QUANTILES, 0.1)})
    lines = (tmp_path / "f.buckets").read_text().splitlines()
    assert lines[:5] == ["-3", "-2", "-1", "0", "1"] and len(lines) == QUANTILES
    assert set((tmp_path / "g.buckets").read_text().split("\n")) == {"0.1", ""}


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    with publish(tmp_path / "vocab", "vocab") as partial:
        write_vocab(partial, {"f": np.arange(QUANTILES, dtype=float)})
    return tmp_path / "vocab"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1"] * 999, "999 numbers"),
        (["1"] * 999 + ["one"], "one number per line"),
        (["1"] * 999 + ["0"], "nondecreasing"),
        (["1"] * 999 + ["nan"], "not finite"),
        (["1"] * 999 + ["inf"], "not finite"),
        (["1"] * 999 + ["\u0661"], "one number per line"),
    ],
)
def test_corrupt_buckets_are_named(lines: list[str], message: str, vocab: Path) -> None:
    (vocab / "f.buckets").write_text("\n".join(lines), encoding="utf-8")
    write_manifest(vocab)
    with pytest.raises(UserError, match=message) as caught:
        load_vocab(vocab)
    assert str(vocab / "f.buckets") in str(caught.value)


@pytest.mark.parametrize("count", [1, 50, 999, 1000, 9999])
def test_vocab_of_ml_compiler_opt_may_have_any_number_of_quantiles(count: int, tmp_path: Path) -> None:
    """Its published vocabs have 999 and 9,999 for a feature."""
    numbers = np.arange(count) / 2
    (tmp_path / "f.buckets").write_text("".join(f"{number}\n" for number in numbers))
    boundaries = load_vocab(tmp_path)["f"]
    assert boundaries.shape == (QUANTILES,) and np.isin(boundaries, numbers).all()
    # A value reaches the same share of the quantiles as before.
    before, after = (np.searchsorted(b, numbers, "right") / len(b) for b in (numbers, boundaries))
    assert np.abs(before - after).max() <= 1.5 / min(count, QUANTILES)
    first = vocab_digest(tmp_path)
    (tmp_path / "README").write_text("")
    assert vocab_digest(tmp_path) == first, "it is that of the quantiles"
    (tmp_path / "f.buckets").write_text("-2\n")
    assert vocab_digest(tmp_path) != first


@pytest.mark.parametrize("content", ["", "one\n", "2\n1\n", "nan\n"])
def test_corrupt_buckets_of_ml_compiler_opt_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "f.buckets").write_text(content)
    with pytest.raises(UserError, match=r"f\.buckets"):
        load_vocab(tmp_path)


def test_missing_files_are_named(vocab: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        read_buckets(tmp_path / "f.buckets")
    (vocab / "f.buckets").unlink()
    with pytest.raises(UserError, match=r"f\.buckets"):
        load_vocab(vocab)
    (vocab / "vocab.json").unlink()
    write_manifest(vocab)
    with pytest.raises(UserError, match=r"no vocab\.json"):
        load_vocab(vocab)
    with pytest.raises(UserError, match="no such"):
        load_vocab(tmp_path / "nowhere")


@settings(deadline=None)
@given(values=hnp.arrays(np.int64, st.integers(1, 2500), elements=st.integers(-50, 50) | st.integers(-(2**50), 2**50)))
def test_quantiles_by_definition(values: np.ndarray) -> None:
    """The k-th is the value of rank ceil(k * (N - 1) / 999) among the sorted values, in integers."""
    ordered = np.sort(values)
    ranks = [math.ceil(Fraction(k * (len(values) - 1), 999)) for k in range(1000)]
    assert quantiles(values).dtype == np.float64
    np.testing.assert_array_equal(quantiles(values), ordered[ranks])


def test_each_element_of_a_tensor_counts() -> None:
    values = np.arange(1000, dtype=np.float32).reshape(250, 2, 2)
    np.testing.assert_array_equal(quantiles(values), np.arange(1000))
