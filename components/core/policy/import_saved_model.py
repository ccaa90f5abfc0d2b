"""Policies of other trainings: SavedModels as ml-compiler-opt publishes them, taken as they are.

Such a model is a graph, of whatever layers its training chose, and has no arrays that this project could train further.
TensorFlow's ahead-of-time compiler makes code of it, for a release clang (`--embed tf-aot`) and, behind the two
functions that a training clang asks for, for policy.so. Its signature "action" (ml-compiler-opt, compiler_opt/rl/
policy_saver.py) takes one tensor for each feature, next to those of a tf-agents TimeStep, and gives the decision.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.tools import saved_model_utils

from components.core import problems
from components.core.console import UserError
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import IMPORTED, PolicyInfo, check_features, write_output_spec, write_policy_info
from components.core.formats.toolchain import Toolchain
from components.core.policy.aot import AOT, RUNTIME, compile_aot
from components.core.policy.codegen import description, string_literal
from components.core.policy.export import git_commit
from components.core.policy.saved_model import SAVED_MODEL, SIGNATURE, TIME_STEP_INPUTS
from components.core.policy.shared_object import SHARED_OBJECT, link_shared_object

_FILES = ("saved_model.pb", "variables", "assets", "fingerprint.pb")
"""What a SavedModel consists of; ml-compiler-opt has other files beside them."""
_DTYPES = ("int64", "float32")


@dataclass(frozen=True)
class Signature:
    """What a SavedModel asks and answers.

    Attributes:
        features: in the order of their names.
        problem: by the name of its decision.
    """

    features: tuple[FeatureSpec, ...]
    problem: str


def import_policy(source: Path, directory: Path, toolchain: Toolchain) -> PolicyInfo:
    """Write a policy artifact, but for its manifest, from a SavedModel. Takes a minute.

    Args:
        source: the directory with saved_model.pb.
        directory: exists and is the one that `storage.publish` yields.
        toolchain: whose clang compiles policy.so, and whose features the model must be content with.

    Returns:
        what was written to policy.json.

    Raises:
        UserError: it is no SavedModel, or not of one of our problems; this compiler does not log all of its features as
            it wants them; TensorFlow cannot compile it.
    """
    signature = read_signature(source)
    problem = problems.get(signature.problem)
    logged = toolchain.features[problem.name]
    check_features(signature.features, logged)
    wanted = {feature.name for feature in signature.features}
    features = tuple(feature for feature in logged if feature.name in wanted)
    (directory / SAVED_MODEL).mkdir()
    for name in _FILES:
        if (source / name).is_dir():
            shutil.copytree(source / name, directory / SAVED_MODEL / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, directory / SAVED_MODEL / name)
    compile_aot(directory, problem.name, toolchain.clang)
    aot = directory / AOT
    wrapper = aot / "policy.cpp"
    wrapper.write_text(_source(problem.name, features), encoding="utf-8")
    flags = ["-w", f"-I{aot}", f"-I{aot / 'include'}"]
    linked = [str(aot / f"{problem.model_class}.o"), str(aot / RUNTIME), "-lstdc++"]
    link_shared_object(directory / SHARED_OBJECT, wrapper, toolchain.clang, flags, linked)
    write_output_spec(directory, problem.decision, problem.logits, problem.num_actions)
    info = PolicyInfo(problem.name, features, problem.num_actions, IMPORTED, git_commit=git_commit())
    write_policy_info(directory, info)
    return info


def read_signature(source: Path) -> Signature:
    """Read what a SavedModel's signature "action" says of it. UserError as `import_policy`."""
    remedy = "name the directory with saved_model.pb of a policy that ml-compiler-opt has published or saved"
    if not (source / _FILES[0]).is_file():
        raise UserError(f"{source} is no SavedModel: it has no {_FILES[0]}", remedy)
    try:
        # Only its description: to load the model would need whatever libraries it was saved with.
        signature = saved_model_utils.get_meta_graph_def(str(source), tf.saved_model.SERVING).signature_def[SIGNATURE]
    except (OSError, RuntimeError, ValueError, TypeError, DecodeError, tf.errors.OpError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UserError(f"{source} is no SavedModel that can be read: {first:.200}", remedy) from None
    of = {problem.decision: problem for problem in map(problems.get, problems.names())}
    decisions = [name for name in signature.outputs if name in of]
    if len(decisions) != 1:
        given = ", ".join(sorted(signature.outputs)) or "nothing"
        raise UserError(f"{source}: its signature {SIGNATURE!r} gives {given}; {' or '.join(of)} is needed", remedy)
    problem, decision = of[decisions[0]], _spec(signature.outputs[decisions[0]])
    if decision.dtype != tf.int64 or decision.shape.num_elements() != 1:
        raise UserError(f"{source} gives {decisions[0]} as {_told(decision)}, which is not one int64", remedy)
    features = []
    for name, info in sorted(signature.inputs.items()):
        if name in TIME_STEP_INPUTS or name in problem.decisions:
            continue  # what nobody feeds in a compiler, and the heuristic's decision, which no policy may need
        spec = _spec(info)
        if spec.dtype.name not in _DTYPES or spec.shape.num_elements() is None:
            raise UserError(f"{source} wants {name} as {_told(spec)}, and a compiler gives int64 or float", remedy)
        shape = (1,) if spec.shape.num_elements() == 1 else tuple(spec.shape)
        features.append(FeatureSpec(name, spec.dtype.name, shape))
    if not features:
        raise UserError(f"{source} wants no feature", remedy)
    return Signature(tuple(features), problem.name)


def _spec(info: meta_graph_pb2.TensorInfo) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.dtypes.as_dtype(info.dtype))


def _told(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name}{spec.shape}"


def _source(name: str, features: Sequence[FeatureSpec]) -> str:
    """The two functions of policy.so (see emit.py), around the compiled class.

    A model tells its decision and no logits: that action has the logit 1 and the others 0.
    """
    problem = problems.get(name)
    arguments = "\n".join(
        f'  feed(model, "feed_{feature.name}", inputs[{i}], {feature.size_bytes});'
        for i, feature in enumerate(features)
    )
    return f"""\
// Written by mlgo-pipeline, around what TensorFlow compiled. Do not edit; import the policy again instead.
#include "{problem.model_class}.h"
#include <cstdint>
#include <cstring>

namespace {{
void feed(llvm::{problem.model_class} &model, const char *name, const void *value, size_t bytes) {{
  std::memcpy(model.arg_data(model.LookupArgIndex(name)), value, bytes);
}}
}} // namespace

extern "C" {{
__attribute__((visibility("default"))) const char *mlgo_policy_describe(void) {{
  return {string_literal(description(name, features, problem.num_actions))};
}}

__attribute__((visibility("default"))) void mlgo_policy_logits(const void *const *inputs, float *logits) {{
  thread_local llvm::{problem.model_class} model;
{arguments}
  model.Run();
  int64_t decision;
  std::memcpy(&decision, model.result_data(model.LookupResultIndex("fetch_{problem.decision}")), sizeof decision);
  for (int64_t action = 0; action < {problem.num_actions}; ++action)
    logits[action] = action == decision ? 1.0f : 0.0f;
}}
}} // extern "C"
"""
