"""The faces of an optimization problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """One decision that LLVM leaves to a policy.

    name: as users say it. optimization: the level at which code is built that the policy is for, as "-Oz". cmd_filter:
    which code of a user's own build it is for, a regular expression of a cc1 argument; None for all.

    What a training log has of it. decision, default_decision, logits: names of columns: what was done, what LLVM's
    heuristic would have done (None if the log does not say), and what the policy's last layer said. num_actions: how
    many choices a decision has. mask: a feature with an element for each action, 1 where it is allowed and 0 where it
    is not; None if all always are. Features of as many elements describe one action each, by position.
    excluded_features: logged, but kept from the policy. per_instruction_features: logged only with
    per_instruction_option, which this project never gives; no policy may want them.

    What a compile is judged by. measure: "size", the text of the object, or "score", a number for each function that
    the training log carries as the outcome of its last decision; then a compile that logs makes no object. Less is
    better of both. callsites: whether the compiler writes callers and callees of its decisions beside the log.

    min_reduction_percent: of size or scores, that a policy must reach to be called better unless more is asked for.

    What a training takes unless it is told otherwise. modules, samples: of an iteration, and compiles of each module.
    algorithm: how it learns, see `mlgo ppo --help`.

    repeats: a feature that says how many decisions may be alike, such as the uses of a callee; None if there is none.

    What it is called in LLVM. model_class, model_macro: the class that a release build embeds and the macro that makes
    it. *_options: LLVM options (each goes behind -mllvm) that put the advisor in that mode; log_option, policy_option:
    those that take a path; channel_option: with the release options, takes decisions from the file PATH.in instead of
    an embedded model, and writes PATH.out in the form of a training log.

    probe: C++ in which something is to be decided.
    """

    name: str
    optimization: str
    decision: str
    default_decision: str | None
    logits: str
    num_actions: int
    excluded_features: frozenset[str]
    measure: Literal["size", "score"]
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
        """The columns of a log that are decisions, and so no features."""
        return frozenset({self.decision, self.default_decision} - {None})  # type: ignore[arg-type]
