"""Vocabularies of IR2Vec: the vectors from which LLVM computes embeddings of functions.

A vocabulary is a JSON object of the sections "Opcodes", "Types" and "Arguments" (operands and predicates of
comparisons), each of them an object entity -> list of D numbers: the file of LLVM's `-ir2vec-vocab-path`
(llvm/Analysis/IR2Vec.h). A training toolchain has one as VOCABULARY if it logs embeddings, a policy that reads them has
a copy.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, parse_json, read_bytes, typed

RANDOM = "random"
"""Given instead of a file: random vectors."""
VOCABULARY = "ir2vec-vocabulary.json"
EMBEDDINGS = frozenset({"callee_embedding", "caller_embedding"})
DIGEST = "ir2vec_vocabulary"
"""Key of `Toolchain.built` with the digest of the toolchain's vocabulary."""
DIMENSION = 75
"""Number of elements of generated vectors; that of the vocabulary in LLVM's source."""
MAX_DIMENSION = 1024
_SECTIONS = ("Opcodes", "Types", "Arguments")
_OPERANDS = ("Function", "Pointer", "Constant", "Variable")
_REMEDY = "pass a vocabulary that LLVM's -ir2vec-vocab-path takes, or --ir2vec-vocab random"


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary.

    Attributes:
        content: the JSON file.
        vectors: entity -> D numbers, D the same for all.
    """

    content: bytes
    vectors: dict[str, tuple[float, ...]]

    @property
    def dimension(self) -> int:
        return len(next(iter(self.vectors.values())))

    @property
    def digest(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


class _Document(Struct, rename="pascal"):
    """The JSON file of a vocabulary. The sections have different entities."""

    opcodes: dict[str, tuple[float, ...]]
    types: dict[str, tuple[float, ...]]
    arguments: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        lengths = {len(vector) for vector in self.vectors.values()}
        if len(lengths) != 1 or not 1 <= min(lengths) <= MAX_DIMENSION:
            raise ValueError(f"its vectors have {sorted(lengths)} elements; expected one length up to {MAX_DIMENSION}")
        if not all(math.isfinite(number) for vector in self.vectors.values() for number in vector):
            raise ValueError("it has numbers that are not finite")

    @property
    def vectors(self) -> dict[str, tuple[float, ...]]:
        return {**self.opcodes, **self.types, **self.arguments}


def uses_embeddings(features: Iterable[FeatureSpec]) -> bool:
    """Return whether the features include an embedding."""
    return any(feature.name in EMBEDDINGS for feature in features)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary. UserError if it is missing, or vectors differ in length or are not finite."""
    try:
        content = read_bytes(path, _REMEDY)
    except MissingFile:
        raise UserError(f"there is no IR2Vec vocabulary {path}", _REMEDY) from None
    document = parse_json(content, str(path), _REMEDY)
    return Vocabulary(content, typed(document, _Document, path, "an IR2Vec vocabulary", _REMEDY).vectors)


def copy_vocabulary(directory: Path, features: Iterable[FeatureSpec], policy: Path) -> str:
    """Copy the vocabulary of the artifact `directory` into a policy with these features, if they include an embedding.

    Returns:
        The digest of the vocabulary, "" if there is no embedding.

    Raises:
        UserError: there is an embedding, but the artifact has no vocabulary.
    """
    if not uses_embeddings(features):
        return ""
    vocabulary = read_vocabulary(directory / VOCABULARY)
    (policy / VOCABULARY).write_bytes(vocabulary.content)
    return vocabulary.digest


def check_vocabulary(policy: PolicyInfo, toolchain: Toolchain) -> None:
    """Raise UserError if the policy reads embeddings from another vocabulary than the training clang logs."""
    ours, theirs = policy.ir2vec_vocabulary, toolchain.built.get(DIGEST, "")
    if ours and ours != theirs:
        raise UserError(
            f"the policy reads embeddings of the IR2Vec vocabulary {ours[:12]}, but the clang in {toolchain.directory} "
            f"computes them from {f'the vocabulary {theirs[:12]}' if theirs else 'none'}",
            f"build the toolchain with --ir2vec-vocab and the policy's {VOCABULARY}, or train another policy",
        )


def random_vocabulary(entities: Sequence[str], dimension: int = DIMENSION) -> bytes:
    """Return a vocabulary of random vectors, the same for the same entities.

    Elements are +-1 / sqrt(dimension): a random projection, which approximately preserves distances between the counts
    of entities (Achlioptas 2003, doi:10.1016/S0022-0000(03)00025-4). Nothing is learned from code.
    """
    sections: dict[str, dict[str, list[float]]] = {section: {} for section in _SECTIONS}
    for entity in entities:
        signs = random.Random(f"{dimension} {entity}")
        vector = [round(signs.choice((-1, 1)) / math.sqrt(dimension), 6) for _ in range(dimension)]
        sections[_section(entity)][entity] = vector
    return json.dumps(sections).encode()


def _section(entity: str) -> str:
    if entity.endswith("Ty"):
        return "Types"
    return "Arguments" if entity in _OPERANDS or entity.startswith(("ICMP_", "FCMP_")) else "Opcodes"
