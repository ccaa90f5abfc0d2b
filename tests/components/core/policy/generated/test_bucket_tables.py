"""Distinct boundaries and the rewritten first layer give the same results."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec
from components.core.policy.feature_encoding import expand, magnitudes
from components.core.policy.generated.bucket_tables import distinct_boundaries, feature_tables

INT64 = np.iinfo(np.int64)


def ranks_of(spec, boundaries, xs):
    distinct, ranks = distinct_boundaries(spec, boundaries)
    buckets = np.searchsorted(distinct, xs, side="right")
    return np.concatenate([[0], ranks])[buckets]


numbers = st.integers(-(2**40), 2**40) | st.integers(-3, 3) | st.sampled_from([-129, -128, 127, 128, 32767, 32768])


@given(
    st.lists(numbers.map(float) | st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.lists(numbers | st.sampled_from([INT64.min, INT64.max]), min_size=1, max_size=30),
)
def test_distinct_boundaries_keep_integer_ranks(boundaries, xs):
    ordered = np.sort(np.array(boundaries))
    ranks = ranks_of(FeatureSpec("f", "int64"), ordered, np.array(xs, np.int64))
    assert ranks.tolist() == [sum(b <= x for b in boundaries) for x in xs]


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
)
def test_distinct_boundaries_keep_float_ranks(boundaries, xs):
    ranks = ranks_of(FeatureSpec("f", "float32"), np.sort(np.array(boundaries)), np.array(xs, np.float32))
    assert ranks.tolist() == [sum(b <= x for b in boundaries) for x in xs]


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40))
def test_boundaries_use_the_smallest_type(boundaries):
    ordered = np.sort(np.array(boundaries, np.float64))
    distinct, _ = distinct_boundaries(FeatureSpec("f", "int64"), ordered)
    types: list[Any] = [np.int8, np.int16, np.int32, np.int64]
    fitting = [t for t in types if np.iinfo(t).min <= ordered[0] <= ordered[-1]]
    fitting = [t for t in fitting if ordered[-1] <= np.iinfo(t).max]
    assert distinct.dtype == fitting[0]
    assert np.all(np.diff(distinct.astype(np.float64)) > 0)


def test_the_rewritten_first_layer_gives_the_same_sums(make_policy):
    policy, columns = make_policy(seed=3)
    tables, (rows, bias) = feature_tables(policy)
    weights, old_bias = policy.layers[0]
    expected = expand(policy.inputs(columns), masked=False).astype(np.float64) @ weights + old_bias
    sums = np.tile(bias.astype(np.float64), (len(columns["flag"]), 1))
    magnitude_rows = rows[len(rows) - len(tables) :]
    first = 0
    for i, table in enumerate(tables):
        bucket = np.searchsorted(table.boundaries, columns[table.spec.name], side="right")
        away = np.flatnonzero(bucket != table.usual_bucket)
        if table.row_per_bucket:
            row = first + bucket[away] - (bucket[away] > table.usual_bucket)
            sums[away] += rows[row]
        else:
            q = np.concatenate([[0], table.ranks])[bucket[away]] / table.rank_scale
            sums[away] += (q.astype(np.float32) - table.usual_q)[:, None].astype(np.float64) * rows[first]
        magnitude = magnitudes([table.spec], columns)[:, 0] - table.usual_magnitude
        sums += magnitude[:, None].astype(np.float64) * magnitude_rows[i]
        first += len(table.rows)
    assert first + len(tables) == len(rows)
    np.testing.assert_allclose(sums, expected, atol=2e-6)


def test_a_quantile_of_one_row_keeps_its_weights(make_policy):
    policy, _ = make_policy()
    tables, (rows, _) = feature_tables(policy)
    np.testing.assert_array_equal(rows, policy.layers[0][0])
    assert not any(table.row_per_bucket for table in tables)
