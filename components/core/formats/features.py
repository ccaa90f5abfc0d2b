"""Specification of a policy input: LLVM's TensorSpec (llvm/Analysis/TensorSpec.h) without its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

_DTYPES = {"int64_t": "int64", "int32_t": "int32", "float": "float32", "double": "float64", "int8_t": "int8"}
_LLVM_TYPES = {numpy: llvm for llvm, numpy in _DTYPES.items()}


class TensorSpec(Struct):
    """A feature in JSON, as LLVM writes it in the header of a training log."""

    name: str
    type: Literal["int64_t", "int32_t", "float", "double", "int8_t"]
    shape: tuple[Annotated[int, Meta(gt=0, lt=2**31)], ...]

    @property
    def feature(self) -> FeatureSpec:
        return FeatureSpec(self.name, _DTYPES[self.type], self.shape)


@dataclass(frozen=True)
class FeatureSpec:
    """Name, NumPy dtype and shape of a feature; LLVM writes a scalar as shape `[1]`."""

    name: str
    dtype: str
    shape: tuple[int, ...] = (1,)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, in the machine's byte order, in which LLVM writes its logs."""
        return np.dtype(self.dtype)

    @property
    def size_bytes(self) -> int:
        """Size of one value with all its elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.numpy_dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """Return the form used by toolchain.json, policy.json and a native policy's description."""
        return {"name": self.name, "type": _LLVM_TYPES[self.dtype], "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: object) -> FeatureSpec:
        """Parse the result of `to_json`, or a TensorSpec from a training log's header.

        Raises:
            ValueError: it is not a TensorSpec of a type that LLVM logs.
        """
        return msgspec.convert(value, TensorSpec).feature
