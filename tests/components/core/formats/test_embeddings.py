"""The vocabulary of a policy that reads embeddings: copied with it, and compared with the toolchain's."""

import pytest

from components.core.formats.embeddings import DIGEST, VOCABULARY, check_vocabulary, copy_vocabulary
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError

EMBEDDING = (FeatureSpec("callee_embedding", "float32", (4,)),)


def test_policies_without_embeddings_have_no_vocabulary(tmp_path):
    assert copy_vocabulary(tmp_path, (FeatureSpec("threshold", "int64"),), tmp_path) == ""
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=VOCABULARY):
        copy_vocabulary(tmp_path, EMBEDDING, tmp_path)


def test_policy_of_another_vocabulary_is_refused(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / VOCABULARY).write_bytes(b"vectors")
    digest = copy_vocabulary(tmp_path / "made", EMBEDDING, tmp_path)
    policy = PolicyInfo("inlining", EMBEDDING, 2, "warmstart", ir2vec_vocabulary=digest)

    def toolchain(**built: str) -> Toolchain:
        return Toolchain(tmp_path, "training", "22.1.8", "x86_64-linux-gnu", {}, built)

    check_vocabulary(policy, toolchain(**{DIGEST: digest}))
    check_vocabulary(PolicyInfo("inlining", (), 2, "warmstart"), toolchain())
    for built in ({}, {DIGEST: "f" * 64}):
        with pytest.raises(UserError, match=f"{digest[:12]}") as caught:
            check_vocabulary(policy, toolchain(**built))
        assert VOCABULARY in caught.value.remedy
