"""Configuration of a training, without the hyperparameters of networks and learners, which are gin's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from components.core import problems
from components.core.formats.policy import POLICY_JSON, REGRESSED_JSON, load_policy_info
from components.core.formats.toolchain import Toolchain
from components.core.objectives import OBJECTIVES
from components.platform.console import say
from components.platform.errors import UserError

CreditAssignment = Literal["counterfactual", "function", "module"]
Algorithm = Literal["ppo", "dqn", "es"]
SizeOf = Literal["linked", "modules"]
ONLY_CREDIT: dict[str, CreditAssignment] = {"dqn": "counterfactual", "es": "module"}
"""The credit assignment of algorithms that learn from one only."""


VALIDATE_EVERY = 5
VALIDATE_EVERY_FINETUNING = 2
"""A trained policy improves within minutes or not at all, so it must be known soon whether it does."""
PATIENCE = 5


def algorithms_without_advisors(problem: str) -> tuple[Algorithm, ...]:
    """Return the algorithms that a training clang without our advisors allows, the default first.

    Such a clang takes no forced decisions, so that no flip can be measured. It logs greedy compiles only, so that an
    objective that needs the log is left with ES.
    """
    if OBJECTIVES[problems.get(problem).objective].needs_log:
        return ("es",)
    return ("ppo", "es")


def restrict_to_capabilities(toolchain: Toolchain, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` of TrainingConfig, completed with what a training clang without our advisors can train by.

    Without the names of callers and callees the credit goes to modules. Options for a clang of ours are returned as
    they are.

    Raises:
        UserError: they ask for something that this clang cannot do.
    """
    if "forced_decisions" in toolchain.capabilities:
        return dict(options)
    problem = options.get("problem", TrainingConfig.problem)
    possible = algorithms_without_advisors(problem)
    algorithm = options.get("algorithm") or possible[0]
    credit = options.get("credit_assignment") or "module"
    if algorithm not in possible or credit != "module":
        asked = [f"--algorithm {algorithm}"] if algorithm not in possible else []
        asked += [f"--credit-assignment {credit}"] if credit != "module" else []
        raise UserError(
            f"{' and '.join(asked)} for {problem} needs a training clang with our advisors, but the one in "
            f"{toolchain.directory} was built by others",
            f"leave it out, or pass --algorithm {' or '.join(possible)} --credit-assignment module",
        )
    say(
        f"the training clang was built by others: training by {algorithm.upper()} with the sizes or scores of whole "
        "modules, not with measured decisions"
    )
    return {**options, "algorithm": algorithm, "credit_assignment": credit}


