"""Imports SavedModels that other projects trained, in the form that ml-compiler-opt publishes, without changes.

Such a model is a graph of arbitrary layers and has no arrays that this project could train further. TensorFlow's
ahead-of-time compiler compiles it, for a release clang (`--embed tf-aot`) and, behind the two functions that a training
clang calls, for policy.so. Its signature "action" (ml-compiler-opt, compiler_opt/rl/policy_saver.py) takes a tensor for
each feature and those of a tf-agents TimeStep, and returns the decision.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.tools import saved_model_utils

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import (
    IMPORTED,
    SAVED_MODEL,
    PolicyInfo,
    check_features,
    write_output_spec,
    write_policy_info,
)
from components.core.formats.toolchain import Toolchain
from components.core.policy.export import git_commit
from components.core.policy.forms import run_form
from components.core.policy.generated.codegen import description_json, string_literal
from components.core.policy.generated.shared_object import SHARED_OBJECT, link_shared_object
from components.core.policy.tf.saved_model import SIGNATURE, TIME_STEP_INPUTS
from components.platform.errors import UserError
from components.policy.tf_aot.compile import AOT, RUNTIME, compile_aot

_GRAPH, _VARIABLES = "saved_model.pb", "variables"
_INDEX, _DATA = "variables.index", "variables.data-*"
_FILES, _FOLDERS = (_GRAPH, "fingerprint.pb"), (_VARIABLES, "assets")
"""The members of a SavedModel; ml-compiler-opt adds other files to the directory."""
MAX_BYTES = 1 << 30
"""Limit of a SavedModel's size; published policies have less than 1 MB, and TensorFlow reads them into memory."""
_VARIABLE_OPERATIONS = ("VarHandleOp", "VariableV2", "Variable")
_REMEDY = "name the directory with saved_model.pb of a policy that ml-compiler-opt has published or saved"
_DTYPES = ("int64", "float32")


@dataclass(frozen=True)
class Signature:
    """The signature of a SavedModel.

    Attributes:
        features: the inputs, sorted by name.
        problem: name of the problem whose decision it returns.
    """

    features: tuple[FeatureSpec, ...]
    problem: str


def import_policy(source: Path, directory: Path, toolchain: Toolchain) -> PolicyInfo:
    """Write a policy artifact, except its manifest, from a SavedModel. Takes a minute.

    Args:
        source: directory with saved_model.pb.
        directory: the directory that `storage.publish` yields.
        toolchain: its clang compiles policy.so; the model may use no other features than this clang logs.

    Returns:
        the contents of policy.json.

    Raises:
        UserError: `source` is not a SavedModel of one of our problems; this compiler does not log all of its features
            in the same form; TensorFlow cannot compile it.
    """
    files = saved_model_files(source)
    signature = read_signature(source)
    problem = problems.get(signature.problem)
    logged = toolchain.features.get(problem.name)
    if logged is None:
        raise UserError(
            f"{toolchain.directory} has no advisor for {problem.name}", "pass a toolchain of --strategy sdk"
        )
    check_features(signature.features, logged)
    used = {feature.name for feature in signature.features}
    features = tuple(feature for feature in logged if feature.name in used)
    (directory / SAVED_MODEL).mkdir()
    for name in files:
        copy = directory / SAVED_MODEL / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, copy, follow_symlinks=False)
    remedy = "import a model that is complete and that TensorFlow compiles: saved_model_cli aot_compile_cpu --help"
    compile_aot(directory, problem.name, toolchain.clang, remedy=remedy)
    aot = directory / AOT
    wrapper = aot / "policy.cpp"
    wrapper.write_text(_wrapper_source(problem.name, features), encoding="utf-8")
    flags = ["-w", f"-I{aot}", f"-I{aot / 'include'}"]
    link_inputs = [str(aot / f"{problem.llvm.model_class}.o"), str(aot / RUNTIME), "-lstdc++"]
    link_shared_object(directory / SHARED_OBJECT, wrapper, toolchain.clang, flags, link_inputs)
    write_output_spec(directory, problem.policy.decision, problem.policy.logits, problem.policy.num_actions)
    info = PolicyInfo(problem.name, features, problem.policy.num_actions, IMPORTED, git_commit=git_commit())
    write_policy_info(directory, info)
    # An object that does not load here would fail every compile.
    run_form("native", directory, {f.name: np.zeros((1, *f.shape), f.numpy_dtype) for f in features})
    return info


def saved_model_files(source: Path) -> list[str]:
    """Return the names of a SavedModel's files, relative to its directory, after checking that they can be copied.

    Raises:
        UserError: a file is missing, in place of a directory or the other way round, is a link, a named pipe, a socket
            or a device; or the files are too large.
    """
    if not (source / _GRAPH).is_file():
        raise UserError(f"{source} is not a SavedModel: it has no file {_GRAPH}", _REMEDY)
    members = [name for name in (*_FILES, *_FOLDERS) if os.path.lexists(source / name)]
    names, size_bytes = [], 0
    for name in members:
        below = sorted(_walk(source, name)) if name in _FOLDERS and (source / name).is_dir() else [name]
        for member in below:
            status = os.lstat(source / member)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(
                    f"{source / member} is {_KINDS.get(stat.S_IFMT(status.st_mode), 'not a file')}, "
                    "where a SavedModel has a file",
                    "copy the model with cp -rL, and leave out what is not part of it",
                )
            if member in _FOLDERS:
                raise UserError(f"{source / member} is a file, where a SavedModel has a directory", _REMEDY)
            size_bytes += status.st_size
        names += below
    if size_bytes > MAX_BYTES:
        raise UserError(
            f"{source} has {size_bytes / 1e9:,.1f} GB; a policy has at most {MAX_BYTES / 1e9:.1f} GB", _REMEDY
        )
    return names


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _walk(source: Path, folder: str) -> Iterator[str]:
    """Yield all files and links below a folder, relative to `source`; links are not followed."""
    for directory, folders, files in os.walk(source / folder):
        links = [name for name in folders if Path(directory, name).is_symlink()]
        yield from (str(Path(directory, name).relative_to(source)) for name in (*files, *links))


