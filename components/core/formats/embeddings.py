"""Embeddings of functions among a policy's features, and the vocabulary that they are computed from.

A training toolchain has the vocabulary as VOCABULARY if it logs embeddings, a policy that reads them has a copy. Only
the plugin reads what is in it (components/toolchain/ir2vec).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes

RANDOM = "random"
"""Given instead of a file: random vectors."""
VOCABULARY = "ir2vec-vocabulary.json"
EMBEDDINGS = frozenset({"callee_embedding", "caller_embedding"})
DIGEST = "ir2vec_vocabulary"
"""Key of `Toolchain.built` with the digest of the toolchain's vocabulary."""


def uses_embeddings(features: Iterable[FeatureSpec]) -> bool:
    """Return whether the features include an embedding."""
    return any(feature.name in EMBEDDINGS for feature in features)


def copy_vocabulary(directory: Path, features: Iterable[FeatureSpec], policy: Path) -> str:
    """Copy the vocabulary of the artifact `directory` into a policy with these features, if they include an embedding.

    Returns:
        The digest of the vocabulary, "" if there is no embedding.

    Raises:
        UserError: there is an embedding, but the artifact has no vocabulary.
    """
    if not uses_embeddings(features):
        return ""
    content = read_bytes(directory / VOCABULARY, "build the toolchain again with --ir2vec-vocab")
    (policy / VOCABULARY).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def check_vocabulary(policy: PolicyInfo, toolchain: Toolchain) -> None:
    """Raise UserError if the policy reads embeddings from another vocabulary than the training clang logs."""
    ours, theirs = policy.ir2vec_vocabulary, toolchain.built.get(DIGEST, "")
    if ours and ours != theirs:
        raise UserError(
            f"the policy reads embeddings of the IR2Vec vocabulary {ours[:12]}, but the clang in {toolchain.directory} "
            f"computes them from {f'the vocabulary {theirs[:12]}' if theirs else 'none'}",
            f"build the toolchain with --ir2vec-vocab and the policy's {VOCABULARY}, or train another policy",
        )
