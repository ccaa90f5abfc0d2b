"""Which options go together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.platform.errors import UserError
from components.ppo.config import VALIDATE_EVERY, VALIDATE_EVERY_FINETUNING, TrainingConfig
from components.ppo.learners.factory import configure
from components.ppo.learners.ppo import PpoParameters


def config(**options: Any) -> TrainingConfig:
    names = ("corpus", "toolchain", "trace", "warmstart", "root_dir", "output")
    paths: dict[str, Any] = {name: Path(name) for name in names}
    return TrainingConfig(**{**paths, "iterations": 1, **options})


def test_trained_policy_is_validated_more_often(tmp_path: Path) -> None:
    assert (config().validate_every, config(validate_every=7).validate_every) == (VALIDATE_EVERY, 7)
    write_policy_info(tmp_path, PolicyInfo("inlining", (), 2, trained_by="ppo"))
    trained = replace(config(), warmstart=tmp_path, validate_every=0)
    assert trained.validate_every == VALIDATE_EVERY_FINETUNING < VALIDATE_EVERY


@pytest.mark.parametrize(
    ("options", "iterations"),
    [
        ({}, 37),  # 16 modules with 1 + 8 compiles each
        ({"samples": 12, "modules": 4}, 100),
        ({"algorithm": "ppo", "credit_assignment": "module"}, 41),
        ({"algorithm": "es"}, 41),
        ({"problem": "regalloc"}, 82),  # 32 modules, all flips of one in one compile
        ({"iterations": 7}, 7),
        ({"iterations": 70}, 37),
    ],
)
def test_limit_of_compiles_is_a_number_of_iterations(options: dict[str, Any], iterations: int) -> None:
    assert config(**{"iterations": None, "compiles": 5200, **options}).max_iterations == iterations


def test_time_alone_limits_no_iterations() -> None:
    assert config(iterations=None, minutes=1.0).max_iterations is None


def test_default_credit_depends_on_the_algorithm_and_this_on_the_problem() -> None:
    for algorithm, credit in (("dqn", "counterfactual"), ("ppo", "counterfactual"), ("es", "module")):
        assert config(algorithm=algorithm).credit_assignment == credit
    assert config(algorithm="ppo", credit_assignment="function").credit_assignment == "function"
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


@pytest.mark.tf
@pytest.mark.usefixtures("fresh_gin")
@pytest.mark.parametrize(
    ("trained_by", "problem", "bindings", "algorithm", "learning_rate"),
    [
        ("warmstart", "inlining", (), "dqn", 1e-3),
        ("ppo", "inlining", (), "ppo", 1e-4),
        ("ppo", "inlining", ("PpoParameters.learning_rate = 5e-4",), "ppo", 5e-4),
        ("ppo", "regalloc", (), "ppo", 2e-3),
    ],
)
def test_trained_policy_is_changed_in_smaller_steps(
    tmp_path: Path, trained_by: str, problem: str, bindings: tuple[str, ...], algorithm: str, learning_rate: float
) -> None:
    write_policy_info(tmp_path, PolicyInfo(problem, (FeatureSpec("a", "int64", (1,)),), 2, trained_by))
    training = config(warmstart=tmp_path, problem=problem, gin_bindings=bindings)
    configure(training)
    assert training.algorithm == algorithm
    assert PpoParameters().learning_rate == learning_rate
    assert PpoParameters().num_epochs == 3, "the others are the problem's"
