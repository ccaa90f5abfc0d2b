"""Agreement of policy.json with the weights, which commands check before they use a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.policy.agreement import random_decisions, require_one_policy
from components.core.policy.dense import DensePolicy
from components.platform.errors import UserError

SPEC = FeatureSpec("cost_estimate", "int64", (1,))
INFO = PolicyInfo("inlining", (SPEC,), 2, "ppo")


@pytest.fixture
def policy() -> DensePolicy:
    layers = ((np.ones((2, 2), np.float32), np.zeros(2, np.float32)),)
    return DensePolicy("inlining", (SPEC,), {SPEC.name: np.array([-3.0, 5.0, 9.0])}, layers)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(INFO, problem="regalloc"), "the problem differs, regalloc and inlining"),
        (replace(INFO, features=(replace(SPEC, name="callee_users"),)), "the features differ"),
        (replace(INFO, num_actions=3), "the number of actions differs, 3 and 2"),
    ],
)
def test_description_of_another_policy_is_refused(
    policy: DensePolicy, tmp_path: Path, other: PolicyInfo, named: str
) -> None:
    policy.save(tmp_path)
    write_policy_info(tmp_path, INFO)
    require_one_policy(tmp_path)
    write_policy_info(tmp_path, other)
    with pytest.raises(UserError, match=named):
        require_one_policy(tmp_path)


def test_random_decisions_cover_both_sides_of_each_boundary(policy: DensePolicy) -> None:
    values = random_decisions(policy, 400, 1)["cost_estimate"]
    assert values.dtype == np.int64 and set(values.tolist()) == {-4, -3, -2, 4, 5, 6, 8, 9, 10}
