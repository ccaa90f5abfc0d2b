"""The policies that an evaluation measures and compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.console import UserError
from components.core.formats.policy import IMPORTED, PolicyInfo, load_policy_info, write_policy_info
from components.core.formats.toolchain import Toolchain
from components.core.policy.pretrained import pretrained_policy
from components.core.policy.shared_object import SHARED_OBJECT
from components.evaluation.config import EvaluationConfig
from components.evaluation.inputs import find_pretrained, find_reference


def test_pretrained_policy_is_compared_unless_training_started_from_it(tmp_path: Path) -> None:
    """An imported policy has no weights to compare, so it is another one."""
    llvm = Path("/usr/lib/llvm-19")
    pretrained = pretrained_policy("inlining", clang=llvm / "bin" / "clang")
    info = load_policy_info(pretrained)
    training = Toolchain(llvm, "training", "19.1.7", "", {"inlining": info.features}, {})
    write_policy_info(tmp_path, PolicyInfo("inlining", info.features, 2, IMPORTED))
    for warmstart, expected in ((pretrained, None), (tmp_path, pretrained)):
        config = EvaluationConfig(
            tmp_path, tmp_path, tmp_path, tmp_path, compare_with="pretrained", warmstart=warmstart
        )
        assert find_reference(config, training) == expected


def test_pretrained_policy_is_evaluated_as_the_release_clang_embeds_it(tmp_path: Path) -> None:
    embedded = find_pretrained("pretrained", "inlining", tmp_path, release=tmp_path, earlier=None)
    assert embedded == pretrained_policy("inlining") and not (embedded / SHARED_OBJECT).exists()
    with pytest.raises(UserError, match="--release-toolchain and --policy pretrained"):
        find_pretrained("pretrained", "regalloc", tmp_path, release=tmp_path, earlier=None)
    with pytest.raises(UserError, match="--evaluation and --policy pretrained"):
        find_pretrained("pretrained", "inlining", tmp_path, release=tmp_path, earlier=tmp_path)
