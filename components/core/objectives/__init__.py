"""The objectives of training and evaluation: the size of native code, or LLVM's scores of functions."""

from components.core.objectives.objective import Labels, Objective
from components.core.objectives.score import SCORE
from components.core.objectives.size import SIZE

__all__ = ["OBJECTIVES", "SCORE", "SIZE", "Labels", "Objective"]

OBJECTIVES: dict[str, Objective] = {SIZE.name: SIZE, SCORE.name: SCORE}
"""Objectives by name, as in `Problem.objective`, metrics.json and measurements.json."""
