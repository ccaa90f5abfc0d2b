"""Tests of the hyperparameters that a training gets by where it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.ppo.config import TrainingConfig
from components.ppo.learners.factory import configure
from components.ppo.learners.ppo import PpoParameters

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("fresh_gin")]


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
    config = TrainingConfig(
        corpus=tmp_path,
        toolchain=tmp_path,
        trace=tmp_path,
        warmstart=tmp_path,
        root_dir=tmp_path,
        output=tmp_path,
        problem=problem,
        minutes=1.0,
        gin_bindings=bindings,
    )
    configure(config)
    assert config.algorithm == algorithm
    assert PpoParameters().learning_rate == learning_rate
    assert PpoParameters().num_epochs == 3, "the others are the problem's"
