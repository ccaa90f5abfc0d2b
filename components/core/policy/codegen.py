"""Generates a policy as policy.h and policy.cpp, plain C++17 without dependencies.

The same policy.cpp is compiled into policy.so, which the training clang loads, and into the release clang. The names of
its C functions include the problem (mlgo_inlining_logits), so that one compiler can embed policies of two problems.
policy.so also exports two of them under names that do not depend on the problem:

    const char *mlgo_policy_describe(void);  // JSON: {"version": 1, "problem", "features": [{"name", "type", "shape"}],
                                             //        "num_actions"}
    void mlgo_policy_logits(const void *const *inputs, float *logits);

`inputs` holds one pointer per feature in the order of describe(), to the int64_t or float elements of its shape;
`logits` receives num_actions floats, -infinity for an action that the mask excludes. Both functions are thread-safe.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.policy.bucket_tables import STORAGE_TYPES, FeatureTable, feature_tables
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import MAGNITUDE_SCALE, Float32, inputs_per_feature, num_elements
from components.core.policy.fixed_point import to_fixed_point

POLICY_HEADER = "policy.h"
POLICY_SOURCE = "policy.cpp"
SHARED_MACRO = "MLGO_POLICY_SHARED"
"""Defined when policy.cpp is compiled into policy.so."""

_INFERENCE = Path(__file__).with_name("inference.inc")
_MAGNITUDES = Path(__file__).with_name("magnitudes.inc")
_ACTION_RANKS = Path(__file__).with_name("action_ranks.inc")
_BLOCKS = (32, 16, 8, 4)
"""Numbers of outputs of a layer whose sums stay in registers: SSE2 has 16 registers of four floats."""


def generate(policy: DensePolicy, directory: Path) -> tuple[Path, Path]:
    """Write policy.h and policy.cpp into `directory` and return their paths. The same policy gives the same bytes."""
    header, source = directory / POLICY_HEADER, directory / POLICY_SOURCE
    header.write_text(generate_header(policy), encoding="utf-8")
    source.write_text(generate_source(policy), encoding="utf-8")
    return header, source


def describe(policy: DensePolicy) -> str:
    """Return the JSON that mlgo_policy_describe() returns; "type" is LLVM's name of the element type."""
    return description_json(policy.problem, policy.features, policy.num_actions)


def description_json(problem: str, features: Sequence[FeatureSpec], num_actions: int) -> str:
    """Return the same JSON from the properties that it describes."""
    specs = [feature.to_json() for feature in features]
    return json.dumps({"version": 1, "problem": problem, "features": specs, "num_actions": num_actions})


def generate_header(policy: DensePolicy) -> str:
    """Return policy.h: the class that a release clang instantiates, with ReleaseModeModelRunner<>'s interface."""
    problem = problems.get(policy.problem)
    name = policy.problem
    guard = f"MLGO_POLICY_{name.upper()}_H"
    count = len(policy.features)
    *offsets, words = word_offsets(policy.features)
    return f"""\
// Written by mlgo-pipeline: a policy for {name}. Do not edit; export the policy again instead.
#ifndef {guard}
#define {guard}

#include <cstdint>
#include <string>

extern "C" {{
const char *mlgo_{name}_describe(void);
void mlgo_{name}_logits(const void *const *inputs, float *logits);
int64_t mlgo_{name}_decide(const void *const *inputs);
int mlgo_{name}_feature_index(const char *feature);
}}

namespace llvm {{

/// The interface that ReleaseModeModelRunner requires: buffers by index, and Run().
class {problem.model_class} {{
public:
  {problem.model_class}() {{
    for (int I = 0; I < {count}; ++I)
      Inputs[I] = arg_data(I);
  }}
  {problem.model_class}(const {problem.model_class} &) = delete;
  {problem.model_class} &operator=(const {problem.model_class} &) = delete;

  int LookupArgIndex(const std::string &Name) const {{
    return Name.compare(0, 5, "feed_") == 0 ? mlgo_{name}_feature_index(Name.c_str() + 5) : -1;
  }}
  int LookupResultIndex(const std::string &Name) const {{
    return Name == "fetch_{problem.decision}" ? 0 : -1;
  }}
  void *arg_data(int Index) {{ return &Arguments[Offsets[Index]]; }}
  void *result_data(int) {{ return &Decision; }}
  void Run() {{ Decision = mlgo_{name}_decide(Inputs); }}

private:
  static constexpr int Offsets[] = {{{", ".join(map(str, offsets))}}};
  int64_t Arguments[{words}] = {{}}; // each feature starts at a whole word
  const void *Inputs[{count}];
  int64_t Decision = 0;
}};

}} // namespace llvm

#endif // {guard}
"""


