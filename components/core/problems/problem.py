"""Defines the properties of an optimization problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """One kind of decision that LLVM delegates to a policy.

    Attributes:
        name: the name in command lines and artifacts.
        optimization: optimization level of the code that the policy is for, such as "-Oz".
        cmd_filter: selects the code of a user's build that the policy is for, a regular expression for a cc1 argument;
            None for all code.

        decision, default_decision, logits: columns of the training log: the action taken, the action of LLVM's
            heuristic (None if it is not logged), and the output of the policy's last layer.
        num_actions: number of actions of a decision.
        mask: feature with an element for each action, 1 if it is allowed, 0 if not; None if all actions are always
            allowed. Features with the same number of elements describe one action per element.
        excluded_features: features that are logged, but are not inputs of the policy.
        per_instruction_features: features that are logged only with per_instruction_option, which this project never
            passes; no policy may use them.

        objective: outcome of a compile, lower is better. "size": the text of the object. "score": a number for each
            function, which the training log has as the outcome of its last decision; a compile that logs then writes
            no object.
        callsites: whether the compiler writes the callers and callees of its decisions to a file next to the log.
        min_reduction_percent: default of the least reduction of size or scores that makes a policy better.

        modules, samples: default number of modules per training iteration, and of compiles per module.
        algorithm: default learning algorithm, see `mlgo ppo --help`.
        repeats: feature that says how many similar decisions there may be, such as the uses of a callee; None if there
            is no such feature.

        model_class, model_macro: class that a release build embeds, and the macro that enables it.
        development_options, release_options: LLVM options (each is passed after -mllvm) that select the advisor mode.
        log_option, policy_option: LLVM options that take a path.
        channel_option: LLVM option that takes a path; together with the release options, it makes the advisor read
            decisions from PATH.in instead of an embedded model, and write PATH.out in the format of a training log.
        probe: C++ code that requires at least one decision.
    """

    name: str
    optimization: str
    decision: str
    default_decision: str | None
    logits: str
    num_actions: int
    excluded_features: frozenset[str]
    objective: Literal["size", "score"]
    min_reduction_percent: float
    callsites: bool
    model_class: str
    model_macro: str
    development_options: tuple[str, ...]
    release_options: tuple[str, ...]
    log_option: str
    policy_option: str
    channel_option: str
    probe: str
    modules: int = 16
    samples: int = 8
    algorithm: Literal["ppo", "dqn"] = "dqn"
    cmd_filter: str | None = None
    mask: str | None = None
    repeats: str | None = None
    per_instruction_features: frozenset[str] = frozenset()
    per_instruction_option: str | None = None

    @property
    def decisions(self) -> frozenset[str]:
        """The columns of a log that are decisions, not features."""
        return frozenset({self.decision, self.default_decision} - {None})  # type: ignore[arg-type]
