"""Runs policy.so from Python: the same generated code that the training clang runs."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import check_features
from components.core.policy.feature_encoding import num_elements
from components.core.policy.generated.codegen import word_offsets
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.platform.errors import UserError

_MAX_ACTIONS = 1 << 16
"""As the training clang has it (NativePolicy.cpp)."""


class NativePolicy:
    """A loaded policy.so. UserError if it cannot be loaded or is not a policy.

    `features`, `num_actions` and `problem` come from its description.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / SHARED_OBJECT
        if not path.is_file():
            raise UserError(f"{path} is missing", "export the policy again")
        try:
            library = ctypes.CDLL(str(path.resolve()))
            library.mlgo_policy_describe.restype = ctypes.c_char_p
            description = json.loads(library.mlgo_policy_describe())
            self.features = tuple(FeatureSpec.from_json(f) for f in description["features"])
            self.num_actions = int(description["num_actions"])
            self.problem = str(description["problem"])
            self._logits = library.mlgo_policy_logits
            if not 2 <= self.num_actions <= _MAX_ACTIONS:
                raise ValueError(f"it has {self.num_actions} actions")
        except (OSError, AttributeError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(f"{path} is not a native policy: {error}", "export the policy again") from None
        self._logits.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._logits.restype = None

    def logits(self, columns: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
        """Return float32 [N, num_actions] for N decisions, columns [N] or [N, *shape]; calls the C function N times."""
        rows = len(columns[self.features[0].name])
        # Each feature starts at a whole word, as in the generated class.
        *offsets, words = word_offsets(self.features)
        values = np.zeros((rows, words), np.int64)
        for feature, offset in zip(self.features, offsets, strict=True):
            typed = np.ascontiguousarray(columns[feature.name], feature.dtype).reshape(rows, num_elements(feature))
            first = offset * 8 // typed.itemsize
            values.view(feature.dtype)[:, first : first + typed.shape[1]] = typed
        output = np.empty((rows, self.num_actions), np.float32)
        row = np.empty(words, np.int64)
        inputs = (ctypes.c_void_p * len(offsets))(*(row.ctypes.data + 8 * offset for offset in offsets))
        address, stride = output.ctypes.data, output.strides[0]
        for i in range(rows):
            row[:] = values[i]
            self._logits(inputs, address + i * stride)
        return output

    def bind(self, features: Sequence[FeatureSpec]) -> Callable[[NDArray[np.void]], NDArray[np.float32]]:
        """Return a function for one decision at a time, in a few microseconds.

        It takes a record [1] of all `features`, packed in their order, and returns float32 [num_actions], which the
        next call overwrites. UserError if `features` lack some of the policy's, or differ in type or shape.
        """
        check_features(self.features, features)
        record = np.empty(1, np.dtype([(spec.name, spec.dtype, spec.shape) for spec in features]))
        ends = list(accumulate(spec.size_bytes for spec in features))
        starts = {spec.name: end - spec.size_bytes for spec, end in zip(features, ends, strict=True)}
        offsets = [starts[feature.name] for feature in self.features]
        inputs = (ctypes.c_void_p * len(offsets))(*(record.ctypes.data + offset for offset in offsets))
        output = np.empty(self.num_actions, np.float32)
        address, raw = output.ctypes.data, record.view(np.uint8)

        def logits(values: NDArray[np.void]) -> NDArray[np.float32]:
            raw[:] = values.view(np.uint8)
            self._logits(inputs, address)
            return output

        return logits
