"""TensorFlow's forms of a policy: the SavedModel and model.tflite, with the names that LLVM's loaders look for.

The signature is "action". Its inputs are a tensor per feature, of the feature's shape and name, and `discount`,
`reward`, `step_type`, which tf-agents' policies take and which have no effect here; the graph's placeholders are named
`action_<name>`. Its outputs are the decision, int64 [1], and the logits, float32 [1, A]: StatefulPartitionedCall, with
the ports that output_spec.json gives. LLVM's development mode feeds `action_<name>` of model.tflite by name.
TensorFlow's AOT compiler names the arguments `feed_<name>` and the result `fetch_<decision>`; LLVM's release mode
requests these names from the compiled class.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import SAVED_MODEL, TFLITE_MODEL, output_spec
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import MAGNITUDE_SCALE, num_elements
from components.core.policy.generated.bucket_tables import distinct_boundaries
from components.platform.errors import UserError

SIGNATURE = "action"

TIME_STEP_INPUTS = {"discount": tf.float32, "reward": tf.float32, "step_type": tf.int32}
"""The parts of a tf-agents TimeStep that are not features."""


class PolicyModule(tf.Module):
    """A DensePolicy as a graph with fixed weights; quantiles are exact: boundaries are compared as integers."""

    def __init__(self, policy: DensePolicy) -> None:
        super().__init__(name="policy")
        problem = problems.get(policy.problem)
        self._policy = policy
        self._outputs = (problem.policy.decision, problem.policy.logits)
        # Variables, not constants: TensorFlow names the outputs of a function without state "PartitionedCall", but
        # LLVM's loaders look for "StatefulPartitionedCall".
        self._layers = [(tf.Variable(w, trainable=False), tf.Variable(b, trainable=False)) for w, b in policy.layers]
        self._scales = tf.constant([float(len(policy.buckets[f.name])) for f in policy.network_features], tf.float32)
        # Per feature: the distinct boundaries, and the number of the vocab's boundaries that each of them represents.
        self._tables = []
        for feature in policy.network_features:
            boundaries, ranks = distinct_boundaries(feature, policy.buckets[feature.name])
            counts = np.diff(ranks.astype(np.int32), prepend=np.int32(0))
            self._tables.append((tf.constant(boundaries, feature.dtype), tf.constant(counts)))

    def signature(self) -> tf.types.experimental.ConcreteFunction:
        """Return the function to export, which takes one decision."""
        specs = {f.name: tf.TensorSpec(f.shape, f.dtype, f.name) for f in self._policy.features}
        specs |= {name: tf.TensorSpec([1], dtype, name) for name, dtype in TIME_STEP_INPUTS.items()}

        @tf.function(input_signature=[specs], autograph=False)
        def action(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return self._act(inputs)

        return action.get_concrete_function()

    def _act(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mask = self._policy.mask
        num_rows = 1 if mask is None else self._policy.num_actions  # of the layers' inputs
        ranks = []
        for feature, (boundaries, counts) in zip(self._policy.network_features, self._tables, strict=True):
            values = tf.reshape(inputs[feature.name], [-1, 1])
            reached = tf.where(values < boundaries, tf.zeros_like(counts), counts)
            ranks.append(tf.broadcast_to(tf.reduce_sum(reached, axis=-1), [num_rows]))
        q = tf.cast(tf.stack(ranks, axis=-1), tf.float32) / self._scales
        if mask is None:
            x = tf.concat([q, self._magnitudes(inputs)], axis=-1)  # [1, 2 * F + E], as feature_encoding.expand
        else:
            x = tf.concat([q, tf.sqrt(q), q * q, self._action_ranks(inputs, mask)], axis=-1)  # [A, 4 * F]
        for i, (weights, bias) in enumerate(self._layers):
            x = tf.matmul(x, weights) + bias
            if i + 1 < len(self._layers):
                x = tf.nn.relu(x)
        if mask is not None:
            allowed = tf.reshape(inputs[mask.name], [1, -1]) != 0
            x = tf.where(allowed, tf.reshape(x, [1, -1]), -np.inf)
        if self._policy.limits:
            beyond = [inputs[name] > limit for name, limit in self._policy.limits.items()]  # [1] each
            first, second = self._policy.heuristic
            sign = tf.where(inputs[first] < inputs[second], 1.0, -1.0)
            x = tf.where(tf.reduce_any(beyond), tf.stack([-sign, sign], axis=-1), x)
        decision, logits = self._outputs
        return {decision: tf.argmax(x, axis=-1, output_type=tf.int64), logits: x}

    def _magnitudes(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return float32 [1, F + E], as feature_encoding.magnitudes.

        A logarithm gives the exponent, because TensorFlow Lite has no other operation for it. Close to a power of two
        it may be off by one, which changes nothing: the linear pieces meet there.
        """
        features = (*self._policy.network_features, *self._policy.tensor_features)
        values = tf.concat([tf.cast(tf.reshape(inputs[f.name], [-1]), tf.float32) for f in features], axis=0)
        values = tf.where(tf.equal(values, values), values, 0.0)
        y = tf.minimum(1.0 + tf.abs(values), np.finfo(np.float32).max)
        exponent = tf.floor(tf.math.log(y) * np.float32(1 / np.log(2)))
        logarithm = exponent + y * tf.pow(2.0, -exponent) - 1.0
        return tf.reshape(tf.sign(values) * logarithm * MAGNITUDE_SCALE, [1, -1])

    def _action_ranks(self, inputs: dict[str, tf.Tensor], mask: FeatureSpec) -> tf.Tensor:
        """Return float32 [A, F], as feature_encoding.action_ranks."""
        allowed = tf.cast(tf.reshape(inputs[mask.name], [1, -1]) != 0, tf.float32)  # [1, A]
        count = tf.maximum(tf.reduce_sum(allowed), 1.0)
        columns = []
        for feature in self._policy.network_features:
            if num_elements(feature) == 1:
                columns.append(tf.zeros([self._policy.num_actions]))
                continue
            values = tf.reshape(inputs[feature.name], [-1])
            if feature.dtype == "float32":
                values = tf.where(tf.equal(values, values), values, np.inf)
            less = tf.cast(values[None, :] < values[:, None], tf.float32) * allowed
            columns.append(tf.reduce_sum(less, axis=-1) / count)
        return tf.stack(columns, axis=-1)


