"""Generates a policy as policy.h and policy.cpp, plain C++17 without dependencies.

The same policy.cpp is compiled into policy.so, which the training clang loads, and into the release clang. The names of
its C functions include the problem (mlgo_inlining_logits), so that one compiler can embed policies of two problems.
policy.so also exports two of them under names that do not depend on the problem:

    const char *mlgo_policy_describe(void);  // JSON: {"version": 1, "problem", "features": [{"name", "type", "shape"}],
                                             //        "num_actions", "trained_ranges", "unwind_tables"}
    void mlgo_policy_logits(const void *const *inputs, float *logits);

`inputs` holds one pointer per feature in the order of describe(), to the int64_t or float elements of its shape;
`logits` receives num_actions floats, -infinity for an action that the mask excludes. Both functions are thread-safe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import MAGNITUDE_SCALE, Float32, num_elements, num_layer_inputs
from components.core.policy.fixed_point import to_fixed_point
from components.core.policy.generated.bucket_tables import STORAGE_TYPES, FeatureTable, feature_tables

POLICY_HEADER = "policy.h"
POLICY_SOURCE = "policy.cpp"
SHARED_MACRO = "MLGO_POLICY_SHARED"
"""Defined when policy.cpp is compiled into policy.so."""

_BLOCKS = (32, 16, 8, 4)
"""Numbers of outputs of a layer whose sums stay in registers: SSE2 has 16 registers of four floats."""


@dataclass(frozen=True)
class Training:
    """What a compiler learns from the generated code about the training of a policy.

    Attributes:
        ranges: feature -> smallest and largest trained value: {"callee_users": (0, 312)}; outside of them the heuristic
            decides.
        unwind_tables: whether the heuristic decides where neither caller nor callee has an unwind table.
    """

    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unwind_tables: bool = False

    @classmethod
    def of(cls, info: PolicyInfo) -> Training:
        """Return what the compiler needs: of the ranges those of the problem's `use_counts`."""
        counts = problems.get(info.problem).policy.use_counts
        ranges = {name: info.trained_ranges[name] for name in counts if name in info.trained_ranges}
        return cls(ranges, bool(info.unwind_tables))


def generate(
    policy: DensePolicy,
    directory: Path,
    optional_features: Mapping[str, float] | None = None,
    training: Training | None = None,
) -> tuple[Path, Path]:
    """Write policy.h and policy.cpp into `directory` and return their paths. The same policy gives the same bytes.

    Args:
        optional_features: feature -> value that the policy assumes where a compiler lacks it; they hold in release
            clangs, which do not set features that they do not have.
        training: where the compiler lets the policy decide; None for everywhere.
    """
    header, source = directory / POLICY_HEADER, directory / POLICY_SOURCE
    training = training or Training()
    header.write_text(generate_header(policy, optional_features or {}, training), encoding="utf-8")
    source.write_text(generate_source(policy, training), encoding="utf-8")
    return header, source


def description_json(
    problem: str, features: Sequence[FeatureSpec], num_actions: int, training: Training | None = None
) -> str:
    """Return the same JSON from the properties that it describes."""
    specs = [feature.to_json() for feature in features]
    description = {"version": 1, "problem": problem, "features": specs, "num_actions": num_actions}
    if training and training.ranges:
        description["trained_ranges"] = {name: list(limits) for name, limits in training.ranges.items()}
    if training and training.unwind_tables:
        description["unwind_tables"] = True
    return json.dumps(description)


def generate_header(policy: DensePolicy, optional_features: Mapping[str, float], training: Training) -> str:
    """Return policy.h: the class that a release clang instantiates, with ReleaseModeModelRunner<>'s interface."""
    problem = problems.get(policy.problem)
    *offsets, words = word_offsets(policy.features)
    initial = np.zeros(words, np.int64)
    for feature, offset in zip(policy.features, offsets, strict=True):
        elements = initial[offset : offset + 1].view(feature.dtype)
        elements[:1] = optional_features.get(feature.name, 0)
    return _TEMPLATES.get_template("policy.h.jinja").render(
        name=policy.problem,
        guard=f"MLGO_POLICY_{policy.problem.upper()}_H",
        model_class=problem.llvm.model_class,
        decision=problem.policy.decision,
        num_features=len(policy.features),
        offsets=offsets,
        num_words=words,
        initial=[_int64_literal(word) for word in initial.tolist()] if initial.any() else [],
        macro=f"MLGO_{policy.problem.upper()}",
        trained_ranges=[(name, *map(_int64_literal, limits)) for name, limits in training.ranges.items()],
        unwind_tables=training.unwind_tables,
    )


def _int64_literal(value: int) -> str:
    """Return a C++ literal; -2^63 has none, because the sign is an operator and 2^63 overflows."""
    return f"({value + 1} - 1)" if value == -(2**63) else str(value)


