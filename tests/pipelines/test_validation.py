"""Tests of parameters that are refused before a run starts or anything is submitted."""

from __future__ import annotations

import pytest

from components.core.console import UserError
from pipelines.spec import COMPILED, load_spec
from pipelines.validation import checked_values

SPEC = load_spec(COMPILED)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"features": "all"}, "--param features=all: 'all' is not one of 'extended', 'llvm'"),
        ({"algorithm": "sac"}, "--param algorithm=sac"),
        ({"credit_assignment": "guess"}, "--param credit_assignment=guess"),
        ({"size_of": "files"}, "--param size_of=files"),
        ({"algorithm": "dqn", "credit_assignment": "module"}, "algorithm=dqn learns from counterfactual credit only"),
        ({"gin_bindings": "Adam.rate=1"}, "there are no hyperparameters Adam"),
        ({"targets": "arm"}, "--param targets=arm"),
        ({"tune_minutes": "-1"}, "--param tune_minutes=-1"),
    ],
)
def test_value_that_no_step_accepts_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        checked_values(SPEC, {"recipe": "demo"} | given)
    assert raised.value.remedy


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"algorithm": "es"},
        {"algorithm": "es", "credit_assignment": "module", "features": "llvm", "size_of": "modules"},
        {"credit_assignment": "function", "gin_bindings": "PpoParameters.num_epochs=4"},
    ],
)
def test_valid_values_are_returned_with_defaults(given: dict[str, str]) -> None:
    values = checked_values(SPEC, {"recipe": "demo"} | given)
    assert given.items() <= values.items() and values["preset"] == "demo"
