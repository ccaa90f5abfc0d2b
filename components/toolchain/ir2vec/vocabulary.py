"""Vocabularies of IR2Vec: the vectors from which LLVM computes embeddings of functions.

A vocabulary is a JSON object of the sections "Opcodes", "Types" and "Arguments" (operands and predicates of
comparisons), each of them an object entity -> list of D numbers: the file of LLVM's `-ir2vec-vocab-path`
(llvm/Analysis/IR2Vec.h).
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, parse_json, read_bytes, typed

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


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary. UserError if it is missing, or vectors differ in length or are not finite."""
    try:
        content = read_bytes(path, _REMEDY)
    except MissingFile:
        raise UserError(f"there is no IR2Vec vocabulary {path}", _REMEDY) from None
    document = parse_json(content, str(path), _REMEDY)
    return Vocabulary(content, typed(document, _Document, path, "an IR2Vec vocabulary", _REMEDY).vectors)


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