def word_offsets(features: Sequence[FeatureSpec]) -> list[int]:
    """Return the offset of each feature in a buffer of eight-byte words, and at the end the size of the buffer."""
    return [0, *accumulate(-(-feature.size_bytes // 8) for feature in features)]


def generate_source(policy: DensePolicy, training: Training | None = None) -> str:
    tables, first_layer = feature_tables(policy)
    layers = [_pad_outputs(weights, bias) for weights, bias in (first_layer, *policy.layers[1:])]
    masked = policy.mask is not None
    return _TEMPLATES.get_template("policy.cpp.jinja").render(
        name=policy.problem,
        description=description_json(policy.problem, policy.features, policy.num_actions, training),
        shared_macro=SHARED_MACRO,
        num_actions=policy.num_actions,
        max_inputs=max(
            num_layer_inputs(policy.network_features, policy.tensor_features, masked),
            *(bias.shape[0] for _, bias in layers),
        ),
        storages=STORAGE_TYPES,
        feature_names=[feature.name for feature in policy.features],
        name_bytes=max(len(feature.name) for feature in policy.features) + 1,
        **_feature_tables(tables),
        network=[_layer(weights, bias) for weights, bias in layers],
        num_quantile_rows=sum(len(table.rows) for table in tables),
        magnitude_scale=_float_literal(MAGNITUDE_SCALE),
        usual_magnitudes=[] if masked else [_float_literal(table.usual_magnitude) for table in tables],
        mask=_input(policy, policy.mask) if policy.mask is not None else None,
        inputs=[_input(policy, feature) for feature in policy.network_features],
        tensors=_tensors(policy, len(first_layer[0])),
        limits=[(_index(policy, name), _int64_literal(limit)) for name, limit in policy.limits.items()],
        heuristic=[_index(policy, name) for name in policy.heuristic] if policy.limits else [],
    )


def _index(policy: DensePolicy, name: str) -> int:
    return [feature.name for feature in policy.features].index(name)


def _input(policy: DensePolicy, feature: FeatureSpec) -> dict[str, object]:
    """Return a feature as the template needs it; position: among the inputs of the network, the mask has none."""
    return {
        "index": policy.features.index(feature),
        "position": policy.network_features.index(feature) if feature in policy.network_features else None,
        "type": STORAGE_TYPES[feature.dtype],
        "per_action": num_elements(feature) > 1,
        "element_bytes": feature.numpy_dtype.itemsize,
    }


def _tensors(policy: DensePolicy, num_rows: int) -> list[dict[str, object]]:
    """Return the tensors as the template needs them; their rows are the last of the first layer's `num_rows`."""
    row = num_rows - sum(map(num_elements, policy.tensor_features))
    tensors: list[dict[str, object]] = []
    for feature in policy.tensor_features:
        index, elements = policy.features.index(feature), num_elements(feature)
        tensors.append({"index": index, "elements": elements, "first_row": row, "type": STORAGE_TYPES[feature.dtype]})
        row += elements
    return tensors


def _layer(weights: Float32, bias: Float32) -> dict[str, object]:
    """Return a layer as the template needs it. Weights are 16-bit multiples of a scale if these are exact."""
    width = bias.shape[0]
    block = next(block for block in _BLOCKS if width % block == 0)
    layer = {"width": width, "block": block, "biases": _float_literals(bias)}
    if (fixed_point := to_fixed_point(weights)) is None:
        return {**layer, "multiples": None, "weights": _float_literals(weights)}
    numbers, scale = fixed_point
    return {**layer, "multiples": [str(n) for n in numbers.ravel().tolist()], "scale": _float_literal(scale)}


def _feature_tables(tables: tuple[FeatureTable, ...]) -> dict[str, object]:
    """Return the records of the features, their boundaries by storage, and the ranks of the boundaries."""
    pools: dict[str, list[NDArray[np.generic]]] = {storage: [] for storage in STORAGE_TYPES}
    records, row, rank = [], 0, 0
    for t in tables:
        first_boundary = sum(map(len, pools[t.storage]))
        pools[t.storage].append(t.boundaries)
        q = t.usual_q
        numbers = [_float_literal(t.rank_scale), _float_literal(q), _float_literal(np.sqrt(q))]
        first_rank = 0 if t.row_per_bucket else rank  # the bucket selects the row, without a rank
        indices = [first_boundary, first_rank, row, len(t.boundaries), t.usual_bucket]
        record = [*numbers, *map(str, indices), f"Storage::{t.storage}", str(t.row_per_bucket).lower()]
        usual = [] if t.storage == "float32" else _number_literals(t.storage, [t.boundaries[t.usual_bucket - 1 :][:1]])
        records.append([*(usual or ["0"]), *record])
        row += len(t.rows)
        rank += 0 if t.row_per_bucket else len(t.ranks)
    return {
        "records": records,
        "boundaries": {storage: _number_literals(storage, arrays) for storage, arrays in pools.items()},
        "ranks": [str(r) for t in tables if not t.row_per_bucket for r in t.ranks],
    }


def _number_literals(storage: str, arrays: list[NDArray[np.generic]]) -> list[str]:
    values = [value for array in arrays for value in array.tolist()]
    if storage == "float32":
        return [_float_literal(value) for value in values]
    # C++ has no literal for the least int64.
    return [str(v) if v > -(2**63) else "INT64_MIN" for v in values]


def _pad_outputs(weights: Float32, bias: Float32) -> tuple[Float32, Float32]:
    """Pad outputs with zeros to whole vectors of four. relu keeps the padding at 0, the logits omit it.

    The rows of the next layer need no padding: only units above zero address them.
    """
    padding = -weights.shape[1] % _BLOCKS[-1]
    return np.pad(weights, ((0, 0), (0, padding))), np.pad(bias, (0, padding))


def _rows(items: list[str]) -> str:
    """Return the elements of an array, 16 per line."""
    # C++ has no empty arrays; the one element is never read.
    return ",\n".join(", ".join(items[i : i + 16]) for i in range(0, len(items), 16)) or "0"


def _float_literals(values: Float32) -> list[str]:
    return [_float_literal(value) for value in values.ravel().tolist()]


def _float_literal(value: float | np.float32) -> str:
    """Return an exact float literal, hexadecimal: that needs no search for the shortest decimal of the same value."""
    return float(value).hex() + "f"


def string_literal(text: str) -> str:
    """Return the text as a C++ string literal."""
    return json.dumps(text)  # ASCII with backslash escapes, which C++ reads the same


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("cpp")),
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters.update(rows=_rows, literal=string_literal)
