"""Adopts a trained policy as the start of reinforcement learning, instead of one that imitates the heuristic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.deployment import Deployment
from components.core.formats.embeddings import check_vocabulary
from components.core.formats.policy import HEURISTIC, PRETRAINED_NAMES, load_policy_info, write_regressed
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.formats.trace import read_columns
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_policy
from components.core.policy.optional_features import fit_to_compiler
from components.core.policy.pretrained import pretrained_policy
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, display_path, parse_location
from components.warmstart.config import WarmstartConfig
from components.warmstart.report import REPORT, WarmstartReport

MEASURED_DECISIONS = 200_000


def find_deployed_start(deployment: Deployment, toolchain: Path) -> str:
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
    location = parse_location(deployed.policy)
    policy = fetch(location) if isinstance(location, ObjectUri) else location
    if digest(policy) != deployed.policy_digest:
        raise UserError(
            f"the deployed policy at {deployed.policy} has changed since it was promoted",
            "run mlgo retrain rollback, or restore it",
        )
    return str(policy.absolute())  # never a word such as pretrained


def adopt_policy(config: WarmstartConfig, problem: str, toolchain: Toolchain) -> WarmstartReport:
    """Publish the policy that `config.start_from` names as `config.output`, built for this toolchain.

    It keeps its normalization, the quantiles of the code that it was first trained on. The trace only serves to measure
    its agreement with the heuristic.

    Raises:
        UserError: it is not a policy, is for another problem, or has features that this toolchain lacks.
    """
    name = config.start_from
    path = pretrained_policy(problem, name=name) if name in PRETRAINED_NAMES else Path(name)
    policy, info = read_dense(path), load_policy_info(path)
    if policy.problem != problem:
        raise UserError(
            f"--start-from {display_path(path)} is a policy for {policy.problem}, but the trace is of {problem}",
            "name a policy for the same problem",
        )
    policy, info = fit_to_compiler(policy, info, toolchain.features[problem])
    check_vocabulary(info, toolchain)
    action, chosen = _decisions(policy, config.trace)
    names = problems.get(problem).policy.action_names
    say(f"starting from {display_path(path)}, trained by {info.trained_by}")
    report = WarmstartReport.compare(action, chosen, names)
    with publish(config.output, "policy") as partial:
        adopted = dataclasses.replace(
            info,
            trace_digest=digest(config.trace),
            toolchain_digest=digest(config.toolchain),
            llvm_version=toolchain.llvm_version,
        )
        export_policy(policy, partial, toolchain.clang, adopted, path)
        (partial / REPORT).write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        write_regressed(partial, config.regressed)
    return report


def _decisions(policy: DensePolicy, trace: Path) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the heuristic's and the policy's actions [N] in at most MEASURED_DECISIONS decisions of the trace."""
    columns = read_columns(trace, ["action", *(feature.name for feature in policy.features)])
    rows = np.random.default_rng(0).permutation(len(columns["action"]))[:MEASURED_DECISIONS]
    action = columns["action"][rows].reshape(-1).astype(np.intp)
    if not len(rows):
        return action, action
    logits = policy.logits({name: column[rows] for name, column in columns.items()})
    assert logits.shape[1] == problems.get(policy.problem).policy.num_actions
    return action, logits.argmax(axis=1)
