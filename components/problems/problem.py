"""The faces of an optimization problem."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One decision that LLVM leaves to a policy.

    name: as users say it. decision, default_decision, logits: names of columns of a training log: what was done, what
    LLVM's heuristic would have done, and what the policy's last layer said. num_actions: how many choices a decision
    has. excluded_features: logged, but kept from the policy. model_class, model_macro: the class that a release build
    embeds and the macro that makes it. *_options: LLVM options (each goes behind -mllvm) that put the advisor in that
    mode; log_option, policy_option: those that take a path; channel_option: with the release options, takes decisions
    from the file PATH.in instead of an embedded model, and writes PATH.out in the form of a training log.
    """

    name: str
    decision: str
    default_decision: str
    logits: str
    num_actions: int
    excluded_features: frozenset[str]
    model_class: str
    model_macro: str
    development_options: tuple[str, ...]
    release_options: tuple[str, ...]
    log_option: str
    policy_option: str
    channel_option: str
