"""The NumPy form of a policy, from which the SavedModel, the TFLite model and the generated C++ are derived.

Dense layers with ReLU between them compute the logits of the actions from the encoded features (`feature_encoding.py`).
For a problem with a mask the same layers score each action by its own features and by the scalar ones, a logit each; an
action that the mask excludes has the logit -inf.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import IMPORTED, POLICY_JSON, load_policy_info
from components.core.policy.feature_encoding import (
    Float32,
    expand,
    layer_inputs,
    num_elements,
    num_layer_inputs,
    tensor_features,
)
from components.core.policy.trained_limits import beyond_limits, can_be_limited, heuristic_logits
from components.platform.errors import UserError
from components.platform.storage.input_files import open_regular, parse_json

WEIGHTS_FILE = "weights.npz"
_VERSION = 2
MAX_BOUNDARIES = 65535
"""The generated C++ keeps bucket indices as uint16."""

NPZ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
)
"""Exceptions of numpy and zipfile for a damaged .npz, such as a shape too large for memory, an unknown compression."""

Layer = tuple[Float32, Float32]


@dataclass(frozen=True)
class DensePolicy:
    """A policy as plain arrays.

    Invariants (checked): every feature but the mask is a scalar (shape product 1) or, after all scalars, a tensor; with
    a mask it is a scalar or has as many elements as the mask. Features but the mask and, without a mask, tensors have
    one or more nondecreasing boundaries. Layer i is (W float32 [inputs, outputs], b float32 [outputs]) with inputs =
    num_layer_inputs for the first and the outputs of the layer before otherwise; relu follows every layer but the last,
    whose outputs are the logits of all actions, or with a mask the logit of one. `limits` are the largest values of
    int64 features that the network was trained on: where a feature is larger, the heuristic's action has the logit 1
    and the other one -1. Only problems whose features tell the heuristic's decision can have limits.
    """

    problem: str
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    layers: tuple[Layer, ...]
    limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mask = self.mask
        if mask is not None and self.layers[-1][1].shape != (1,):
            raise ValueError(f"with a mask the last layer scores one action, this one {self.layers[-1][1].shape}")
        sizes = [1] if mask is None else [1, num_elements(mask)]
        if self.tensor_features and self.features != (*self.network_features, *self.tensor_features):
            raise ValueError("features of several elements must follow the others")
        for feature in self.network_features:
            if num_elements(feature) not in sizes:
                allowed = f"only scalars and tensors of {sizes[-1]}"
                raise ValueError(f"feature {feature.name} has shape {feature.shape}; {allowed} are supported")
            boundaries = self.buckets.get(feature.name)
            if boundaries is None:
                raise ValueError(f"no boundaries for feature {feature.name}")
            nondecreasing = boundaries.ndim == 1 and bool(np.all(np.diff(boundaries) >= 0))
            if not nondecreasing or not 1 <= len(boundaries) <= MAX_BOUNDARIES:
                raise ValueError(f"boundaries of {feature.name} are not a nondecreasing list")
        self._check_limits()
        inputs = num_layer_inputs(self.network_features, self.tensor_features, mask is not None)
        for i, (weights, bias) in enumerate(self.layers):
            if weights.ndim != 2 or weights.shape[0] != inputs or bias.shape != weights.shape[1:]:
                raise ValueError(f"layer {i} is {weights.shape} + {bias.shape}, expected {inputs} inputs")
            if weights.dtype != np.float32 or bias.dtype != np.float32:
                raise ValueError(f"layer {i} is {weights.dtype}, expected float32")
            if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
                raise ValueError(f"layer {i} has weights that are not finite numbers")
            inputs = weights.shape[1]

    def _check_limits(self) -> None:
        specs = {feature.name: feature for feature in self.features}
        if self.limits and not all(name in specs and can_be_limited(specs[name]) for name in self.heuristic):
            raise ValueError(f"limits of features, but the features of {self.problem} do not tell the heuristic")
        for name, limit in self.limits.items():
            if name not in specs or not can_be_limited(specs[name]):
                raise ValueError(f"a limit of {name}, which is no feature of one int64")
            if type(limit) is not int or not -(2**63) <= limit < 2**63:
                raise ValueError(f"the limit {limit!r} of {name} is no int64")

    @cached_property
    def mask(self) -> FeatureSpec | None:
        """The feature that marks the allowed actions. ValueError if the problem has one and this policy does not."""
        name = problems.get(self.problem).policy.mask
        if name is None:
            return None
        if found := [feature for feature in self.features if feature.name == name]:
            return found[0]
        raise ValueError(f"the mask {name} is not among the features")

    @property
    def heuristic(self) -> tuple[str, str]:
        """("cost_estimate", "threshold"): the heuristic takes action 1 if the first is less; "" if no features tell."""
        return problems.get(self.problem).policy.heuristic or ("", "")

    @cached_property
    def network_features(self) -> tuple[FeatureSpec, ...]:
        """The features that have boundaries, in order: all but the mask and `tensor_features`."""
        return tuple(f for f in self.features if f != self.mask and f not in self.tensor_features)

    @cached_property
    def tensor_features(self) -> tuple[FeatureSpec, ...]:
        """The features of several elements, in order; none if there is a mask."""
        return tensor_features(self.features, self.mask is not None)

    @cached_property
    def num_actions(self) -> int:
        """Number of actions of a decision: elements of the mask, or outputs of the last layer."""
        return num_elements(self.mask) if self.mask is not None else int(self.layers[-1][1].shape[0])

    def inputs(self, columns: Mapping[str, NDArray[np.generic]]) -> Float32:
        """Return the layers' inputs for N decisions, [N, 2 * F + E] or with a mask [N, A, 2 * F].

        Args:
            columns: feature name -> values, [N], [N, 1] or [N, *shape]; other columns are ignored.
        """
        return layer_inputs(self.network_features, self.buckets, columns, self.mask, self.tensor_features)

    def logits(self, columns: Mapping[str, NDArray[np.generic]]) -> Float32:
        """Return float32 [N, num_actions] for N decisions, -inf for excluded actions; the reference that the other
        forms are compared with."""
        logits = self.logits_of_inputs(self.inputs(columns))
        if self.limits:
            beyond = beyond_limits(self.limits, columns)[:, None]
            return np.where(beyond, heuristic_logits(problems.get(self.problem), columns), logits)
        if self.mask is None:
            return logits
        allowed = np.asarray(columns[self.mask.name]).reshape(logits.shape) != 0
        return np.where(allowed, logits, np.float32(-np.inf))

    def logits_of_inputs(self, inputs: Float32) -> Float32:
        """Return float32 [N, num_actions] from `inputs()`, including excluded actions and decisions beyond limits."""
        x = expand(inputs, self.mask is not None)
        for i, (weights, bias) in enumerate(self.layers):
            x = x @ weights + bias
            if i + 1 < len(self.layers):
                x = np.maximum(x, 0)
        return x if self.mask is None else x[..., 0]

    def save(self, directory: Path) -> Path:
        """Write weights.npz: features (JSON), buckets/<feature>, layers/<i>/weights and layers/<i>/bias."""
        arrays: dict[str, NDArray[np.generic]] = {}
        for feature in self.network_features:
            arrays[f"buckets/{feature.name}"] = self.buckets[feature.name]
        for i, (weights, bias) in enumerate(self.layers):
            arrays[f"layers/{i}/weights"], arrays[f"layers/{i}/bias"] = weights, bias
        features = [f.to_json() for f in self.features]
        header = {"version": _VERSION, "problem": self.problem, "features": features, "layers": len(self.layers)}
        if self.limits:
            header["limits"] = dict(self.limits)
        path = directory / WEIGHTS_FILE
        write_npz(path, header=np.array(json.dumps(header)), **arrays)
        return path


def write_npz(path: Path, /, **arrays: NDArray[Any]) -> None:
    """Write arrays as `np.savez` does, through a buffer in memory.

    On a full disk zipfile would fail a second time when it is garbage-collected, after the error was reported.
    """
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    path.write_bytes(stream.getbuffer())


def read_dense(directory: Path) -> DensePolicy:
    """Read weights.npz of a policy directory. UserError if it is missing, truncated or not such a file."""
    path = directory / WEIGHTS_FILE
    try:
        # Not np.load(path), which would wait for a writer of a named pipe.
        with os.fdopen(open_regular(path), "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            header = parse_json(str(arrays["header"]), f"the header of {path}", "make the policy again")
            if header["version"] != _VERSION:
                problem = f"{path} has version {header['version']}, this program reads {_VERSION}"
                raise UserError(problem, "train the policy again: its network has other inputs")
            features = tuple(FeatureSpec.from_json(f) for f in header["features"])
            return DensePolicy(
                problem=header["problem"],
                features=features,
                buckets={f.name: arrays[key] for f in features if (key := f"buckets/{f.name}") in arrays},
                layers=tuple(
                    (arrays[f"layers/{i}/weights"], arrays[f"layers/{i}/bias"]) for i in range(header["layers"])
                ),
                limits=header.get("limits", {}),
            )
    except FileNotFoundError:
        if (directory / POLICY_JSON).is_file() and load_policy_info(directory).trained_by == IMPORTED:
            raise UserError(
                f"{directory} was imported: this project does not know its layers, and it has no {WEIGHTS_FILE}",
                "evaluate it, or build a release clang with it (--embed tf-aot); train and tune from another policy",
            ) from None
        raise UserError(
            f"{directory} is not a policy: it has no {WEIGHTS_FILE}",
            "pass the output directory of the warmstart or of the ppo step",
        ) from None
    except NPZ_ERRORS as error:
        raise UserError(f"{path} is damaged: {error}", "delete the policy directory and make it again") from None
