"""What one input of a policy is: LLVM's TensorSpec (llvm/Analysis/TensorSpec.h) without its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_DTYPES = {"int64_t": "int64", "int32_t": "int32", "float": "float32", "double": "float64", "int8_t": "int8"}
_LLVM_TYPES = {numpy: llvm for llvm, numpy in _DTYPES.items()}


@dataclass(frozen=True)
class FeatureSpec:
    """Name, NumPy dtype and shape of a feature; `[1]` is how LLVM writes a scalar."""

    name: str
    dtype: str
    shape: tuple[int, ...] = (1,)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype as NumPy has it, in the byte order of the machine, as LLVM writes its logs."""
        return np.dtype(self.dtype)

    @property
    def size_bytes(self) -> int:
        """Bytes of one value, all its elements together."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.numpy_dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """The form that toolchain.json, policy.json and an emitted policy's description use."""
        return {"name": self.name, "type": _LLVM_TYPES[self.dtype], "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FeatureSpec:
        """The reverse of `to_json`; takes a TensorSpec out of a training log's header as well.

        Raises:
            KeyError, ValueError, TypeError: it is not a TensorSpec of a type that LLVM logs.
        """
        if value["type"] not in _DTYPES:
            raise ValueError(f"a tensor of type {value['type']!r} is none that LLVM logs")
        shape = tuple(int(n) for n in value["shape"])
        if not all(0 < n < 2**31 for n in shape):
            raise ValueError(f"a tensor of shape {list(shape)!r:.60}")
        return cls(str(value["name"]), _DTYPES[value["type"]], shape)