def write_saved_model(policy: DensePolicy, directory: Path) -> Path:
    """Write saved_model/ and model.tflite into a policy directory."""
    module, path = PolicyModule(policy), directory / SAVED_MODEL
    tf.saved_model.save(module, str(path), signatures={SIGNATURE: module.signature()})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(path), signature_keys=[SIGNATURE])
    # Builtins only: LLVM's builds of TensorFlow Lite have no delegate for TensorFlow's own operations.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    with _quiet_stderr():
        model = converter.convert()
    (directory / TFLITE_MODEL).write_bytes(model)
    return path


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Discard what native code writes to stderr: the converter's summary of its passes cannot be disabled.

    Its errors are not lost, because they are exceptions.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


Columns = Mapping[str, NDArray[np.generic]]
Runner = Callable[[Columns], tuple[NDArray[np.int64], NDArray[np.float32]]]
"""Maps features of N decisions (name -> [N] or [N, *shape]) to (decisions int64 [N], logits float32 [N, A])."""


def saved_model_runner(directory: Path, policy: DensePolicy) -> Runner:
    """Return a function that runs the SavedModel through its signature. UserError if the SavedModel does not load."""
    problem = problems.get(policy.problem)
    path = directory / SAVED_MODEL
    try:
        loaded = tf.saved_model.load(str(path))
        function = loaded.signatures[SIGNATURE]
    except (OSError, KeyError, ValueError, tf.errors.OpError) as error:
        raise UserError(f"{path} has no signature {SIGNATURE}: {error}", "export the policy again") from None
    time_step = {name: tf.zeros([1], dtype) for name, dtype in TIME_STEP_INPUTS.items()}

    @tf.function(autograph=False)
    def run_rows(features: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        def run_row(row: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            outputs = function(**time_step, **row)
            return outputs[problem.policy.decision][0], outputs[problem.policy.logits][0]

        decisions, logits = tf.map_fn(run_row, features, fn_output_signature=(tf.int64, tf.float32))
        return decisions, logits

    def run(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = {f.name: tf.constant(columns[f.name].reshape(-1, *f.shape), f.dtype) for f in policy.features}
        decisions, logits = run_rows(rows)
        return decisions.numpy(), logits.numpy()

    run.loaded = loaded  # type: ignore[attr-defined]  # a signature does not keep its SavedModel alive
    return run


def tflite_runner(directory: Path, policy: DensePolicy) -> Runner:
    """Return a function that runs model.tflite as LLVM does, tensors by graph name. UserError if it does not load."""
    path = directory / TFLITE_MODEL
    try:
        interpreter = tf.lite.Interpreter(model_content=path.read_bytes())
        interpreter.allocate_tensors()
        problem = problems.get(policy.problem)
        described = output_spec(problem.policy.decision, problem.policy.logits, policy.num_actions)
        specs = [entry["tensor_spec"] for entry in described]
        inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
        outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
        feature_indices = [(f, inputs[f"{SIGNATURE}_{f.name}:0"]) for f in policy.features]
        decision, logits = (outputs[f"{spec['name']}:{spec['port']}"] for spec in specs)
    except FileNotFoundError:
        raise UserError(f"{path} is missing", "export the policy again") from None
    except (ValueError, RuntimeError, KeyError) as error:
        raise UserError(f"{path} is not this policy's TensorFlow Lite model: {error}", "export it again") from None

    def run(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = len(columns[policy.features[0].name])
        decisions, all_logits = np.empty(rows, np.int64), np.empty((rows, policy.num_actions), np.float32)
        for i in range(rows):
            for feature, index in feature_indices:
                interpreter.set_tensor(index, columns[feature.name][i].reshape(feature.shape).astype(feature.dtype))
            interpreter.invoke()
            decisions[i] = interpreter.get_tensor(decision)[0]
            all_logits[i] = interpreter.get_tensor(logits)[0]
        return decisions, all_logits

    return run
