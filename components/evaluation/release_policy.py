"""Chooses the policy that the release clang embeds, so that a run whose own policy is not better still delivers one.

The trained policy is embedded if its verdict is "better". Otherwise another policy of the evaluation takes its place,
the one that training started from or the pretrained one, and the report on the release clang is about that one:

    training started from   release_if=better                               release_if=always
    a trained policy        the start, if its own verdict is better         the trained one, if better than the start,
                                                                            else the start
    the heuristic           the pretrained one, if its own verdict is       the trained one, if it is better than the
                            better                                          heuristic, else as with release_if=better,
                                                                            else the trained one

The verdict on another policy follows the same rules and limits as that on the trained one; "not shown" is enough only
where the report on the release clang judges by the programs of the user's own build. Without any, no release clang is
built, and stock clang remains the best one.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from components.core.formats.policy import PRETRAINED_NAMES
from components.core.formats.toolchain import load_toolchain
from components.core.policy.pretrained import pretrained_policy
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import POLICY, REFERENCE, WARMSTART, Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import Inputs, Metrics, PolicyRole, VariantDescription, Verdict
from components.evaluation.report import terminal_report
from components.platform.errors import UserError
from components.platform.storage import digest, publish, require_artifact

T = TypeVar("T")
ReleasePolicy = PolicyRole | Literal["none"]
VARIANTS: dict[PolicyRole, str] = {"trained": POLICY, "start": WARMSTART, "pretrained": REFERENCE}
"""Role of a policy -> the variant that the evaluation of the trained policy measured it as."""


def choose_release_policy(
    metrics: Metrics,
    measured: Measurements,
    config: EvaluationConfig,
    no_gain_over_start: bool,
    judges_own_build: bool = False,
) -> ReleasePolicy:
    """Return the policy that the release clang embeds.

    Args:
        metrics: those of the trained policy, with the verdict and the inputs.
        no_gain_over_start: whether training started from a trained policy that the new one is not better than.
        judges_own_build: whether the report on the release clang will judge by the programs of the user's own build.
            Then a gain of few modules need not be shown to hold for others.
    """
    enough = ("better", "not shown") if judges_own_build else ("better",)
    if metrics.verdict in enough:
        return "trained"
    always = config.release_if == "always"
    if metrics.inputs.starts_from_trained:
        if always:
            return "start" if no_gain_over_start else "trained"
        return "start" if _verdict("start", measured, config) in enough else "none"
    if always and (metrics.reduction_percent or 0.0) > 0:
        return "trained"
    if metrics.inputs.reference in PRETRAINED_NAMES and _verdict("pretrained", measured, config) in enough:
        return "pretrained"
    return "trained" if always else "none"


def _verdict(role: PolicyRole, measured: Measurements, config: EvaluationConfig) -> Verdict:
    if VARIANTS[role] not in measured.values:
        return "not better"
    return summarize(swap_roles(measured, role), config.required_percent).verdict


def swap_roles(measured: Measurements, role: PolicyRole) -> Measurements:
    """Return the measurements of the policy with this role, with the trained policy as its reference."""
    if role == "trained":
        return measured
    values, compile_s = dict(measured.values), None if measured.compile_s is None else dict(measured.compile_s)
    _swap(values, VARIANTS[role])
    _swap(compile_s or {}, VARIANTS[role])
    # Sections and new functions are measured only for the trained policy and the baseline.
    sections = {variant: parts for variant, parts in measured.sections.items() if variant != POLICY}
    return replace(measured, values=values, compile_s=compile_s, sections=sections, overlap=None)


def swap_descriptions(variants: list[VariantDescription], role: PolicyRole) -> list[VariantDescription]:
    """Return the descriptions of the variants of `swap_roles`, in the usual order."""
    if role == "trained":
        return variants
    described = {variant.name: variant for variant in variants}
    names = [name for name in described if name != REFERENCE]
    names.insert(names.index(POLICY), REFERENCE)
    _swap(described, VARIANTS[role])
    return [msgspec.structs.replace(described[name], name=name) for name in sorted(described, key=names.index)]


def _swap(columns: dict[str, T], variant: str) -> None:
    """Make `variant` the policy and the policy the reference; a reference that is in neither place is left out."""
    if not {POLICY, variant} <= columns.keys():
        return
    trained, columns[POLICY] = columns[POLICY], columns.pop(variant)
    columns[REFERENCE] = trained


def find_role(policy_digest: str, inputs: Inputs) -> PolicyRole | None:
    """Return the role of a policy in an evaluation with these inputs; None if it was not measured there."""
    digests: dict[PolicyRole, object] = {
        "trained": inputs.policy_digest,
        "start": inputs.warmstart_digest,
        "pretrained": inputs.reference_digest if inputs.reference in PRETRAINED_NAMES else None,
    }
    return next((role for role, content in digests.items() if content == policy_digest), None)


def publish_release_policy(evaluation: Path, policy: Path, start: Path, toolchain: Path, output: Path) -> ReleasePolicy:
    """Copy the policy that an evaluation chose for the release clang to `output`, unchanged.

    Args:
        evaluation: the evaluation of `policy` by the training clang.
        policy, start: the trained policy, and the one that training started from.
        toolchain: the training clang.

    Raises:
        UserError: the evaluation chose none, or is of other policies.
    """
    metrics = terminal_report.read_metrics(evaluation)
    role = metrics.release_policy
    if role == "none":
        raise UserError(
            f"the evaluation in {evaluation} chose no policy for a release clang: {terminal_report.verdict(metrics)}",
            "evaluate with --release-if always, or embed a policy of your choice: mlgo toolchain --mode release",
        )
    if role == "pretrained":
        clang = load_toolchain(toolchain).clang
        chosen = pretrained_policy(metrics.problem, clang=clang, name=metrics.inputs.reference or "")
    else:
        chosen = policy if role == "trained" else start
    require_artifact(chosen, "policy", verify_content=True)
    if find_role(digest(chosen), metrics.inputs) != role:
        raise UserError(
            f"the evaluation in {evaluation} is of another policy than {chosen}", "name the artifacts of one run"
        )
    with publish(output, "policy") as directory:
        shutil.copytree(chosen, directory, symlinks=True, dirs_exist_ok=True)
    return role
