"""What the PPO step can be told, apart from the hyperparameters of network and agent, which gin has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core import problems
from components.core.console import UserError

CreditAssignment = Literal["counterfactual", "function", "module"]
Algorithm = Literal["ppo", "dqn", "es"]
Objective = Literal["linked", "modules"]


@dataclass(frozen=True)
class PpoConfig:
    """One run of the step.

    Ends after `minutes` of wall time or `iterations` iterations, whichever comes first; None is no limit, and one of
    the two is set. An iteration compiles `modules` modules `samples` times each.

    corpus, toolchain, trace, warmstart: artifact directories. root_dir: checkpoints and TensorBoard logs, kept between
    runs; one run at a time. output: where the policy of the best checkpoint is published.
    modules, samples: of an iteration, and compiles of each; with counterfactuals one more, without flips, and of
        problems with scores flips of each function in one compile. 0 becomes what the problem wants.
    credit_assignment: where a decision's advantage comes from. "counterfactual": measured by compiling with the
        decision flipped. "function", "module": estimated from sampled compiles (core/objectives/size_credit.py). None
        becomes "counterfactual", or "module" if the algorithm assigns no credit.
    algorithm: how that is learned from; None becomes what the problem wants. "ppo" updates a policy, "dqn" the actions'
        values, from counterfactuals only.
        "es" perturbs the policy's weights, `samples` times an iteration, and compares what modules come to.
    objective: of a problem judged by size, what of a function's bytes counts: "linked", its share of what the link of
        the project keeps; "modules", all of them.
    module_weight: weight of the module's own size next to its functions' (credit assignment "function").
    validate_every: iterations between two looks at the validation modules.
    ema_decay: of the moving average of the weights (ppo, es), per iteration, at most: in the first ones it is less.
    max_checkpoints: how many checkpoints are kept. checkpoint_every: iterations between two; an interrupted training
        publishes one of its last finished iteration, too, but a killed one cannot.
    fingerprint_root_dir: train in a folder of root_dir that is named after everything that decides what is learned.
        Changed inputs then start a new training there; without it they are refused.
    min_completed_fraction: an iteration goes on when this part of its modules is done, and gives up the rest.
    oversample_modules: JSON file of module names, a list or an object with the list "regressed". These modules, or
        where they are not trained on the modules of their directories, are part of every round.
    allowed_options: recorded options of modules that are replayed though they are refused otherwise.
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
    modules: int = 0
    samples: int = 0
    credit_assignment: CreditAssignment | None = None
    algorithm: Algorithm | None = None
    objective: Objective = "linked"
    module_weight: float = 1.0
    validate_every: int = 5
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
        if self.minutes is None and self.iterations is None:
            raise UserError("nothing says how long to train", "pass --minutes or --iterations")
        for name in ("modules", "samples"):
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(problems.get(self.problem).training, name))
        for name in ("modules", "validate_every", "max_checkpoints", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1", "pass a larger number")
        if not 0 < self.min_completed_fraction <= 1:
            raise UserError(
                f"--min-completed-fraction {self.min_completed_fraction:g}", "give a number above 0, at most 1"
            )
        if self.algorithm is None:
            object.__setattr__(self, "algorithm", problems.get(self.problem).training.algorithm)
        if self.credit_assignment is None:
            object.__setattr__(self, "credit_assignment", "module" if self.algorithm == "es" else "counterfactual")
        self._require_credit()

    def _require_credit(self) -> None:
        """UserError unless algorithm, credit assignment and number of samples go together."""
        only = {"dqn": "counterfactual", "es": "module"}
        learns_from = only.get(str(self.algorithm), str(self.credit_assignment))
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
                f"--samples {self.samples}: a sample is judged against the others of its module",
                "pass at least 2",
            )


PRESETS: dict[str, dict[str, object]] = {
    # The policy is not meant to be good.
    "tiny": {"minutes": 2.0, "iterations": 4, "modules": 6, "samples": 2, "validate_every": 2},
    # With everything before and after it, set-up included, 20 minutes on 2 cores.
    "demo": {"minutes": 11.5},
    # What a policy that is to be used deserves: with trace, vocab and warmstart an hour on 2 cores. Late in a long run
    # steps are small: a longer average costs no progress, and fewer looks at the validation modules suffice.
    "full": {"minutes": 56.0, "validate_every": 6, "ema_decay": 0.9},
}
"""--preset -> defaults of other options."""
