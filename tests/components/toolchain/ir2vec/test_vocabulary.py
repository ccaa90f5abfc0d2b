"""Vocabularies of IR2Vec: what is read, and what is made."""

import json
from pathlib import Path

import numpy as np
import pytest

from components.platform.errors import UserError
from components.toolchain.ir2vec.vocabulary import random_vocabulary, read_vocabulary

ENTITIES = ["Add", "Call", "IntegerTy", "Function", "ICMP_eq"]


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
