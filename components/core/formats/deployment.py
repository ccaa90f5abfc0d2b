"""The state of `mlgo retrain`, the part that steps read: the deployed policy and the modules that it regressed.

`pipelines/retrain/state.py` writes the document and describes all of it.
"""

from __future__ import annotations

from msgspec import Struct

from components.platform.storage.input_files import typed
from components.platform.storage.shared_state.versioned_json import read_versioned


class DeployedPolicy(Struct, frozen=True):
    """A promoted policy: its location, its digest then, its problem, and the LLVM of the training clang that it was
    trained with."""

    policy: str
    policy_digest: str
    problem: str
    llvm_version: str


class Deployment(Struct, frozen=True):
    """The deployed policy, None before the first promotion, and the names of the modules that it makes clearly worse
    than LLVM's heuristic does."""

    deployed: DeployedPolicy | None = None
    regressed: tuple[str, ...] = ()


def read_deployment(location: str) -> Deployment:
    """Read the state at a path or URI; an empty deployment if it does not exist. UserError if it is no state or cannot
    be read."""
    content = read_versioned(location).content
    if content is None:
        return Deployment()
    return typed(content, Deployment, location, "a state of retraining", "restore an older one")
