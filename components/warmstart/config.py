"""Configuration of the warmstart step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core.formats.policy import HEURISTIC
from components.core.formats.strategy import FeatureSet


@dataclass(frozen=True)
class WarmstartConfig:
    """One run of behavioural cloning; the fields are the options of `mlgo warmstart`, described by its --help.

    Attributes:
        learning_rate: it rises over the first 2% of the steps and decays to zero along a cosine.
        entropy_weight: weight of a decision's entropy (nats) against its cross-entropy; above zero it keeps the policy
            from becoming more certain than necessary, so that PPO can explore.
        start_from: HEURISTIC to imitate the heuristic; one of PRETRAINED_NAMES or a directory to adopt a policy as it
            is. Then all options of the training have no effect.
        regressed: names of modules that training is to oversample, because the deployed policy regressed them.
        gin_files, gin_bindings: applied after those of components/core/policy/tf/gin.
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
    regressed: tuple[str, ...] = ()
    gin_files: tuple[Path, ...] = ()
    gin_bindings: tuple[str, ...] = ()
