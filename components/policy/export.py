"""Writes policies: the few files that an iteration of training needs, or the whole artifact."""

from __future__ import annotations

from pathlib import Path

from components import problems
from components.formats.policy import write_output_spec
from components.policy.dense import DensePolicy
from components.policy.emit import emit
from components.policy.shared_object import build_shared_object


def export_fast(dense: DensePolicy, directory: Path, clang: Path) -> None:
    """Writes what the training clang needs to run a policy, output_spec.json and policy.{h,cpp,so}, in half a second.

    Args:
        directory: exists; files of an earlier policy are replaced.
        clang: compiles policy.so.
    """
    problem = problems.get(dense.problem)
    write_output_spec(directory, problem.decision, problem.logits, dense.num_actions)
    emit(dense, directory)
    build_shared_object(directory, clang)