def word_offsets(features: Sequence[FeatureSpec]) -> list[int]:
    """Return the offset of each feature in a buffer of eight-byte words, and at the end the size of the buffer."""
    return [0, *accumulate(-(-feature.size_bytes // 8) for feature in features)]


def generate_source(policy: DensePolicy) -> str:
    """Return policy.cpp: tables, inference.inc, magnitudes.inc or with a mask action_ranks.inc, and the C functions."""
    name = policy.problem
    tables, first_layer = feature_tables(policy)
    layers = [_pad_outputs(weights, bias) for weights, bias in (first_layer, *policy.layers[1:])]
    widths = [bias.shape[0] for _, bias in layers]
    masked = policy.mask is not None
    max_inputs = max(inputs_per_feature(masked) * len(tables), *widths)
    parts = [
        f"// Written by mlgo-pipeline: a policy for {name}. Do not edit; export the policy again instead.",
        "#include <cstdint>\n\nnamespace {\n",
        f"constexpr unsigned num_features = {len(tables)};",
        f"constexpr unsigned num_actions = {policy.num_actions};",
        f"constexpr unsigned max_inputs = {max_inputs};\n",
        *_feature_arrays(tables, policy),
    ]
    parts += ["", _INFERENCE.read_text(encoding="utf-8")]
    for i, (weights, bias) in enumerate(layers):
        parts += _weights(i, weights)
        parts.append(_array("float", f"biases_{i}", _float_literals(bias), align=16))
    num_quantile_rows = len(first_layer[0]) - len(tables)
    if policy.mask is None:
        parts.append(f"constexpr unsigned first_magnitude_row = {num_quantile_rows};")
        parts.append(f"constexpr float magnitude_scale = {_float_literal(MAGNITUDE_SCALE)};")
        parts.append(_array("float", "usual_magnitudes", [_float_literal(table.usual_magnitude) for table in tables]))
        parts.append(_MAGNITUDES.read_text(encoding="utf-8"))
    else:
        parts.append(f"constexpr unsigned first_action_rank_row = {num_quantile_rows};\n")
        parts.append(_ACTION_RANKS.read_text(encoding="utf-8"))
    parts += ["} // namespace\n", _functions(policy, widths)]
    return "\n".join(parts)


def _functions(policy: DensePolicy, widths: list[int]) -> str:
    name = policy.problem
    body = _score_all(widths) if policy.mask is None else _score_allowed(policy, policy.mask, widths)
    return f"""\
extern "C" {{

const char *mlgo_{name}_describe(void) {{ return {string_literal(describe(policy))}; }}

void mlgo_{name}_logits(const void *const *inputs, float *logits) {{
{body}
}}

// The action with the greatest logit; in a tie the first one.
int64_t mlgo_{name}_decide(const void *const *inputs) {{
  float logits[num_actions];
  mlgo_{name}_logits(inputs, logits);
  unsigned best = 0;
  for (unsigned a = 1; a < num_actions; ++a)
    if (logits[a] > logits[best])
      best = a;
  return best;
}}

// The index of a feature in describe(), or -1.
int mlgo_{name}_feature_index(const char *feature) {{
  for (unsigned i = 0; i < sizeof feature_names / sizeof *feature_names; ++i)
    if (__builtin_strcmp(feature_names[i], feature) == 0)
      return static_cast<int>(i);
  return -1;
}}

#ifdef {SHARED_MACRO}
__attribute__((visibility("default"))) const char *mlgo_policy_describe(void) {{
  return mlgo_{name}_describe();
}}
__attribute__((visibility("default"))) void mlgo_policy_logits(const void *const *inputs, float *logits) {{
  mlgo_{name}_logits(inputs, logits);
}}
#endif

}} // extern "C"
"""


def _score_all(widths: list[int]) -> str:
    """Return the body that computes the logits of all actions in one pass of the layers."""
    return f"""\
{_layers("inputs", widths, indent=2)}
  for (unsigned a = 0; a < num_actions; ++a)
    logits[a] = layer_{len(widths) - 1}[a];"""


def _score_allowed(policy: DensePolicy, mask: FeatureSpec, widths: list[int]) -> str:
    """Return the body that passes each allowed action's element of each feature through the layers."""
    assignments = [
        f"  at[{i}] = static_cast<const char *>(inputs[{policy.features.index(f)}])"
        + ("" if num_elements(f) == 1 else f" + a * {f.numpy_dtype.itemsize}")
        + ";"
        for i, f in enumerate(policy.network_features)
    ]
    ctype = STORAGE_TYPES[mask.dtype]
    pointers = "\n".join(f"  {assignment}" for assignment in assignments)
    comparisons = "\n".join(
        f"  compare<{STORAGE_TYPES[f.dtype]}>(inputs[{policy.features.index(f)}], allowed, count, {i}, action_ranks);"
        for i, f in enumerate(policy.network_features)
        if num_elements(f) > 1
    )
    return f"""\
  const {ctype} *mask = static_cast<const {ctype} *>(inputs[{policy.features.index(mask)}]);
  uint8_t allowed[num_actions];
  unsigned count = 0;
  for (unsigned a = 0; a < num_actions; ++a) {{
    logits[a] = -__builtin_inff();
    allowed[count] = static_cast<uint8_t>(a);
    count += mask[a] != 0 ? 1 : 0;
  }}
  float action_ranks[num_actions][num_features];
  for (unsigned k = 0; k < count; ++k)
    for (float &rank : action_ranks[k])
      rank = 0.0f;
{comparisons}
  for (unsigned k = 0; k < count; ++k) {{
    const unsigned a = allowed[k];
    const void *at[num_features];
{pointers}
{_layers("at", widths, indent=4, action_ranks=True)}
    logits[a] = layer_{len(widths) - 1}[0];
  }}"""


def _layers(inputs: str, widths: list[int], indent: int, action_ranks: bool = False) -> str:
    lines = ["ActiveInputs active;", f"activate_features({inputs}, active);"]
    if action_ranks:
        lines.append("activate_action_ranks(action_ranks[k], active);")
    for i, width in enumerate(widths):
        block = next(b for b in _BLOCKS if width % b == 0)
        lines.append(f"float layer_{i}[{width}];")
        lines.append(f"dense<{width}, {block}>(weights_{i}, biases_{i}, active, layer_{i});")
        if i + 1 < len(widths):
            lines.append(f"activate_units<{width}>(layer_{i}, active);")
    return "\n".join(" " * indent + line for line in lines)


def _weights(layer: int, weights: Float32) -> list[str]:
    """Define `weights_<layer>`: 16-bit multiples, expanded when the program starts, if these are exact; else floats."""
    if (fixed_point := to_fixed_point(weights)) is None:
        return [_array("float", f"weights_{layer}", _float_literals(weights), align=16)]
    numbers, scale = fixed_point
    return [
        _array("int16_t", f"multiples_{layer}", [str(n) for n in numbers.ravel().tolist()]),
        f"const Expanded<sizeof multiples_{layer} / 2> expanded_{layer}(multiples_{layer}, {_float_literal(scale)});",
        f"const float *const weights_{layer} = expanded_{layer}.values;",
    ]


def _feature_arrays(tables: tuple[FeatureTable, ...], policy: DensePolicy) -> list[str]:
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
        records.append("  {" + ", ".join([*(usual or ["0"]), *record]) + "},")
        row += len(t.rows)
        rank += 0 if t.row_per_bucket else len(t.ranks)
    ranks = [str(r) for t in tables if not t.row_per_bucket for r in t.ranks]
    return [
        "enum class Storage : uint8_t { " + ", ".join(STORAGE_TYPES) + " };\n",
        "struct Feature {\n"
        "  int64_t usual_value;\n"
        "  float rank_scale, usual_q, usual_sqrt_q;\n"
        "  uint32_t first_boundary, first_rank;\n"
        "  uint16_t first_row, boundaries, usual_bucket;\n"
        "  Storage storage;\n"
        "  bool row_per_bucket;\n"
        "};\n",
        "const Feature features[] = {\n" + "\n".join(records) + "\n};",
        # Fixed-size entries: an array of pointers would need a relocation per feature in a shared object.
        f"const char feature_names[][{max(len(f.name) for f in policy.features) + 1}] = {{\n"
        + "\n".join(f"  {string_literal(f.name)}," for f in policy.features)
        + "\n};",
        *(
            _array(STORAGE_TYPES[storage], f"boundaries_{storage}", _number_literals(storage, arrays))
            for storage, arrays in pools.items()
        ),
        _array("uint16_t", "ranks", ranks),
    ]


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


def _array(ctype: str, name: str, items: list[str], align: int = 0) -> str:
    # C++ has no empty arrays; the one element is never read.
    lines = [", ".join(items[i : i + 16]) for i in range(0, len(items), 16)] or ["0"]
    alignas = f"alignas({align}) " if align else ""
    return f"{alignas}const {ctype} {name}[] = {{\n" + ",\n".join(lines) + "};"


def _float_literals(values: Float32) -> list[str]:
    return [_float_literal(value) for value in values.ravel().tolist()]


def _float_literal(value: float | np.floating) -> str:
    """Return an exact float literal, hexadecimal: that needs no search for the shortest decimal of the same value."""
    return float(value).hex() + "f"


def string_literal(text: str) -> str:
    """Return the text as a C++ string literal."""
    return json.dumps(text)  # ASCII with backslash escapes, which C++ reads the same
