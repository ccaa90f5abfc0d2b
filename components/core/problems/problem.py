"""Defines the properties of an optimization problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LlvmInterface:
    """LLVM's names of a problem. Options are passed after -mllvm.

    Attributes:
        model_class: class that a release build embeds.
        development_options, release_options: select the advisor mode.
        log_option, policy_option: options that take a path.
        channel_option: option that takes a path; together with the release options, it makes the advisor read decisions
            from PATH.in instead of an embedded model, and write PATH.out in the format of a training log.
        callsites: whether the compiler writes the callers and callees of its decisions to a file next to the log.
        logs_scores: whether the training log has the outcome of each context, LLVM's score of the function.
        probe: C++ code that requires at least one decision.
    """

    model_class: str
    development_options: tuple[str, ...]
    release_options: tuple[str, ...]
    log_option: str
    policy_option: str
    channel_option: str
    probe: str
    callsites: bool = False
    logs_scores: bool = False


@dataclass(frozen=True)
class PolicyInterface:
    """Inputs and outputs of a policy.

    Attributes:
        decision, default_decision, logits: columns of the training log: the action taken, the action of LLVM's
            heuristic (None if it is not logged), and the output of the policy's last layer.
        num_actions: number of actions of a decision.
        action_names: names of the actions, for people; empty if actions are candidates of one kind.
        mask: feature with an element for each action, 1 if it is allowed, 0 if not; None if all actions are always
            allowed. Features with the same number of elements describe one action per element.
        excluded_features: features that are logged, but are not inputs of the policy.
        per_instruction_features: features that are logged only with an option that this project never passes; no policy
            may use them.
        heuristic: two features; LLVM's heuristic takes action 1 if the first one is less than the second one, else
            action 0. None if features do not tell its decision.
        settings: features that options set, not the code.
        use_counts: features outside of whose trained range the compiler asks the heuristic.
    """

    decision: str
    default_decision: str | None
    logits: str
    num_actions: int
    action_names: tuple[str, ...] = ()
    mask: str | None = None
    excluded_features: frozenset[str] = frozenset()
    per_instruction_features: frozenset[str] = frozenset()
    heuristic: tuple[str, str] | None = None
    settings: frozenset[str] = frozenset()
    use_counts: tuple[str, ...] = ()

    @property
    def decisions(self) -> frozenset[str]:
        """The columns of a log that are decisions, not features."""
        return frozenset({self.decision, self.default_decision} - {None})  # type: ignore[arg-type]


@dataclass(frozen=True)
class TrainingDefaults:
    """Defaults of `mlgo ppo`.

    Attributes:
        algorithm: learning algorithm of a training from scratch, "ppo" or "dqn".
        finetuning_algorithm: the same for a training that starts from a trained policy.
        modules, samples: modules per iteration, and compiles per module.
        repeats: feature that says how many similar decisions there may be, such as the uses of a callee; None if there
            is no such feature.
    """

    algorithm: Literal["ppo", "dqn"] = "dqn"
    finetuning_algorithm: Literal["ppo", "dqn"] = "ppo"
    modules: int = 16
    samples: int = 8
    repeats: str | None = None


@dataclass(frozen=True)
class Problem:
    """One kind of decision that LLVM delegates to a policy.

    Attributes:
        name: the name in command lines and artifacts.
        optimization: optimization level of the code that the policy is for, such as "-Oz".
        cmd_filter: selects the code of a user's build that the policy is for, a regular expression for a cc1 argument;
            None for all code.
        objective: name of an objective (core/objectives), which is the outcome of a compile, lower is better.
        min_reduction_percent: default of the least reduction of size or scores that makes a policy better.
        decided_by_plugin: whether LLVM lets a plugin take the decisions.
        has_plans: whether a plan may hold the decisions of a program (core/compiler/inline_plan.py).
    """

    name: str
    optimization: str
    objective: str
    min_reduction_percent: float
    llvm: LlvmInterface
    policy: PolicyInterface
    training: TrainingDefaults = TrainingDefaults()
    cmd_filter: str | None = None
    decided_by_plugin: bool = False
    has_plans: bool = False
