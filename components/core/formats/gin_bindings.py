"""Gin bindings of a whole run in one text, as pipelines pass them: `NAME.PARAMETER=VALUE`, separated by semicolons.

Gin itself is not imported, so that a run can be refused before its first step, where gin is not installed.
"""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches

from components.platform.errors import UserError

NETWORK = "actor_network"
CONFIGURABLES = {
    NETWORK: ("dropout", "fc_layer_params"),
    **{
        name: tuple(parameters.split())
        for name, parameters in {
            "PpoParameters": "clip_epsilon decay_iterations initial_entropy kl_coef learning_rate max_grad_norm "
            "minibatch_size num_epochs target_kl",
            "DqnParameters": "final_fits learning_rate margin max_grad_norm max_steps minibatch_size num_epochs "
            "repeated_margin replay_measurements",
            "EsParameters": "decay_iterations deviation learning_rate",
        }.items()
    },
}
"""What gin configures here, and the parameters of each; those of the network that its callers do not pass themselves.

The network's belong to the warmstart step, which makes it, and to training.
"""
EXAMPLE = "PpoParameters.learning_rate=1e-4;actor_network.fc_layer_params=(32,16)"
_BINDING = re.compile(r"(?:mlgo\.)?([A-Za-z_]\w*)\.([A-Za-z_]\w*)\s*=\s*(.+)", re.DOTALL)


def parse_gin_bindings(text: str) -> tuple[str, ...]:
    """Return the bindings in `text`, each for gin.

    Raises:
        UserError: a binding is malformed, of a name or a parameter that gin does not configure here, or its value is no
            Python literal. Whether the parameter takes the value, the step checks.
    """
    bindings = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _BINDING.fullmatch(part)
        if match is None:
            raise UserError(f"{part!r} is not of the form NAME.PARAMETER=VALUE", f"for example {EXAMPLE}")
        name, parameter, value = match.groups()
        if name not in CONFIGURABLES:
            raise UserError(f"{part}: there are no hyperparameters {name}", _suggest(name, tuple(CONFIGURABLES)))
        if parameter not in CONFIGURABLES[name]:
            raise UserError(
                f"{part}: {name} has no parameter {parameter}", _suggest(parameter, CONFIGURABLES[name], f"{name}.")
            )
        try:
            ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise UserError(
                f"{part}: {value!r} is not a number, text, tuple or list", f"for example {EXAMPLE}"
            ) from None
        bindings.append(f"{name}.{parameter} = {value.strip()}")
    return tuple(bindings)


def _suggest(name: str, valid_names: tuple[str, ...], prefix: str = "") -> str:
    """Return the remedy that names the nearest of `valid_names`, or all of them if none is near."""
    near = get_close_matches(name, valid_names, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"use one of {', '.join(valid_names)}"


def network_bindings(bindings: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `bindings` that configure the network."""
    return tuple(binding for binding in bindings if binding.startswith(f"{NETWORK}."))
