"""Tests of the bindings that pipelines pass to gin."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.gin_bindings import CONFIGURABLES, EXAMPLE, NETWORK, network_bindings, parse_gin_bindings
from components.platform.errors import UserError


def test_bindings_are_split_and_those_of_the_network_found() -> None:
    bindings = parse_gin_bindings(f" {EXAMPLE} ; mlgo.DqnParameters.margin = 0.5;")
    assert bindings == (
        "PpoParameters.learning_rate = 1e-4",
        "actor_network.fc_layer_params = (32,16)",
        "DqnParameters.margin = 0.5",
    )
    assert network_bindings(bindings) == (bindings[1],)
    assert parse_gin_bindings("") == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rate=1", "not of the form"),
        ("PpoParameters.learning_rate", "not of the form"),
        ("Adam.learning_rate=1", "no hyperparameters Adam"),
        ("PpoParameters.learning_rate=@other()", "is not a number"),
        ("PpoParameters.learning_rate=1e-4;PpoParameters.num_epochs=(", "is not a number"),
        ("PpoParameters.lerning_rate=1", "has no parameter lerning_rate"),
        ("DqnParameters.kl_coef=1", "DqnParameters has no parameter kl_coef"),
        ("actor_network.masked=True", "actor_network has no parameter masked"),
        ("import os;PpoParameters.num_epochs=1", "not of the form"),
    ],
)
def test_malformed_binding_is_refused(text: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_gin_bindings(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("PpoParameters.lerning_rate=1", "did you mean PpoParameters.learning_rate?"),
        ("PPOParameters.learning_rate=1", "did you mean PpoParameters?"),
        ("EsParameters.xyz=1", "use one of decay_iterations, deviation, learning_rate"),
        ("Adam.x=1", "use one of actor_network, PpoParameters, DqnParameters, EsParameters"),
    ],
)
def test_remedy_names_the_nearest_parameter(text: str, remedy: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_gin_bindings(text)
    assert refused.value.remedy == remedy


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        bindings = parse_gin_bindings(text)
    except UserError:
        return
    assert parse_gin_bindings(";".join(bindings)) == bindings


@pytest.mark.tf
def test_names_and_parameters_are_those_that_gin_configures() -> None:
    import gin

    from components.core.policy.tf import networks
    from components.ppo.learners import dqn, es, ppo

    ours = {name.removeprefix("mlgo.") for name in gin.config._REGISTRY._selector_map if name.startswith("mlgo.")}
    assert ours == set(CONFIGURABLES)
    for parameters in (dqn.DqnParameters, es.EsParameters, ppo.PpoParameters):
        fields = {field.name for field in dataclasses.fields(parameters)}
        assert fields == set(CONFIGURABLES[parameters.__name__])
    passed_by_callers = {"num_features", "num_actions", "masked", "scale"}
    of_network = set(inspect.signature(networks.actor_network).parameters)
    assert of_network - passed_by_callers == set(CONFIGURABLES[NETWORK])
    gin.parse_config(list(parse_gin_bindings(EXAMPLE)))
    assert gin.query_parameter("PpoParameters.learning_rate") == 1e-4
    gin.clear_config()
