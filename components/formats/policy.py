"""policy.json and output_spec.json: what a policy directory says about itself.

A policy directory holds:

    policy.json       PolicyInfo: what it decides on which features, and where it comes from
    output_spec.json  what the training clang logs beside the decision, in ml-compiler-opt's form
    policy.h/.cpp/.so the emitted form, the source and what the training clang loads
    weights.npz       the arrays that all forms are derived from (components/policy/dense.py)
    vocab/            <feature>.buckets, the boundaries as the vocab step wrote them
    saved_model/      TensorFlow's form, signature "action"
    model.tflite      TensorFlow Lite's form
    aot/              only if asked for: the object of TensorFlow's AOT compiler and its runtime

policy.json: {"version": 1, "problem", "features": [{"name", "type", "shape"}], "num_actions", "trained_by",
"vocab_digest", "trace_digest", "corpus_digest", "toolchain_digest", "llvm_version", "git_commit", "image",
"metrics": {}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from components.console import UserError
from components.formats.features import FeatureSpec
from components.storage.input_files import MissingFile, expect_shape, read_json

POLICY_JSON = "policy.json"
OUTPUT_SPEC_JSON = "output_spec.json"
VERSION = 1
HEURISTIC = "heuristic"
"""In place of a policy's directory: one that imitates LLVM's heuristic is made."""
PRETRAINED = "pretrained"
"""In place of a policy's directory: the one that comes with this project (components/policy/pretrained)."""
IMPORTED = "import"
"""What trained a policy of another training, of which there is its SavedModel and aot/, but neither weights nor emitted
source (components/policy/imported.py)."""
IMAGE_VARIABLE = "MLGO_IMAGE_REFERENCE"
"""By which whoever starts a container tells it the digest of its image, for policy.json and the policy's card."""


@dataclass(frozen=True)
class PolicyInfo:
    """What policy.json says.

    `features` are the network's, in its order. The digests are those of `storage.digest` of the artifacts that the
    policy was made from, empty where there was none. `image` is the digest of the container image that trained it.
    `trained_by` is the step: "warmstart" or "ppo"; or IMPORTED. `metrics` are figures of the training, for people.
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
    metrics: Mapping[str, float] = field(default_factory=dict)


def write_policy_info(directory: Path, info: PolicyInfo) -> Path:
    """Writes policy.json."""
    document = {"version": VERSION, **asdict(info), "metrics": dict(info.metrics)}
    document["features"] = [f.to_json() for f in info.features]
    path = directory / POLICY_JSON
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def load_policy_info(directory: Path) -> PolicyInfo:
    """Reads policy.json of a policy directory. UserError if it is missing or not such a file."""
    path = directory / POLICY_JSON
    remedy = "delete the policy and make it again"
    try:
        document: dict[str, Any] = read_json(path, remedy)
    except MissingFile:
        raise UserError(
            f"{directory} is not a policy: it has no {POLICY_JSON}",
            "pass the output directory of the warmstart or of the ppo step",
        ) from None
    with expect_shape(path, "a policy description", remedy):
        version = document.pop("version")
        if version != VERSION:
            raise UserError(f"{path} has version {version!r:.20}, this program reads {VERSION}", remedy)
        document["features"] = tuple(FeatureSpec.from_json(f) for f in document["features"])
        info = PolicyInfo(**document)
        if not (isinstance(info.problem, str) and isinstance(info.num_actions, int)):
            raise ValueError("problem or num_actions is of the wrong type")
        if not isinstance(info.llvm_version, str) or not isinstance(info.metrics, Mapping):
            raise ValueError("llvm_version or metrics is of the wrong type")
    return info


def check_features(policy_features: Sequence[FeatureSpec], compiler_features: Sequence[FeatureSpec]) -> None:
    """Raises UserError, naming the difference, if the compiler does not log all features of a policy as it knows them.

    Features that the compiler logs and the policy does not use are no difference: LLVM's contract lets a model know
    fewer features than the compiler, so that a compiler may add some.
    """
    logged = {f.name: f for f in compiler_features}
    used = {f.name for f in policy_features}
    differences = []
    if missing := [f.name for f in policy_features if f.name not in logged]:
        differences.append(f"this compiler does not log: {', '.join(missing)}")
        if added := [name for name in logged if name not in used]:
            differences.append(f"the policy does not know: {', '.join(added)}")
    for f in policy_features:
        other = logged.get(f.name)
        if other is not None and other != f:
            ours, theirs = f"{f.dtype}{list(f.shape)}", f"{other.dtype}{list(other.shape)}"
            differences.append(f"{f.name} is {ours} in the policy and {theirs} in the compiler")
    if differences:
        raise UserError(
            "the policy was trained on other features than this compiler logs: " + "; ".join(differences),
            "train the policy with a training clang of the same LLVM version, or use the version it was trained with",
        )


def output_spec(decision: str, logits: str, num_actions: int) -> list[dict[str, Any]]:
    """output_spec.json's content: the decision first, as LLVM demands, then the logits it is to log.

    "StatefulPartitionedCall" is the name that TensorFlow gives to the outputs of an exported function, hence that of
    the SavedModel's and model.tflite's; their ports follow the alphabetical order of the outputs' names.
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
    """Writes output_spec.json."""
    path = directory / OUTPUT_SPEC_JSON
    path.write_text(json.dumps(output_spec(decision, logits, num_actions), indent=1) + "\n", encoding="utf-8")
    return path