def read_signature(source: Path) -> Signature:
    """Read the signature "action" of a SavedModel. UserError as in `import_policy`."""
    saved_model_files(source)
    try:
        # Reads only the description: loading the model may require the libraries that it was saved with.
        graph = saved_model_utils.get_meta_graph_def(str(source), tf.saved_model.SERVING)
        nodes = chain(graph.graph_def.node, *(function.node_def for function in graph.graph_def.library.function))
        has_variables = any(node.op in _VARIABLE_OPERATIONS for node in nodes)
        return _signature(source, graph.signature_def[SIGNATURE], has_variables)
    except (OSError, RuntimeError, ValueError, TypeError, DecodeError, tf.errors.OpError) as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise UserError(f"{source} is not a readable SavedModel: {first_line:.200}", _REMEDY) from None


def _signature(source: Path, signature: meta_graph_pb2.SignatureDef, has_variables: bool) -> Signature:
    if has_variables:
        for pattern in (_INDEX, _DATA):
            if not any(path.is_file() for path in (source / _VARIABLES).glob(pattern)):
                raise UserError(
                    f"{source} is incomplete: its graph has variables, but there is no {_VARIABLES}/{pattern}", _REMEDY
                )
    by_decision = {problem.policy.decision: problem for problem in map(problems.get, problems.names())}
    decisions = [name for name in signature.outputs if name in by_decision]
    if len(decisions) != 1:
        outputs = ", ".join(sorted(signature.outputs)) or "nothing"
        raise UserError(f"{source}: signature {SIGNATURE!r} returns {outputs}, not {' or '.join(by_decision)}", _REMEDY)
    problem, decision = by_decision[decisions[0]], _tensor_spec(signature.outputs[decisions[0]])
    if decision.dtype != tf.int64 or decision.shape.num_elements() != 1:
        raise UserError(f"{source} returns {decisions[0]} as {_format_spec(decision)}, expected one int64", _REMEDY)
    features = []
    for name, info in sorted(signature.inputs.items()):
        if name in TIME_STEP_INPUTS or name in problem.policy.decisions:
            continue  # not fed by a compiler; the heuristic's decision, which no policy may depend on
        spec = _tensor_spec(info)
        if spec.dtype.name not in _DTYPES or spec.shape.num_elements() is None:
            raise UserError(f"{source} takes {name} as {_format_spec(spec)}, a compiler passes int64 or float", _REMEDY)
        shape = (1,) if spec.shape.num_elements() == 1 else tuple(spec.shape)
        features.append(FeatureSpec(name, spec.dtype.name, shape))
    if not features:
        raise UserError(f"{source} takes no features", _REMEDY)
    return Signature(tuple(features), problem.name)


def _tensor_spec(info: meta_graph_pb2.TensorInfo) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.dtypes.as_dtype(info.dtype))


def _format_spec(spec: tf.TensorSpec) -> str:
    return f"{spec.dtype.name}{spec.shape}"


def _wrapper_source(name: str, features: Sequence[FeatureSpec]) -> str:
    """Return the source of policy.so's two functions (see codegen.py), which call the compiled class.

    A model returns a decision but no logits: that action gets the logit 1, the others 0.
    """
    problem = problems.get(name)
    arguments = "\n".join(
        f'  feed(model, "feed_{feature.name}", inputs[{i}], {feature.size_bytes});'
        for i, feature in enumerate(features)
    )
    return f"""\
// Written by mlgo-pipeline, around the class that TensorFlow compiled. Do not edit; import the policy again instead.
#include "{problem.llvm.model_class}.h"
#include <cstdint>
#include <cstring>

namespace {{
void feed(llvm::{problem.llvm.model_class} &model, const char *name, const void *value, size_t bytes) {{
  std::memcpy(model.arg_data(model.LookupArgIndex(name)), value, bytes);
}}
}} // namespace

extern "C" {{
__attribute__((visibility("default"))) const char *mlgo_policy_describe(void) {{
  return {string_literal(description_json(name, features, problem.policy.num_actions))};
}}

__attribute__((visibility("default"))) void mlgo_policy_logits(const void *const *inputs, float *logits) {{
  thread_local llvm::{problem.llvm.model_class} model;
{arguments}
  model.Run();
  int64_t decision;
  const int result = model.LookupResultIndex("fetch_{problem.policy.decision}");
  std::memcpy(&decision, model.result_data(result), sizeof decision);
  for (int64_t action = 0; action < {problem.policy.num_actions}; ++action)
    logits[action] = action == decision ? 1.0f : 0.0f;
}}
}} // extern "C"
"""
