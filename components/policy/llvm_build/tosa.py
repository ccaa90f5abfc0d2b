"""Writes a policy as MLIR in the TOSA dialect, from which LLVM's build can generate C++ (LLVM_MLGO_MODELS).

LLVM after 22 takes models of that form in place of TensorFlow's (llvm/llvm-project#199007, #212650). The function has
the signature of its test models: an int64 scalar for each feature, named by tf_saved_model.index_path, and a decision.
Operations are those of TOSA 1.0 as MLIR 22 spells them. TOSA has no division, no bit patterns and no int64, so:

- a quantile is the number of boundaries that are reached, times a rounded reciprocal, where `quantiles` divides: the
  last bit may differ;
- the logarithm to base 2, linear between powers of two, is the sum of clamp(y / 2**k - 1, 0, 1) over k;
- features are compared with their boundaries as int64, which MLIR lowers although TOSA does not specify it.

Problems with a mask have no such form: their actions are ranked by pairs, and LLVM's models of them have other inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import MAGNITUDE_SCALE

_POWERS = 63
"""Powers of two up to the magnitude of any int64."""
_NEVER = np.iinfo(np.int64).max
"""Fills the rows of features with fewer boundaries; no feature of LLVM has this value."""
_ELEMENTS = {"i64": np.int64, "f32": np.float32}


def tosa_module(policy: DensePolicy) -> str:
    """Return an MLIR module with the function `action`, which returns the greedy decision of a policy.

    Raises:
        ValueError: the policy's problem has a mask, or a feature is a tensor.
    """
    if policy.mask is not None or policy.tensor_features:
        raise ValueError(f"policies with a mask or tensors have no form in TOSA, this one is for {policy.problem}")
    names = [feature.name for feature in policy.network_features]
    body = _Body()
    inputs = _inputs(body, policy, names)
    outputs = _layers(body, policy, inputs, 2 * len(names))
    if policy.limits:
        outputs = _heuristic_beyond_limits(body, policy, names, outputs)
    index = body.add("tosa.argmax", [outputs], [1, 1], "i32", "{axis = 2 : i32}")
    decision = body.reshape(body.cast(index, "i64"), [])
    arguments = ", ".join(
        f'%feature{i}: tensor<i64> {{tf_saved_model.index_path = ["{name}"]}}' for i, name in enumerate(names)
    )
    result = problems.get(policy.problem).policy.decision
    return (
        "module attributes {tf_saved_model.semantics} {\n"
        f"  func.func @action({arguments})\n"
        f'      -> (tensor<i64> {{tf_saved_model.index_path = ["{result}"]}})\n'
        '      attributes {tf_saved_model.exported_names = ["action"]} {\n'
        f"{body.text()}    return {decision.name} : {decision.type}\n  }}\n}}\n"
    )


def _inputs(body: _Body, policy: DensePolicy, names: Sequence[str]) -> _Value:
    """Return the inputs of the first layer, [2 * F, 1]: quantiles, then magnitudes."""
    scalars = [body.reshape(_Value(f"%feature{i}", (), "i64"), [1, 1]) for i in range(len(names))]
    values = body.concat(scalars)
    boundaries = np.full((len(names), max(len(policy.buckets[name]) for name in names)), _NEVER, np.int64)
    for row, name in zip(boundaries, names, strict=True):
        # An integer reaches a boundary if it reaches the next integer.
        row[: len(policy.buckets[name])] = np.ceil(policy.buckets[name]).clip(-(2.0**62), 2.0**62).astype(np.int64)
    reached = body.add("tosa.greater_equal", [values, body.constant(boundaries)], boundaries.shape, "i1")
    count = body.cast(body.sum_columns(body.cast(reached, "i32")), "f32")
    reciprocals = np.array([[1 / len(policy.buckets[name])] for name in names], np.float32)
    quantiles = body.multiply(count, body.constant(reciprocals))

    number = body.cast(values, "f32")
    one = body.constant(np.ones((1, 1), np.float32))
    beyond_zero = body.add("tosa.add", [body.add("tosa.abs", [number], number.shape), one], number.shape)
    shares = body.multiply(beyond_zero, body.constant(np.float32(2.0) ** -np.arange(_POWERS, dtype=np.float32)[None]))
    steps = body.clamp(body.add("tosa.sub", [shares, one], shares.shape), 0, 1)
    logarithm = body.multiply(body.sum_columns(steps), body.constant(np.full((1, 1), MAGNITUDE_SCALE, np.float32)))
    return body.concat([quantiles, body.multiply(logarithm, body.clamp(number, -1, 1))])


def _layers(body: _Body, policy: DensePolicy, inputs: _Value, size: int) -> _Value:
    """Return the logits, [1, 1, actions]."""
    values = body.reshape(inputs, [1, 1, size])
    zero = body.constant(np.zeros(1, np.float32))
    for i, (weights, bias) in enumerate(policy.layers):
        shape = (1, 1, weights.shape[1])
        product = body.add("tosa.matmul", [values, body.constant(weights[None]), zero, zero], shape)
        values = body.add("tosa.add", [product, body.constant(bias[None, None])], shape)
        if i + 1 < len(policy.layers):
            values = body.clamp(values, 0, float(np.finfo(np.float32).max))
    return values


def _heuristic_beyond_limits(body: _Body, policy: DensePolicy, names: Sequence[str], outputs: _Value) -> _Value:
    """Return the logits, and where a feature is beyond its limit those of the heuristic's action, [1, 1, 2].

    With the operations of the layers, for which MLIR has all conversions: logits * (1 - beyond) + heuristic * beyond.
    """
    used = dict.fromkeys((*policy.limits, *policy.heuristic))  # in order, each once
    scalars = {name: body.reshape(_Value(f"%feature{names.index(name)}", (), "i64"), [1, 1]) for name in used}
    limits = np.array(list(policy.limits.values()), np.int64)[:, None]
    exceeded = body.greater(body.concat([scalars[name] for name in policy.limits]), body.constant(limits))
    count = body.sum_columns(body.reshape(exceeded, [1, len(limits)]))
    beyond = body.reshape(body.clamp(count, 0, 1), [1, 1, 1])

    first, second = policy.heuristic
    less = body.reshape(body.greater(scalars[second], scalars[first]), [1, 1, 1])
    twice = body.multiply(less, body.constant(np.array([[[-2, 2]]], np.float32)))
    heuristic = body.add("tosa.add", [twice, body.constant(np.array([[[1, -1]]], np.float32))], outputs.shape)

    within = body.add("tosa.sub", [body.constant(np.ones((1, 1, 1), np.float32)), beyond], [1, 1, 1])
    parts = [body.multiply(outputs, within), body.multiply(heuristic, beyond)]
    return body.add("tosa.add", parts, outputs.shape)


class _Value:
    """A tensor: its name in the text, shape and element type."""

    def __init__(self, name: str, shape: Sequence[int], element: str) -> None:
        self.name, self.shape, self.element = name, tuple(shape), element

    @property
    def type(self) -> str:
        """The value's type in MLIR."""
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element}>"


