"""Who decides in a compile, and the clang flags that say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components import problems

Mode = Literal["default", "log", "heuristic", "policy", "release"]
POLICY_FILES = ("policy.so", "output_spec.json")
"""What a training clang reads of a policy directory."""


@dataclass(frozen=True)
class Advisor:
    """The decision maker of a compile.

    mode: "default", LLVM's heuristic, nothing logged; "log", the same heuristic, each decision logged with its
        features; "heuristic", the same in samples without a log, the base of counterfactuals; "policy", the policy in
        `policy`; "release", the policy that the clang embeds.
    policy: directory with policy.so and output_spec.json; given in mode "policy" and in no other.
    seed: samples decisions from the policy, the same for the same seed; None takes the most probable one.
    samples: number of compiles of the module that share one front half, with the seeds seed, seed + 1 ... if there is
        a seed; 0 for one ordinary compile.
    log: in mode "policy", whether decisions are logged. Mode "log" always logs, the others never do.
    """

    mode: Mode
    policy: Path | None = None
    seed: int | None = None
    samples: int = 0
    log: bool = False

    def __post_init__(self) -> None:
        if (self.mode == "policy") != (self.policy is not None):
            raise ValueError(f"mode {self.mode!r} with policy {self.policy}")
        if self.mode != "policy" and (self.seed is not None or self.log):
            raise ValueError(f"mode {self.mode!r} neither draws decisions nor takes `log`")
        if self.mode not in ("policy", "log", "heuristic") and self.samples:
            raise ValueError(f"mode {self.mode!r} has no samples")
        if self.mode == "heuristic" and not self.samples:
            raise ValueError("mode 'heuristic' is for samples; a single compile is mode 'default'")

    @property
    def logs(self) -> bool:
        return self.mode == "log" or self.log

    def flags(self, problem: str, log: Path | None, sample_prefix: Path | None) -> list[str]:
        """cc1 flags for `problem`. log: where the training log goes, if this advisor logs a single compile;
        sample_prefix: what the names of the samples' files begin with, if there are samples."""
        faces = problems.get(problem)
        if self.mode == "default":
            return []
        options = list(faces.release_options if self.mode == "release" else faces.development_options)
        if self.policy is not None:
            options.append(f"{faces.policy_option}={self.policy.absolute()}")  # compiles run elsewhere
        if self.seed is not None:
            options.append(f"-mlgo-seed={self.seed}")
        if self.samples:
            options += [f"-mlgo-samples={self.samples}", f"-mlgo-sample-prefix={sample_prefix}"]
            if not self.logs:
                options.append("-mlgo-sample-logs=false")
        elif self.logs:
            options.append(f"{faces.log_option}={log}")
        return [argument for option in options for argument in ("-mllvm", option)]
