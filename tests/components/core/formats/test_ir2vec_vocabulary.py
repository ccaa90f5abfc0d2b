"""Vocabularies of IR2Vec: what is read, what is made, and policies that need another one."""

import json
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.ir2vec_vocabulary import (
    DIGEST,
    VOCABULARY,
    check_vocabulary,
    copy_vocabulary,
    random_vocabulary,
    read_vocabulary,
)
from components.core.formats.policy import PolicyInfo
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError

ENTITIES = ["Add", "Call", "IntegerTy", "Function", "ICMP_eq"]
EMBEDDING = (FeatureSpec("callee_embedding", "float32", (4,)),)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_random_vectors_depend_on_the_entity_only(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(random_vocabulary(ENTITIES))
    paths[1].write_bytes(random_vocabulary(ENTITIES[::-1]))
    first, second = map(read_vocabulary, paths)
    assert set(first.vectors) == set(ENTITIES) and first.vectors == second.vectors
    assert len({*first.vectors.values()}) == len(ENTITIES)
    norms = np.linalg.norm(np.array([*first.vectors.values()]), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-4)
    assert first.dimension == 75
    assert {name: sorted(part) for name, part in json.loads(first.content).items()} == {
        "Opcodes": ["Add", "Call"],
        "Types": ["IntegerTy"],
        "Arguments": ["Function", "ICMP_eq"],
    }


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "IR2Vec vocabulary"),
        ({"Opcodes": {}, "Types": {}}, "IR2Vec vocabulary"),
        ({"Opcodes": {"Add": [1, 2]}, "Types": {"IntegerTy": [1]}, "Arguments": {}}, "one length"),
        ({"Opcodes": {}, "Types": {}, "Arguments": {}}, "one length"),
        ({"Opcodes": {"Add": [1, None]}, "Types": {}, "Arguments": {}}, "IR2Vec vocabulary"),
        ({"Opcodes": {"Add": [1, float("inf")]}, "Types": {}, "Arguments": {}}, "not finite"),
    ],
)
def test_invalid_vocabulary_is_refused(tmp_path, document, named):
    with pytest.raises(UserError, match=named):
        read_vocabulary(write(tmp_path / "vocabulary.json", document))


def test_missing_vocabulary_is_reported(tmp_path):
    with pytest.raises(UserError, match="IR2Vec") as caught:
        read_vocabulary(tmp_path / "nowhere")
    assert "--ir2vec-vocab random" in caught.value.remedy


def test_policies_without_embeddings_have_no_vocabulary(tmp_path):
    assert copy_vocabulary(tmp_path, (FeatureSpec("threshold", "int64"),), tmp_path) == ""
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="IR2Vec"):
        copy_vocabulary(tmp_path, EMBEDDING, tmp_path)


def test_policy_of_another_vocabulary_is_refused(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / VOCABULARY).write_bytes(random_vocabulary(ENTITIES, 4))
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
