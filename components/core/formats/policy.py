"""policy.json and output_spec.json: the metadata of a policy directory.

A policy directory holds:

    policy.json       PolicyInfo: the problem, the features, and the origin of the policy
    output_spec.json  what the training clang logs next to the decision, in ml-compiler-opt's format
    policy.h/.cpp/.so the native form: the source, and the library that the training clang loads
    weights.npz       the arrays that all forms are derived from (components/core/policy/dense.py)
    vocab/            <feature>.buckets, the boundaries as written by the vocab step
    saved_model/      TensorFlow's form, signature "action"
    model.tflite      TensorFlow Lite's form
    ir2vec-vocabulary.json  only of a policy that reads embeddings: the vocabulary that they are computed from
    aot/              only on request: the object of TensorFlow's AOT compiler and its runtime
    regressed.json    only of a warmstart with --retrain-state: names of the modules that the deployed policy regressed

policy.json: {"version": 1, "problem", "features": [{"name", "type", "shape"}], "num_actions", "trained_by",
"vocab_digest", "trace_digest", "corpus_digest", "toolchain_digest", "llvm_version", "git_commit", "image",
"ir2vec_vocabulary", "metrics": {}, "optional_features": {}, "trained_limits": {}, "trained_ranges": {},
"unwind_tables"}; the last four only if there are some.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict as fields_of

from components.core.formats.features import FeatureSpec, TensorSpec
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, expect_shape, read_document
from components.platform.storage.manifest import MANIFEST, require_artifact

POLICY_JSON = "policy.json"
OUTPUT_SPEC_JSON = "output_spec.json"
SAVED_MODEL = "saved_model"
TFLITE_MODEL = "model.tflite"
REGRESSED_JSON = "regressed.json"
VERSION = 1
HEURISTIC = "heuristic"
"""Given instead of a policy directory: make a policy that imitates LLVM's heuristic."""
PRETRAINED = "pretrained"
"""Given instead of a policy directory: the policy shipped with this project (components/core/policy/pretrained)."""
PRETRAINED_LLVM = "pretrained-llvm"
"""The same, of LLVM's own features only, which compilers without our advisors have."""
PRETRAINED_THUMB = "pretrained-thumb"
"""The same, fine-tuned for Thumb-2 code; for inlining only."""
PRETRAINED_FOLDERS = {
    PRETRAINED: {"inlining": "inlining", "regalloc": "regalloc"},
    # The policy for register allocation uses LLVM's features anyway.
    PRETRAINED_LLVM: {"inlining": "inlining-llvm", "regalloc": "regalloc"},
    PRETRAINED_THUMB: {"inlining": "inlining-thumb"},
}
"""Name of pretrained policies -> problem -> folder of components/core/policy/pretrained."""
PRETRAINED_OF_OUR_FEATURES = {"inlining": (PRETRAINED, PRETRAINED_THUMB)}
"""Problem -> pretrained policies that use features which only our training clangs log."""
PRETRAINED_NAMES = tuple(PRETRAINED_FOLDERS)
PRETRAINED_HELP = f"{PRETRAINED_LLVM}: of LLVM's own features; {PRETRAINED_THUMB}: for Thumb-2"
"""What the names mean, for the help of options that take them."""
IMPORTED = "import"
"""`trained_by` of an imported policy, which has a SavedModel and aot/, but neither weights nor native source
(components/policy/tf_aot/import_saved_model.py)."""
IMAGE_VARIABLE = "MLGO_IMAGE_REFERENCE"
"""Environment variable with the digest of the container's image, for policy.json and the model card."""


