"""Specification of a policy input: LLVM's TensorSpec (llvm/Analysis/TensorSpec.h) without its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_DTYPES = {"int64_t": "int64", "int32_t": "int32", "float": "float32", "double": "float64", "int8_t": "int8"}
_LLVM_TYPES = {numpy: llvm for llvm, numpy in _DTYPES.items()}


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
    def from_json(cls, value: dict[str, Any]) -> FeatureSpec:
        """Parse the result of `to_json`, or a TensorSpec from a training log's header.

        Raises:
            KeyError, ValueError, TypeError: it is not a TensorSpec of a type that LLVM logs.
        """
        if value["type"] not in _DTYPES:
            raise ValueError(f"LLVM does not log tensors of type {value['type']!r}")
        shape = tuple(int(n) for n in value["shape"])
        if not all(0 < n < 2**31 for n in shape):
            raise ValueError(f"invalid tensor shape {list(shape)!r:.60}")
        return cls(str(value["name"]), _DTYPES[value["type"]], shape)
