"""The policies that an evaluation measures and compares with."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.corpus import Module
from components.core.formats.policy import IMPORTED, PolicyInfo, load_policy_info, write_policy_info
from components.core.formats.toolchain import Toolchain
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.core.policy.pretrained import pretrained_policy
from components.evaluation.config import EvaluationConfig
from components.evaluation.inputs import choose_pretrained, find_pretrained, find_reference
from components.platform.errors import UserError

NAMES = ("pretrained", "pretrained-llvm")


def test_pretrained_policy_is_compared_unless_training_started_from_it(tmp_path: Path) -> None:
    """An imported policy has no weights to compare, so it is another one."""
    llvm = Path("/usr/lib/llvm-19")
    pretrained = pretrained_policy("inlining", clang=llvm / "bin" / "clang")
    info = load_policy_info(pretrained)
    training = Toolchain(llvm, "training", "19.1.7", "", {"inlining": info.features}, {})
    write_policy_info(tmp_path, PolicyInfo("inlining", info.features, 2, IMPORTED))
    for warmstart, is_warmstart in ((pretrained, True), (tmp_path, False)):
        config = EvaluationConfig(
            tmp_path, tmp_path, tmp_path, tmp_path, compare_with="pretrained", warmstart=warmstart
        )
        reference = find_reference(config, training)
        assert reference is not None and (reference.name, reference.directory) == ("pretrained", pretrained)
        assert reference.is_warmstart is is_warmstart


@pytest.mark.parametrize(
    ("triple", "trained", "expected"),
    [
        ("x86_64-pc-linux-gnu", "pretrained", "pretrained"),
        ("x86_64-pc-linux-gnu", "pretrained-llvm", "pretrained-llvm"),
        ("thumbv7em-none-unknown-eabihf", "pretrained", "pretrained-thumb"),
    ],
)
def test_matching_policy_has_features_and_target_of_the_evaluated_one(
    triple: str, trained: str, expected: str, tmp_path: Path
) -> None:
    llvm = Path("/usr/lib/llvm-19")
    features, upstream = (load_policy_info(pretrained_policy("inlining", name=name)).features for name in NAMES)
    upstream_features = {"inlining": tuple(feature.name for feature in upstream)}
    training = Toolchain(llvm, "training", "19.1.7", "", {"inlining": features}, {}, upstream_features)
    policy = pretrained_policy("inlining", name=trained)
    config = EvaluationConfig(tmp_path, tmp_path, policy, tmp_path, compare_with="matching")
    (tmp_path / "a.cmd").write_text("\0".join(["-cc1", "-triple", triple, "-Oz"]))
    module = Module("a", tmp_path)
    assert choose_pretrained(config, training, [module]) == expected
    reference = find_reference(config, training, [module])
    assert reference is not None and reference.name == expected


def test_pretrained_policy_is_evaluated_as_the_release_clang_embeds_it(tmp_path: Path) -> None:
    embedded = find_pretrained("pretrained", "inlining", tmp_path, release=tmp_path, earlier=None)
    assert embedded == pretrained_policy("inlining") and not (embedded / SHARED_OBJECT).exists()
    with pytest.raises(UserError, match="--release-toolchain and --policy pretrained"):
        find_pretrained("pretrained", "regalloc", tmp_path, release=tmp_path, earlier=None)
    with pytest.raises(UserError, match="--evaluation and --policy pretrained"):
        find_pretrained("pretrained", "inlining", tmp_path, release=tmp_path, earlier=tmp_path)
