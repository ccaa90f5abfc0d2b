"""What the warmstart step is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.formats.policy import HEURISTIC

FeatureSet = Literal["extended", "llvm"]


@dataclass(frozen=True)
class WarmstartConfig:
    """One run of behavioural cloning.

    trace, vocab, toolchain: input artifacts; of the toolchain (training), the compiler and its features are used.
    output: the policy artifact to write.
    epochs: passes over the training decisions. batch_size: decisions in a step, at most.
    learning_rate: Adam's at its peak; it rises over the first 2% of the steps and falls to zero along a cosine.
    entropy_weight: how much a decision's entropy (nats) counts against its cross-entropy; above zero it keeps the
        policy from being surer than it has to be, which leaves PPO something to explore.
    temperature: divides the exported logits; decisions stay the same, samples get more varied above 1.
    heldout_fraction: of the modules, whose decisions only measure the agreement.
    start_from: HEURISTIC, whose decisions are imitated; else a policy that is taken as it is, and all that follows is
        of no effect: "pretrained", or its directory.
    features: which of the trace's features the policy sees: "extended" all, "llvm" those that upstream LLVM has, too.
    seed: of the initial weights, the held-out modules and the order of decisions.
    gin_files, gin_bindings: network hyperparameters, after those of components/core/policy/gin.
    """

    trace: Path
    vocab: Path
    toolchain: Path
    output: Path
    epochs: int = 30
    batch_size: int = 8192
    learning_rate: float = 8e-3
    entropy_weight: float = 0.0
    temperature: float = 1.0
    heldout_fraction: float = 0.1
    start_from: str = HEURISTIC
    features: FeatureSet = "extended"
    seed: int = 0
    gin_files: tuple[Path, ...] = ()
    gin_bindings: tuple[str, ...] = ()
