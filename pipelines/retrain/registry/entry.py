"""The entry of a deployed policy in a model registry, and the interface of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from components.core import problems
from components.core.objectives import OBJECTIVES
from components.evaluation.report.model_card import MARKDOWN
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_text
from pipelines.retrain.artifacts import local
from pipelines.retrain.promote import describe_day
from pipelines.retrain.state import Deployed

ALIAS = "deployed"
"""Alias, or property, that names the version of the deployed policy."""


@dataclass(frozen=True)
class RegistryEntry:
    """A policy for a registry.

    Attributes:
        model: name of the model, for example "mlgo-inlining"; each promoted policy is a version of it.
        uri: location of the policy's artifact.
        digest: digest of the artifact, which identifies the version.
        summary: a sentence for lists.
        author: who promoted it.
        card: model card in Markdown; "" if there is none.
        figures: name -> number, in percent.
        facts: name -> text: problem, LLVM version, digests, run, reason.
    """

    model: str
    uri: str
    digest: str
    summary: str
    author: str
    card: str
    figures: Mapping[str, float]
    facts: Mapping[str, str]


class ModelRegistry(Protocol):
    """A registry of models.

    `deploy` can be repeated: a policy is registered once, and a rollback only moves the alias.
    """

    def deploy(self, entry: RegistryEntry) -> str:
        """Register the policy unless it is registered, name it the deployed version, and return that version's name."""


def registry_entry(deployed: Deployed, model: str = "") -> RegistryEntry:
    """Return the entry of a deployed policy, with the model card of its evaluation.

    Args:
        model: name of the model; empty for one that names the problem.

    Raises:
        UserError: the evaluation cannot be read.
    """
    reward = OBJECTIVES[problems.get(deployed.problem).objective].labels.reward
    figures = {"reduction_percent": deployed.reduction_percent}
    if deployed.ci95:
        figures |= {"reduction_percent_low": deployed.ci95[0], "reduction_percent_high": deployed.ci95[1]}
    if deployed.better_percent is not None:
        figures["better_than_previous_percent"] = deployed.better_percent
    facts = {
        "problem": deployed.problem,
        "llvm_version": deployed.llvm_version,
        "policy_digest": deployed.policy_digest,
        "corpus_digest": deployed.corpus_digest,
        "toolchain_digest": deployed.toolchain_digest,
        "run": deployed.run,
        "reason": deployed.reason,
        "promoted_on": describe_day(deployed.promoted_at),
    }
    return RegistryEntry(
        model=model or f"mlgo-{deployed.problem}",
        uri=deployed.policy,
        digest=deployed.policy_digest,
        summary=f"{deployed.problem} for LLVM {deployed.llvm_version}: {deployed.reduction_percent:.2f}{reward}, "
        f"promoted on {describe_day(deployed.promoted_at)}",
        author=deployed.promoted_by,
        card=_card(deployed),
        figures=figures,
        facts={name: text for name, text in facts.items() if text},
    )


def _card(deployed: Deployed) -> str:
    if not deployed.evaluation:
        say("the state does not name the evaluation of this policy: it is registered without a model card")
        return ""
    try:
        return read_text(local(deployed.evaluation) / MARKDOWN)
    except MissingFile:
        raise UserError(
            f"the evaluation at {deployed.evaluation} of the deployed policy has no {MARKDOWN}",
            "restore the artifact of the run that trained the policy",
        ) from None
