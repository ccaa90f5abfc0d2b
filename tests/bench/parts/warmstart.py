"""Speed of behavioral cloning, and agreement of its policy with the heuristic."""

from __future__ import annotations

import os
import statistics
from dataclasses import replace

from tests.bench.context import BenchContext


def measure(ctx: BenchContext) -> dict[str, float]:
    """(regalloc_)warmstart_decisions_per_s: median over runs; warmstart_agreement: of the run with the step's settings.

    The rate is the number of decisions that the training loop consumes divided by its wall time, including shuffling,
    without TensorFlow's tracing (once per run, warmstart_tracing_s) and the measurement of agreement.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the step itself does
    from components.core.policy.tf import networks
    from components.warmstart.clone import agreement, clone
    from components.warmstart.config import WarmstartConfig
    from components.warmstart.data import load_decisions

    config = WarmstartConfig(ctx.trace, ctx.vocab, ctx.training, ctx.scratch)
    decisions = load_decisions(config.trace, config.vocab, config.heldout_fraction, config.seed)
    networks.configure(decisions.trace.problem)
    whole = clone(config, decisions)
    shorter = [clone(replace(config, epochs=10), decisions) for _ in range(ctx.repeats - 1)]
    heldout = decisions.heldout
    return {
        ctx.key("warmstart_decisions_per_s"): statistics.median(run.decisions_per_s for run in (whole, *shorter)),
        ctx.key("warmstart_agreement"): agreement(whole.policy, decisions.observed[heldout], decisions.action[heldout]),
        ctx.key("warmstart_tracing_s"): whole.tracing_s,
    }