@dataclass(frozen=True)
class TrainingConfig:
    """One run of the step; the fields are the options of `mlgo ppo`, described by its --help.

    It ends after `minutes` of wall time, `iterations` iterations or `compiles` compiles, whichever comes first, or when
    validations no longer improve. None is no limit; at least one of the three is set. Without `minutes`, the result
    does not depend on the speed of the machine or on what else runs there.

    Attributes:
        compiles: rounded up to whole iterations. It measures the effort whatever the problem, the algorithm and the
            modules per iteration are.
        modules: modules per iteration; 0 for the problem's default.
        samples: compiles per module; 0 for the problem's default. With counterfactual credit, one compile without flips
            is added; for problems with scores, it is the number of flips per function, all in one compile.
        credit_assignment: source of a decision's advantage. "counterfactual": measured by compiling with the decision
            flipped. "function", "module": estimated from sampled compiles (ppo/credit/size_credit.py). None means
            "counterfactual", or "module" for algorithms that assign no credit.
        algorithm: None for the problem's default, which depends on `starts_from_trained`. "ppo" updates a policy, "dqn"
            learns action values from counterfactuals. "es" perturbs the policy's weights `samples` times per iteration
            and compares outcomes.
        validate_every: 0 for VALIDATE_EVERY, or VALIDATE_EVERY_FINETUNING if `starts_from_trained`.
        ema_decay: per iteration; less in the first iterations.
        checkpoint_every: an interrupted training also publishes its last finished iteration; a killed one cannot.
        oversample_modules: JSON file with module names, a list or an object with the list "regressed". Modules of the
            same directories stand for those that are not trained on.
    """

    corpus: Path
    toolchain: Path
    trace: Path
    warmstart: Path
    root_dir: Path
    output: Path
    problem: str = "inlining"
    minutes: float | None = None
    iterations: int | None = None
    compiles: int | None = None
    modules: int = 0
    samples: int = 0
    credit_assignment: CreditAssignment | None = None
    algorithm: Algorithm | None = None
    size_of: SizeOf = "linked"
    module_weight: float = 1.0
    validate_every: int = 0
    patience: int = PATIENCE
    ema_decay: float = 0.7
    max_checkpoints: int = 3
    checkpoint_every: int = 1
    fingerprint_root_dir: bool = False
    seed: int = 0
    workers: str = "local"
    min_completed_fraction: float = 1.0
    timeout_s: float = 60.0
    max_failed_fraction: float = 0.05
    oversample_modules: Path | None = None
    gin_files: tuple[Path, ...] = ()
    gin_bindings: tuple[str, ...] = ()
    allowed_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.minutes is None and self.iterations is None and self.compiles is None:
            raise UserError("nothing says how long to train", "pass --minutes, --iterations or --compiles")
        for name in ("modules", "samples"):
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(problems.get(self.problem).training, name))
        if not self.validate_every:
            every = VALIDATE_EVERY_FINETUNING if self.starts_from_trained else VALIDATE_EVERY
            object.__setattr__(self, "validate_every", every)
        if self.algorithm is None:
            defaults = problems.get(self.problem).training
            algorithm = defaults.finetuning_algorithm if self.starts_from_trained else defaults.algorithm
            object.__setattr__(self, "algorithm", algorithm)
        if self.credit_assignment is None:
            object.__setattr__(self, "credit_assignment", "module" if self.algorithm == "es" else "counterfactual")
        self._require_credit()

    @property
    def max_iterations(self) -> int | None:
        """The limit of iterations, from `iterations` and `compiles`; None if only time limits the training."""
        limits = [] if self.iterations is None else [self.iterations]
        if self.compiles is not None:
            per_module = self.samples
            if self.credit_assignment == "counterfactual":
                one_forks = OBJECTIVES[problems.get(self.problem).objective].forks_at_flips
                per_module = 1 + (1 if one_forks else self.samples)
            limits.append(math.ceil(self.compiles / (self.modules * per_module)))
        return min(limits, default=None)

    @property
    def starts_from_trained(self) -> bool:
        """Whether the warmstart was trained by reinforcement learning, as with --start-from a policy."""
        policy = self.warmstart / POLICY_JSON
        return policy.is_file() and load_policy_info(self.warmstart).trained_by == "ppo"

    @property
    def oversampling(self) -> Path | None:
        """The JSON file with the modules to oversample: `oversample_modules` or the warmstart's; None without one."""
        if self.oversample_modules is not None:
            return self.oversample_modules
        regressed = self.warmstart / REGRESSED_JSON
        return regressed if regressed.is_file() else None

    def _require_credit(self) -> None:
        """Raise UserError unless algorithm, credit assignment and number of samples are compatible."""
        learns_from = ONLY_CREDIT.get(str(self.algorithm), str(self.credit_assignment))
        if self.credit_assignment != learns_from:
            raise UserError(
                f"--algorithm {self.algorithm} learns from --credit-assignment {learns_from} only, not "
                f"{self.credit_assignment}",
                f"pass --credit-assignment {learns_from}, or --algorithm ppo",
            )
        if self.algorithm == "es" and self.min_completed_fraction < 1:
            raise UserError(
                f"--min-completed-fraction {self.min_completed_fraction:g} with --algorithm es: perturbations are "
                "compared on the same modules",
                "leave --min-completed-fraction out",
            )
        if self.algorithm == "es" and self.samples % 2:
            raise UserError(f"--samples {self.samples}: perturbations come in pairs", "pass an even number")
        if self.samples < 2 and self.credit_assignment != "counterfactual":
            raise UserError(
                f"--samples {self.samples}: a sample is compared with others of its module",
                "pass at least 2",
            )


PRESETS: dict[str, dict[str, object]] = {
    # The policy is not meant to be good.
    "tiny": {"minutes": 2.0, "iterations": 4, "modules": 3, "samples": 2, "validate_every": 2},
    # The whole demo takes 20 minutes on 2 cores. Measurements bound it, not minutes, so that a slow
    # or busy machine takes longer but ends with the same policy.
    "demo": {"compiles": 3300},
    # For policies that will be used: with trace, vocab and warmstart an hour on 2 cores. Late steps of a long run are
    # small, so a longer average costs no progress.
    "full": {"minutes": 56.0, "ema_decay": 0.9},
}
"""Defaults of other options by --preset. A limit on the command line replaces those of the preset."""

LIMITS = ("minutes", "iterations", "compiles")
