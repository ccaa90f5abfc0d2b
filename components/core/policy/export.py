"""Writes policies: the few files that an iteration of training needs, or the whole artifact."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

from components.core import problems
from components.core.formats.policy import IMAGE_VARIABLE, PolicyInfo, write_output_spec, write_policy_info
from components.core.formats.vocab import write_vocab
from components.core.policy.codegen import generate
from components.core.policy.dense import DensePolicy
from components.core.policy.fixed_point import round_weights
from components.core.policy.shared_object import build_shared_object

VOCAB = "vocab"


def export_fast(dense: DensePolicy, directory: Path, clang: Path) -> None:
    """Writes what the training clang needs to run a policy, output_spec.json and policy.{h,cpp,so}, in half a second.

    Args:
        directory: exists; files of an earlier policy are replaced.
        clang: compiles policy.so.
    """
    write_source(dense, directory)
    build_shared_object(directory, clang)


def write_source(dense: DensePolicy, directory: Path) -> None:
    """Write what a release clang is made of, output_spec.json and policy.{h,cpp}."""
    problem = problems.get(dense.problem)
    write_output_spec(directory, problem.decision, problem.logits, dense.num_actions)
    generate(dense, directory)


def write_weights(dense: DensePolicy, directory: Path) -> None:
    """Write what a policy is read from again, weights.npz and vocab/."""
    dense.save(directory)
    vocab = directory / VOCAB
    vocab.mkdir()
    write_vocab(vocab, dict(dense.buckets))


def export_policy(dense: DensePolicy, directory: Path, clang: Path, info: PolicyInfo | None = None) -> PolicyInfo:
    """Writes the whole policy artifact (see components/core/formats/policy.py) but for its manifest and aot/.

    Its weights are rounded to 16 bits, those of every form alike.

    Args:
        directory: exists and is the one that `storage.publish` yields.
        clang: compiles policy.so.
        info: what is known of the policy's origin; its problem, features, number of actions and git commit are filled
            in from `dense` and from this project's checkout.

    Returns:
        what was written to policy.json.
    """
    # TensorFlow takes seconds to import, and export_fast does without it.
    from components.core.policy.saved_model import write_saved_model

    dense = round_weights(dense)
    known = info or PolicyInfo(dense.problem, dense.features, dense.num_actions, trained_by="")
    info = dataclasses.replace(
        known,
        problem=dense.problem,
        features=dense.features,
        num_actions=dense.num_actions,
        git_commit=known.git_commit or git_commit(),
        image=known.image or os.environ.get(IMAGE_VARIABLE, ""),
    )
    export_fast(dense, directory, clang)
    write_weights(dense, directory)
    write_saved_model(dense, directory)
    write_policy_info(directory, info)
    return info


def git_commit() -> str:
    """The commit of the checkout that this code runs from, or was installed from where that says so; else empty.

    An image knows the commit that it was built from: $MLGO_GIT_COMMIT.
    """
    if commit := os.environ.get("MLGO_GIT_COMMIT"):
        return commit
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
