"""The output of one compile of a module."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from components.core.compiler.logs.callsites import Callsites
from components.core.compiler.logs.training_log import TrainingLog
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.core.formats.names import replace_invalid_utf8

NO_ROWS = np.empty(0, np.intp)


@dataclass(frozen=True)
class Sample:
    """The output of one compile. The objective defines which part is its outcome.

    Attributes:
        text_size_bytes: native text as llvm-size counts it; 0 if no object was made, because the problem has scores.
        log: the training log, if the advisor logs.
        callsites: the callsites of the log, for problems that have them.
        function_sizes: text bytes of functions, if requested.
        scores: score by function, for problems that have scores, if the advisor logs or samples. All advisors score the
            same functions; lower is better.
        unreached: intp [n], rows of the request's forced decisions that this compile never reached.
        flip_scores: float32 [N], score of the flip's function with each of the N flips; NaN for flips that the compile
            never reached.
        object_digest: SHA-256 of the object, if requested.
    """

    text_size_bytes: int = 0
    log: TrainingLog | None = None
    callsites: Callsites | None = None
    function_sizes: FunctionSizes | None = None
    scores: dict[str, float] | None = None
    unreached: npt.NDArray[np.intp] = field(default_factory=lambda: NO_ROWS)
    flip_scores: npt.NDArray[np.float32] | None = None
    object_digest: str = ""

    def readable_scores(self) -> dict[str, float]:
        """Return `scores` with function names as traces and reports spell them. ValueError if there are no scores."""
        if self.scores is None:
            raise ValueError("this compile has no scores, because it neither logs nor samples")
        return {replace_invalid_utf8(name): score for name, score in self.scores.items()}
