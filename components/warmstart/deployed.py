"""Starts training from the policy that a state of retraining has deployed."""

from __future__ import annotations

from pathlib import Path

from components.core.formats.deployment import Deployment
from components.core.formats.policy import HEURISTIC
from components.core.formats.toolchain import load_toolchain
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import digest
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, parse_location


def deployed_start(deployment: Deployment, toolchain: Path) -> str:
    """Return the absolute path of the deployed policy, or HEURISTIC if it cannot be used with this training clang.

    Training starts from the heuristic if nothing is deployed yet, or if the deployed policy is for another major
    version of LLVM, which may have other features.

    Raises:
        UserError: the deployed policy is missing, or is not the one that was promoted.
    """
    deployed = deployment.deployed
    if deployed is None:
        say("nothing is deployed yet: training starts from LLVM's heuristic")
        return HEURISTIC
    if deployed.llvm_version.split(".")[0] != load_toolchain(toolchain).llvm_version.split(".")[0]:
        say(f"the deployed policy is for LLVM {deployed.llvm_version}: training starts from LLVM's heuristic")
        return HEURISTIC
    place = parse_location(deployed.policy)
    policy = fetch(place) if isinstance(place, ObjectUri) else place
    if digest(policy) != deployed.policy_digest:
        raise UserError(
            f"the deployed policy at {deployed.policy} has changed since it was promoted",
            "run mlgo retrain rollback, or restore it",
        )
    return str(policy.absolute())  # never a word such as pretrained
