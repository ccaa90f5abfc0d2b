"""FeatureSpec: conversion from and to LLVM's TensorSpec in JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec

DTYPES = st.sampled_from(["int64", "int32", "float32", "float64", "int8"])


@given(name=st.text(min_size=1), dtype=DTYPES, shape=st.lists(st.integers(1, 100), min_size=1, max_size=3))
def test_json_round_trip(name: str, dtype: str, shape: list[int]) -> None:
    spec = FeatureSpec(name, dtype, tuple(shape))
    assert FeatureSpec.from_json(spec.to_json()) == spec


def test_log_header_is_parsed() -> None:
    spec = FeatureSpec.from_json({"name": "logits", "port": 0, "shape": [1, 2], "type": "float"})
    assert spec == FeatureSpec("logits", "float32", (1, 2))
    assert spec.size_bytes == 8


@pytest.mark.parametrize(
    "value",
    [{"name": "a", "type": "string", "shape": [1]}, {"name": "a", "shape": [1]}, {"type": "float", "shape": [1]}],
)
def test_invalid_tensor_spec_is_refused(value: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        FeatureSpec.from_json(value)
