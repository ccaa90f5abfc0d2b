"""Selects the inlining or register-allocation advisor of a compile and the clang flags that request it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core import problems
from components.core.formats.policy import OUTPUT_SPEC_JSON, TFLITE_MODEL

Mode = Literal["default", "log", "heuristic", "policy", "release"]
TRAINED_RANGES = ("-mllvm", "-mlgo-ranges=1")
"""Flags of a training clang with a policy for inlining that then decides as the release clang does by default."""
OUTLINER_OPTION = "-mlgo-outline"
NO_OUTLINER = ("-mllvm", f"{OUTLINER_OPTION}=0")
"""Flags of a release clang that then differs from the training clang in nothing but who decides."""
POLICY_FILES = ("policy.so", OUTPUT_SPEC_JSON)
"""The files of a policy directory that a training clang reads."""


@dataclass(frozen=True)
class Advisor:
    """The advisor that makes the decisions of a compile.

    Attributes:
        mode: "default": LLVM's heuristic, nothing logged; "log": the same heuristic, each decision logged with its
            features; "heuristic": the same heuristic in samples without a log, the base of counterfactuals;
            "policy": the policy in `policy`; "release": the policy that the clang embeds.
        policy: directory with policy.so and output_spec.json; required in mode "policy", not allowed in any other.
        seed: decisions are sampled from the policy, reproducibly for a seed; None takes the most probable action.
        samples: number of compiles of the module that share the passes before the first decision, with the seeds seed,
            seed + 1, ... if there is a seed; 0 for one ordinary compile.
        log: in mode "policy", whether decisions are logged. Mode "log" always logs, the others never do.
    """

    mode: Mode
    policy: Path | None = None
    seed: int | None = None
    samples: int = 0
    log: bool = False

    def __post_init__(self) -> None:
        if (self.mode == "policy") != (self.policy is not None):
            raise ValueError(f"mode {self.mode!r} does not go with policy {self.policy}")
        if self.mode != "policy" and (self.seed is not None or self.log):
            raise ValueError(f"mode {self.mode!r} takes neither `seed` nor `log`")
        if self.mode not in ("policy", "log", "heuristic") and self.samples:
            raise ValueError(f"mode {self.mode!r} does not take `samples`")
        if self.mode == "heuristic" and not self.samples:
            raise ValueError("mode 'heuristic' requires `samples`; use mode 'default' for a single compile")

    @property
    def logs(self) -> bool:
        """Whether the compile writes a training log."""
        return self.mode == "log" or self.log

    def flags(self, problem: str, log: Path | None, sample_prefix: Path | None) -> list[str]:
        """Return the cc1 flags for a problem.

        Args:
            log: path of the training log, if this advisor logs a single compile.
            sample_prefix: prefix of the paths of the samples' files, if there are samples.
        """
        llvm = problems.get(problem).llvm
        if self.mode == "default":
            return []
        options = list(llvm.release_options if self.mode == "release" else llvm.development_options)
        if self.policy is not None:
            # Absolute, because the compiler runs in another working directory.
            options.append(f"{llvm.policy_option}={self.policy.absolute()}")
        if self.seed is not None:
            options.append(f"-mlgo-seed={self.seed}")
        if self.samples:
            options += [f"-mlgo-samples={self.samples}", f"-mlgo-sample-prefix={sample_prefix}"]
            if not self.logs:
                options.append("-mlgo-sample-logs=false")
        elif self.logs:
            options.append(f"{llvm.log_option}={log}")
        return [argument for option in options for argument in ("-mllvm", option)]


def shared_files(policy: Path) -> tuple[str, ...]:
    """Return the names of the files that workers need to compile with a policy, whichever training clang they have."""
    return (*POLICY_FILES, TFLITE_MODEL) if (policy / TFLITE_MODEL).is_file() else POLICY_FILES