class _Body:
    """Operations of a function, in order. Each method adds one and returns its result."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._shift: _Value | None = None

    def text(self) -> str:
        """Return the operations as MLIR, a line each."""
        return "".join(f"    {line}\n" for line in self._lines)

    def add(
        self, name: str, operands: Sequence[_Value], shape: Sequence[int], element: str = "f32", attributes: str = ""
    ) -> _Value:
        result = self._name(shape, element)
        names, types = ", ".join(v.name for v in operands), ", ".join(v.type for v in operands)
        self._lines.append(f"{result.name} = {name} {names} {attributes} : ({types}) -> {result.type}")
        return result

    def constant(self, array: NDArray[Any]) -> _Value:
        element = {np.dtype(kind): name for name, kind in _ELEMENTS.items()}[array.dtype]
        result = self._name(array.shape, element)
        content = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes().hex().upper()
        self._lines.append(
            f'{result.name} = "tosa.const"() <{{values = dense<"0x{content}"> : {result.type}}}> : () -> {result.type}'
        )
        return result

    def reshape(self, value: _Value, shape: Sequence[int]) -> _Value:
        sizes = f"%shape{len(self._lines)}"
        rank, listed = len(shape), "" if not shape else str(list(shape))
        content = f"{{values = dense<{listed}> : tensor<{rank}xindex>}}"
        self._lines.append(f"{sizes} = tosa.const_shape {content} : () -> !tosa.shape<{rank}>")
        result = self._name(shape, value.element)
        self._lines.append(
            f"{result.name} = tosa.reshape {value.name}, {sizes} : ({value.type}, !tosa.shape<{rank}>) -> {result.type}"
        )
        return result

    def concat(self, rows: Sequence[_Value]) -> _Value:
        """Concatenate matrices [N, 1]."""
        shape = (sum(value.shape[0] for value in rows), 1)
        return self.add("tosa.concat", rows, shape, rows[0].element, "{axis = 0 : i32}")

    def cast(self, value: _Value, element: str) -> _Value:
        return self.add("tosa.cast", [value], value.shape, element)

    def greater(self, left: _Value, right: _Value) -> _Value:
        """Return 1 where left > right, else 0, as f32; the operands have one shape."""
        return self.cast(self.cast(self.add("tosa.greater", [left, right], left.shape, "i1"), "i32"), "f32")

    def sum_columns(self, value: _Value) -> _Value:
        """Sum a matrix [N, M] to [N, 1]."""
        return self.add("tosa.reduce_sum", [value], (value.shape[0], 1), value.element, "{axis = 1 : i32}")

    def clamp(self, value: _Value, low: float, high: float) -> _Value:
        limits = f"{{min_val = {float(low):.9e} : f32, max_val = {float(high):.9e} : f32}}"
        return self.add("tosa.clamp", [value], value.shape, attributes=limits)

    def multiply(self, left: _Value, right: _Value) -> _Value:
        """Multiply element by element; a size of 1 is repeated."""
        if self._shift is None:  # of integers only, but an operand nevertheless
            self._shift = _Value("%shift", (1,), "i8")
            self._lines.append('%shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>')
        shape = tuple(max(sizes) for sizes in zip(left.shape, right.shape, strict=True))
        return self.add("tosa.mul", [left, right, self._shift], shape)

    def _name(self, shape: Sequence[int], element: str) -> _Value:
        return _Value(f"%value{len(self._lines)}", shape, element)
