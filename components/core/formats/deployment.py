"""The state of `mlgo retrain`, the part that steps read: the deployed policy and the modules that it regressed.

`pipelines/retrain/state.py` writes the document and describes all of it.
"""

from __future__ import annotations

from msgspec import Struct

from components.platform.storage.input_files import typed
from components.platform.storage.shared_state.versioned_json import read_versioned


class DeployedPolicy(Struct, frozen=True):
    """A promoted policy.

    Attributes:
        policy: location of its artifact.
        policy_digest: digest of the artifact when it was promoted.
        problem: name of its optimization problem.
        llvm_version: version of the training clang that it was trained with.
    """

    policy: str
    policy_digest: str
    problem: str
    llvm_version: str


class Deployment(Struct, frozen=True):
    """The deployed policy and the modules that it regressed.

    Attributes:
        deployed: None before the first promotion.
        regressed: names of the modules that the deployed policy makes clearly worse than LLVM's heuristic does.
    """

    deployed: DeployedPolicy | None = None
    regressed: tuple[str, ...] = ()


def read_deployment(location: str) -> Deployment:
    """Read the state at a path or URI; return an empty deployment if it does not exist yet.

    Raises:
        UserError: it is not a state, or object storage does not answer.
    """
    content = read_versioned(location).content
    if content is None:
        return Deployment()
    return typed(content, Deployment, location, "a state of retraining", "restore an older one")
