"""Which options go together."""

from pathlib import Path
from typing import Any

import pytest

from components.core.console import UserError
from components.ppo.config import PpoConfig


def config(**options: Any) -> PpoConfig:
    names = ("corpus", "toolchain", "trace", "warmstart", "root_dir", "output")
    paths: dict[str, Any] = {name: Path(name) for name in names}
    return PpoConfig(**paths, iterations=1, **options)


CREDITS = [("dqn", "counterfactual"), ("ppo", "counterfactual"), ("es", "module")]


@pytest.mark.parametrize(("algorithm", "credit"), CREDITS)
def test_default_credit_depends_on_the_algorithm(algorithm, credit):
    assert config(algorithm=algorithm).credit_assignment == credit
    assert config(algorithm="ppo", credit_assignment="function").credit_assignment == "function"


def test_default_algorithm_depends_on_the_problem() -> None:
    assert (config().algorithm, config(problem="regalloc").algorithm) == ("dqn", "ppo")
    assert config(problem="regalloc", algorithm="dqn").algorithm == "dqn"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"credit_assignment": "function"}, "--algorithm dqn learns from --credit-assignment counterfactual only"),
        ({"algorithm": "es", "credit_assignment": "counterfactual"}, "es learns from --credit-assignment module only"),
        ({"algorithm": "es", "samples": 3}, "--samples 3: perturbations come in pairs"),
        ({"algorithm": "es", "min_completed_fraction": 0.5}, "--min-completed-fraction 0.5 with --algorithm es"),
        ({"algorithm": "ppo", "credit_assignment": "module", "samples": 1}, "--samples 1: a sample is compared"),
    ],
)
def test_incompatible_options_are_refused(options, problem):
    with pytest.raises(UserError, match=problem):
        config(**options)