@dataclass(frozen=True)
class PolicyInfo:
    """Content of policy.json.

    Attributes:
        features: inputs of the network, in its order.
        trained_by: the step, "warmstart" or "ppo"; or IMPORTED.
        vocab_digest, trace_digest, corpus_digest, toolchain_digest: `storage.digest` of the artifacts that the policy
            was made from, empty if there was none.
        image: digest of the container image that trained the policy.
        ir2vec_vocabulary: digest of ir2vec-vocabulary.json, empty if there is none.
        metrics: training figures, for people.
        optional_features: scalar features that a compiler need not have -> the value that the policy then assumes.
        trained_limits: features -> the largest value that the policy was trained on; beyond it the policy itself
            decides like the heuristic.
        trained_ranges: features -> the smallest and the largest value of the training decisions. Outside of those of
            the problem's `use_counts` the compiler takes the heuristic's decision (option -mlgo-ranges). Empty: no
            ranges, as in policies before this field.
        unwind_tables: whether every function of the training modules had an unwind table: then the compiler takes the
            heuristic's decision where neither caller nor callee has one. None if nobody looked.
    """

    problem: str
    features: tuple[FeatureSpec, ...]
    num_actions: int
    trained_by: str
    vocab_digest: str = ""
    trace_digest: str = ""
    corpus_digest: str = ""
    toolchain_digest: str = ""
    llvm_version: str = ""
    git_commit: str = ""
    image: str = ""
    ir2vec_vocabulary: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    optional_features: Mapping[str, float] = field(default_factory=dict)
    trained_limits: Mapping[str, int] = field(default_factory=dict)
    trained_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unwind_tables: bool | None = None


def write_policy_info(directory: Path, info: PolicyInfo) -> Path:
    """Write policy.json; return its path."""
    document = {"version": VERSION, **asdict(info), "metrics": dict(info.metrics)}
    for name in ("optional_features", "trained_limits", "trained_ranges"):
        values = dict(document.pop(name))
        document |= {name: values} if values else {}
    if info.unwind_tables is None:
        del document["unwind_tables"]
    document["features"] = [f.to_json() for f in info.features]
    path = directory / POLICY_JSON
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


class _Document(Struct, kw_only=True, forbid_unknown_fields=True):
    """policy.json, with the fields of `PolicyInfo`. Figures keep their types: written again, they do not change."""

    version: int
    problem: str
    features: tuple[TensorSpec, ...]
    num_actions: int
    trained_by: str
    vocab_digest: str = ""
    trace_digest: str = ""
    corpus_digest: str = ""
    toolchain_digest: str = ""
    llvm_version: str = ""
    git_commit: str = ""
    image: str = ""
    ir2vec_vocabulary: str = ""
    metrics: dict[str, Any] = {}
    optional_features: dict[str, Any] = {}
    trained_limits: dict[str, int] = {}
    trained_ranges: dict[str, tuple[int, int]] = {}
    unwind_tables: bool | None = None


SAVED_MODEL_FILE = "saved_model.pb"
"""File of every SavedModel, in ours in the folder saved_model/."""


def require_policy(directory: Path) -> None:
    """Raise UserError unless a directory is a finished policy; see require_artifact."""
    if (directory / SAVED_MODEL_FILE).is_file() and not (directory / MANIFEST).is_file():
        raise UserError(
            f"{directory} is a SavedModel, such as ml-compiler-opt writes, not a policy of this project",
            f"mlgo policy import --saved-model {directory} --toolchain DIR --output DIR",
        )
    require_artifact(directory, "policy")


def load_policy_info(directory: Path) -> PolicyInfo:
    """Read policy.json of a policy directory. UserError if it is missing or invalid."""
    path = directory / POLICY_JSON
    remedy = "delete the policy and make it again"
    try:
        read = read_document(path, _Document, "a policy description", remedy, VERSION)
    except MissingFile:
        raise UserError(
            f"{directory} is not a policy: it has no {POLICY_JSON}",
            "pass the output directory of the warmstart or ppo step",
        ) from None
    features = tuple(spec.feature for spec in read.features)
    with expect_shape(path, "a policy description", remedy):
        check_optional_features(read.optional_features, features)
        for name, (smallest, largest) in read.trained_ranges.items():
            if not -(2**63) <= smallest <= largest < 2**63:
                raise ValueError(f"the trained range of {name} is {smallest} to {largest}")
    values = {name: value for name, value in fields_of(read).items() if name != "version"}
    return PolicyInfo(**values | {"features": features})


