"""Check the artifacts that retraining takes: that each is of its kind, and that those of a run belong together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from components.core import problems
from components.core.formats.policy import PolicyInfo, check_features, load_policy_info
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.policy.agreement import require_agreement
from components.evaluation.measurements import read_measurements
from components.evaluation.metrics_types import Metrics
from components.evaluation.report.terminal_report import read_metrics
from components.platform.errors import UserError
from components.platform.storage import require_artifact
from components.platform.storage.kinds import Kind, describe_kind
from components.platform.storage.manifest import ManifestEntry
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, parse_location

_BITCODE, _INDEX = ".bc", ".thinlto.bc"


def local(location: str) -> Path:
    """Return the local path of the artifact at `location`, which is downloaded if it is in object storage."""
    where = parse_location(location)
    return fetch(where) if isinstance(where, ObjectUri) else where


def check_run(run: Mapping[str, str], toolchain: str, problem: str | None) -> Toolchain:
    """Check the artifacts of a run before its policy is judged or deployed; return its training clang.

    Args:
        run: locations of its policy, evaluation, corpus and, if a release clang was built, release_report.
        toolchain: location of its training clang.
        problem: of the deployed policy; None if nothing is deployed.

    Raises:
        UserError: an artifact is missing, damaged or of another kind; the policy cannot be trained further, does not
            load, or its forms differ; or the artifacts are of different problems.
    """
    info = check_policy(run["policy"])
    if problem is not None and info.problem != problem:
        raise UserError(
            f"the deployed policy is for {problem}, but the policy at {run['policy']} is for {info.problem}",
            "use another --state for each problem",
        )
    clang = training_toolchain(toolchain, info.problem)
    check_features(info.features, clang.features[info.problem], info.optional_features)
    module_checksums(run["corpus"])
    for name in ("evaluation", "release_report"):
        if name in run:
            metrics = check_evaluation(run[name], info.problem)
            if metrics.inputs.llvm_version and metrics.inputs.llvm_version != clang.llvm_version:
                raise UserError(
                    f"the evaluation at {run[name]} is of LLVM {metrics.inputs.llvm_version}, the training clang at "
                    f"{toolchain} is {clang.llvm_version}",
                    "name the artifacts of one run",
                )
    return clang


def check_policy(location: str) -> PolicyInfo:
    """Return what policy.json of a policy says. UserError unless it can be trained, loads, and its forms agree."""
    directory = local(location)
    _files(location, "policy", verify_content=True)
    info = load_policy_info(directory)
    require_agreement(directory)
    return info


def training_toolchain(location: str, problem: str) -> Toolchain:
    """Return the training clang at `location`. UserError unless it is one with an advisor for `problem`."""
    _files(location, "toolchain")
    toolchain = load_toolchain(local(location)).require_mode("training")
    if problem not in toolchain.features:
        raise UserError(f"the clang at {location} has no advisor for {problem}", "pass the training clang of the run")
    return toolchain


def check_evaluation(location: str, problem: str, policy_digest: str = "") -> Metrics:
    """Return the metrics of an evaluation. UserError if it is not an evaluation, or is of another problem or policy.

    Args:
        policy_digest: of the policy that it must be of; "" for any.
    """
    _files(location, "evaluation")
    metrics, measured = read_metrics(local(location)), read_measurements(local(location))
    if metrics.problem != problem or measured.objective.name != problems.get(problem).objective:
        raise UserError(
            f"the evaluation at {location} is of a policy for {metrics.problem}, not for {problem}",
            "pass an evaluation of the same problem",
        )
    if policy_digest and metrics.inputs.policy_digest not in (None, policy_digest):
        raise UserError(f"the evaluation at {location} is of another policy", "evaluate the deployed policy")
    return metrics


def module_checksums(corpus: str) -> dict[str, str]:
    """Return name -> crc32c of the bitcode of each module of a corpus artifact, read from its manifest alone.

    Raises:
        UserError: it is not a corpus, or has no modules.
    """
    checksums = {
        entry.name.removesuffix(_BITCODE): entry.crc32c
        for entry in _files(corpus, "corpus")
        if entry.name.endswith(_BITCODE) and not entry.name.endswith(_INDEX)
    }
    if not checksums:
        raise UserError(f"the corpus at {corpus} has no modules", "pass a corpus of the current code")
    return checksums


def _files(location: str, kind: Kind, verify_content: bool = False) -> tuple[ManifestEntry, ...]:
    """Return the files of the artifact at `location`; local ones are checked, those in object storage not downloaded.

    Raises:
        UserError: there is none, it is of another kind, or files are missing or damaged.
    """
    where = parse_location(location)
    if isinstance(where, ObjectUri):
        from components.platform.storage.object_storage.remote import read_remote_manifest

        remote = read_remote_manifest(where)
        if not remote.version:
            raise UserError(f"there is no finished {kind} at {location}", f"check the URI of the {kind}")
        actual_kind, files = remote.kind, remote.files
    else:
        manifest = require_artifact(where, kind, verify_content)
        actual_kind, files = manifest.kind, manifest.files
    if actual_kind != kind:
        raise UserError(
            f"{location} is {describe_kind(actual_kind)}, not {describe_kind(kind)}", f"pass the {kind} of the run"
        )
    return files
