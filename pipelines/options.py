"""What the user asks of a whole run: one frozen dataclass, and the presets that fill it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.console import UserError
from components.workers.make import number_of_workers


@dataclass(frozen=True)
class Preset:
    """How much of everything a run does.

    Invariants: train_minutes > 0; each tuple holds whole command-line arguments of the step it is named after.
    """

    train_minutes: float
    warmstart: tuple[str, ...] = ()
    ppo: tuple[str, ...] = ()
    evaluation: tuple[str, ...] = ()


PRESETS: dict[str, Preset] = {
    # The whole chain on a few modules, to see that it works; the policy is not meant to be good.
    "tiny": Preset(
        train_minutes=2.0,
        warmstart=("--epochs", "20"),
        ppo=("--iterations", "4", "--modules", "6", "--samples", "2", "--validate-every", "2"),
        evaluation=("--thresholds", "15"),
    ),
    # Fits 20 minutes on 2 cores with everything before and after it, set-up included (6 minutes).
    "demo": Preset(train_minutes=12.0),
    # What a policy that is to be used deserves: with trace, vocab and warmstart an hour on 2 cores. Late in a long run
    # steps are small: a longer average costs no progress, and fewer looks at the validation modules suffice.
    "full": Preset(train_minutes=56.0, ppo=("--validate-every", "10", "--average-decay", "0.9")),
}


@dataclass(frozen=True)
class RunOptions:
    """One run of the chain.

    Invariants: exactly one of compile_commands, corpus and recipe is set; paths are absolute; preset is a key of
    PRESETS; train_minutes, if set, replaces the preset's.
    """

    output: Path
    compile_commands: Path | None = None
    corpus: Path | None = None
    recipe: Path | None = None
    preset: str = "demo"
    problem: str = "inlining"
    workers: str = "local"
    llvm_major: int = 19
    llvm_source: str = "deb"
    train_minutes: float | None = None
    seed: int = 1
    min_reduction_percent: float = 0.5

    def __post_init__(self) -> None:
        sources = [s for s in (self.compile_commands, self.corpus, self.recipe) if s is not None]
        if len(sources) != 1:
            raise UserError(
                f"exactly one source of code is needed, {len(sources) or 'none'} given",
                "pass one of --compile-commands FILE, --corpus DIR, --recipe FILE",
            )
        if not sources[0].exists():
            raise UserError(f"{sources[0]} does not exist", "check the path")
        if self.preset not in PRESETS:
            raise UserError(f"there is no preset {self.preset!r}", f"choose one of {', '.join(PRESETS)}")
        if self.train_minutes is not None and self.train_minutes <= 0:
            raise UserError(f"--train-minutes {self.train_minutes:g} is not positive", "pass the minutes to train for")
        # What only a late step would refuse is refused before the first.
        if self.min_reduction_percent > 100:
            raise UserError(
                f"--min-reduction-percent {self.min_reduction_percent:g}: nothing shrinks by more than 100%",
                "give a number of percent such as 0.5",
            )
        number_of_workers(self.workers)

    @property
    def amounts(self) -> Preset:
        return PRESETS[self.preset]

    @property
    def minutes(self) -> float:
        return self.amounts.train_minutes if self.train_minutes is None else self.train_minutes
