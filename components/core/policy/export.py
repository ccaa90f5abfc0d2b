"""Writes policies: the few files that a training iteration needs, or the whole artifact."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from components.core import problems
from components.core.formats.embeddings import copy_vocabulary
from components.core.formats.policy import IMAGE_VARIABLE, PolicyInfo, write_output_spec, write_policy_info
from components.core.formats.vocab import write_vocab
from components.core.policy.dense import DensePolicy
from components.core.policy.fixed_point import round_weights
from components.core.policy.generated.codegen import Training, generate
from components.core.policy.generated.shared_object import build_shared_object
from components.platform.processes.output import read_output
from components.platform.processes.python_module import ROOT

VOCAB = "vocab"


def export_fast(
    dense: DensePolicy,
    directory: Path,
    clang: Path,
    optional_features: Mapping[str, float] | None = None,
    training: Training | None = None,
) -> None:
    """Write the files that the training clang reads, output_spec.json and policy.{h,cpp,so}, in half a second.

    Args:
        directory: existing directory; files of an earlier policy are replaced.
        optional_features: feature -> value that the policy assumes where a compiler lacks it.
        training: where the compiler lets the policy decide; None for everywhere.
    """
    write_source(dense, directory, optional_features, training)
    build_shared_object(directory, clang)


def write_source(
    dense: DensePolicy,
    directory: Path,
    optional_features: Mapping[str, float] | None = None,
    training: Training | None = None,
) -> None:
    """Write the files that a release clang is built from, output_spec.json and policy.{h,cpp}."""
    problem = problems.get(dense.problem)
    write_output_spec(directory, problem.policy.decision, problem.policy.logits, dense.num_actions)
    generate(dense, directory, optional_features, training)


def write_weights(dense: DensePolicy, directory: Path) -> None:
    """Write the files that a policy is loaded from, weights.npz and vocab/."""
    dense.save(directory)
    vocab = directory / VOCAB
    vocab.mkdir()
    write_vocab(vocab, dict(dense.buckets))


def export_policy(
    dense: DensePolicy, directory: Path, clang: Path, info: PolicyInfo | None = None, vocabulary_of: Path = Path()
) -> PolicyInfo:
    """Write the whole policy artifact (see components/core/formats/policy.py) except its manifest and aot/.

    The weights are rounded to 16 bits, the same in every form.

    Args:
        directory: the directory that `storage.publish` yields.
        info: origin of the policy; its problem, features and number of actions are replaced by those of `dense`, its
            git commit, if empty, by that of this project's checkout.
        vocabulary_of: toolchain or policy with the IR2Vec vocabulary, for a policy that reads embeddings.

    Returns:
        the contents of policy.json.
    """
    # TensorFlow takes seconds to import, and export_fast does not need it.
    from components.core.policy.tf.saved_model import write_saved_model

    dense = round_weights(dense)
    origin = info or PolicyInfo(dense.problem, dense.features, dense.num_actions, trained_by="")
    info = dataclasses.replace(
        origin,
        problem=dense.problem,
        features=dense.features,
        num_actions=dense.num_actions,
        trained_limits=dense.limits,
        git_commit=origin.git_commit or git_commit(),
        image=origin.image or os.environ.get(IMAGE_VARIABLE, ""),
        ir2vec_vocabulary=copy_vocabulary(vocabulary_of, dense.features, directory),
    )
    export_fast(dense, directory, clang, info.optional_features, Training.of(info))
    write_weights(dense, directory)
    write_saved_model(dense, directory)
    write_policy_info(directory, info)
    return info


def git_commit() -> str:
    """Return $MLGO_GIT_COMMIT, the commit that an image was built from, else that of this code's checkout, else ""."""
    if commit := os.environ.get("MLGO_GIT_COMMIT"):
        return commit
    command = ["git", "-C", str(ROOT), "rev-parse", "--show-toplevel", "HEAD"]
    top, _separator, head = read_output(command, 10).strip().partition("\n")
    # An installed package may lie in another repository: that of a user's project, with a virtual environment in it.
    return head if Path(top).resolve() == ROOT else ""
