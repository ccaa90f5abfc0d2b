"""Tests of the bindings that pipelines pass to gin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.console import UserError
from components.core.formats.gin_bindings import CONFIGURABLES, EXAMPLE, network_bindings, parse_gin_bindings


def test_bindings_are_split_and_those_of_the_network_found() -> None:
    found = parse_gin_bindings(f" {EXAMPLE} ; mlgo.DqnParameters.margin = 0.5;")
    assert found == (
        "PpoParameters.learning_rate = 1e-4",
        "actor_network.fc_layer_params = (32,16)",
        "DqnParameters.margin = 0.5",
    )
    assert network_bindings(found) == (found[1],)
    assert parse_gin_bindings("") == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rate=1", "not of the form"),
        ("PpoParameters.learning_rate", "not of the form"),
        ("Adam.learning_rate=1", "no hyperparameters Adam"),
        ("PpoParameters.learning_rate=@other()", "is not a number"),
        ("PpoParameters.learning_rate=1e-4;PpoParameters.num_epochs=(", "is not a number"),
        ("import os;PpoParameters.num_epochs=1", "not of the form"),
    ],
)
def test_malformed_binding_is_refused(text: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_gin_bindings(text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse_gin_bindings(text)
    except UserError:
        return
    assert parse_gin_bindings(";".join(found)) == found


@pytest.mark.tf
def test_names_are_those_that_gin_configures() -> None:
    import gin

    from components.core.policy import networks  # noqa: F401
    from components.ppo.learners import dqn, es, ppo  # noqa: F401

    ours = {name.removeprefix("mlgo.") for name in gin.config._REGISTRY._selector_map if name.startswith("mlgo.")}
    assert ours == set(CONFIGURABLES)
    gin.parse_config(list(parse_gin_bindings(EXAMPLE)))
    assert gin.query_parameter("PpoParameters.learning_rate") == 1e-4
    gin.clear_config()