def check_optional_features(optional: Mapping[str, float], features: Sequence[FeatureSpec]) -> None:
    """Raise ValueError unless these are values of scalar features of a policy that the features' types can hold."""
    if not isinstance(optional, Mapping):
        raise ValueError("optional_features is of the wrong type")
    scalar = {spec.name: spec.numpy_dtype for spec in features if math.prod(spec.shape) == 1}
    for name, value in optional.items():
        if name not in scalar:
            raise ValueError(f"the optional feature {name} is no scalar feature of the policy")
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ValueError(f"the optional feature {name} has the value {value!r}, which is no number")
        dtype = scalar[name]
        # Python compares its integers of any size and floats exactly.
        if dtype.kind == "i":
            limits = np.iinfo(dtype)
            fits = limits.min <= value <= limits.max and value == int(value)
        else:
            fits = abs(value) <= float(np.finfo(dtype).max)
        if not fits:
            raise ValueError(f"the optional feature {name} has the value {value!r:.40}, which is no {dtype}")


def write_regressed(directory: Path, modules: Sequence[str]) -> None:
    """Write regressed.json of a policy directory, unless there are no such modules."""
    if modules:
        (directory / REGRESSED_JSON).write_text(json.dumps(list(modules), indent=1) + "\n", encoding="utf-8")


def check_features(
    policy_features: Sequence[FeatureSpec], compiler_features: Sequence[FeatureSpec], optional: Collection[str] = ()
) -> None:
    """Raise UserError with the differences unless the compiler logs every feature of a policy with its type and shape.

    Features in `optional`, for which the policy assumes a value, may be missing. Features that the compiler logs and
    the policy does not use are allowed: LLVM lets a model use fewer features than the compiler has, so that compilers
    can add some.
    """
    logged = {f.name: f for f in compiler_features}
    used = {f.name for f in policy_features}
    differences = []
    if missing := [f.name for f in policy_features if f.name not in logged and f.name not in optional]:
        differences.append(f"this compiler does not log: {', '.join(missing)}")
        if added := [name for name in logged if name not in used]:
            differences.append(f"the policy does not use: {', '.join(added)}")
    for f in policy_features:
        other = logged.get(f.name)
        if other is not None and other != f:
            ours, theirs = f"{f.dtype}{list(f.shape)}", f"{other.dtype}{list(other.shape)}"
            differences.append(f"{f.name} is {ours} in the policy and {theirs} in the compiler")
    if differences:
        raise UserError(
            "the policy's features differ from those that this compiler logs: " + "; ".join(differences),
            "train the policy with a training clang of the same LLVM version, or use the version it was trained with",
        )


def check_upstream_features(policy: Path, features: Collection[FeatureSpec], upstream: Collection[str]) -> None:
    """Check that LLVM has all features of a policy. UserError if it does not."""
    if missing := [spec.name for spec in features if spec.name not in upstream]:
        raise UserError(
            f"{policy} uses features that LLVM itself does not have: {', '.join(missing)}",
            f"pass {PRETRAINED_LLVM}, train with --features llvm (mlgo warmstart --help), or build a clang or a plugin "
            "with mlgo toolchain",
        )


def output_spec(decision: str, logits: str, num_actions: int) -> list[dict[str, Any]]:
    """Return the content of output_spec.json: the decision first, as LLVM requires, then the logits to log.

    TensorFlow names the outputs of an exported function "StatefulPartitionedCall", in the SavedModel and in
    model.tflite; their ports follow the alphabetical order of the outputs' names.
    """
    ports = sorted([decision, logits])
    outputs = [(decision, "int64_t", [1]), (logits, "float", [1, num_actions])]
    return [
        {
            "logging_name": name,
            "tensor_spec": {
                "name": "StatefulPartitionedCall",
                "port": ports.index(name),
                "type": ctype,
                "shape": shape,
            },
        }
        for name, ctype, shape in outputs
    ]


def write_output_spec(directory: Path, decision: str, logits: str, num_actions: int) -> Path:
    """Write output_spec.json; return its path."""
    path = directory / OUTPUT_SPEC_JSON
    path.write_text(json.dumps(output_spec(decision, logits, num_actions), indent=1) + "\n", encoding="utf-8")
    return path
