"""Accuracy of the measured gain of decisions, and how well a network predicts it on unseen modules."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine
from components.core.counterfactual.inlining import attribute_savings, pin_flips, plan_flips
from components.core.formats.corpus import Module
from components.core.policy.tf import networks
from components.platform.console import say
from components.ppo.learners.dqn import DqnLearner
from components.ppo.learners.replay import ReplayRows
from components.ppo.module_rollout import concatenate_contexts
from components.ppo.policy_weights import compiled_policy
from components.ppo.train import Trainer
from tests.bench.context import BenchContext
from tests.bench.training import training, training_config

FOLDS = 4
"""Cross-validation folds of the training modules; each module is unseen by one fit."""
SINGLE_FLIPS = 200
SINGLE_FLIPS_PER_MODULE = 10


def measure(ctx: BenchContext) -> dict[str, float]:
    """credit_r2_unseen_modules: R^2, on the square-root scale, of the predicted gain of inlining decisions in modules
    that were not trained on; flips of the warmstart's decisions, one round. Each training module is unseen once.

    credit_error_percent: sum of |attributed - real change of the object| as a percentage of the sum of |real change|,
    for flips in shared compiles, compared with the same flips compiled one at a time. In both, all other decisions are
    those of the base: what the policy would decide elsewhere after a flip does not count as that decision's gain.

    Returns no figures for a problem whose objective is scores: there each flip is measured alone.
    """
    if problems.get(ctx.problem).objective != "size":
        return {}
    config = training_config(
        ctx,
        iterations=0,
        size_of="modules",
        max_failed_fraction=1.0,
        gin_bindings=(f"DqnParameters.max_steps={10**6}",),
    )
    with training(config) as trainer:
        names = sorted(trainer.modules, key=lambda name: zlib.crc32(name.encode()))
        modules = [trainer.modules[name] for name in names]
        return {
            "credit_r2_unseen_modules": _explained_unseen(trainer, modules, ctx.flip_compiles),
            "credit_error_percent": _attribution_error(trainer, modules, ctx.flip_compiles),
        }


def _explained_unseen(trainer: Trainer, modules: Sequence[Module], flip_compiles: int) -> float:
    base = trainer.best
    with compiled_policy(base, trainer.clang) as policy:
        results = trainer.collector.measure(modules, policy, base, flip_compiles, 0, Quarantine(1.0))
    learner, flips = trainer.learner, [result.rows for result in results]
    assert isinstance(learner, DqnLearner)
    fresh = [weight.numpy() for weight in learner.weights]
    folds = min(FOLDS, len(flips))
    if folds < 2:
        return math.nan  # too few modules
    errors, truths = [], []
    for fold in range(folds):
        seen = ReplayRows.concatenate([of_module for i, of_module in enumerate(flips) if i % folds != fold])
        unseen = ReplayRows.concatenate([of_module for i, of_module in enumerate(flips) if i % folds == fold])
        say(f"{len(seen)} flips to train on, {len(unseen)} flips of unseen modules")
        scale = float(np.sqrt(np.mean(np.abs(seen.gain)))) if len(seen) else 0.0
        if not scale:
            return math.nan
        for weight, value in zip(learner.weights, fresh, strict=True):
            weight.assign(value)
        learner.fit(seen, functools.partial(_returns, scale=scale), (0, 0))
        values = networks.logits(learner.actor, unseen.observed).numpy()
        truth = np.where(unseen.action == 1, -1, 1) * _rooted(unseen.gain, scale)
        errors.append((values[:, 1] - values[:, 0] - truth) * scale)
        truths.append(truth * scale)
    error, truth = np.concatenate(errors), np.concatenate(truths)
    return float(1 - np.sum(error**2) / np.sum((truth - truth.mean()) ** 2))


def _returns(flips: ReplayRows, scale: float) -> NDArray[np.float32]:
    return _rooted(flips.gain, scale)


def _rooted(gain: NDArray[np.float64], scale: float) -> NDArray[np.float32]:
    return (np.sign(gain) * np.sqrt(np.abs(gain)) / scale).astype(np.float32)


def _attribution_error(trainer: Trainer, modules: Sequence[Module], flip_compiles: int) -> float:
    compiler = Compiler(trainer.clang, "inlining")
    error = real = 0.0
    count = 0
    with compiled_policy(trainer.best, trainer.clang) as policy:
        for module in modules:
            if count >= SINGLE_FLIPS:
                break
            attributed, alone = _flips_of(compiler, module, Advisor("policy", policy=policy, log=True), flip_compiles)
            error += float(np.abs(attributed - alone).sum())
            real += float(np.abs(alone).sum())
            count += len(alone)
    say(f"{count} flips compiled one at a time")
    return 100 * error / real if real else math.nan


def _flips_of(
    compiler: Compiler, module: Module, advisor: Advisor, flip_compiles: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes that flips of a module save: attributed in shared compiles, and real, in separate compiles."""
    base = compiler(Request(module, advisor, want_functions=True)).samples[0]
    nothing = np.zeros(0)
    if base.log is None or not base.log.decisions:
        return nothing, nothing
    action = concatenate_contexts(base)[problems.get("inlining").policy.decision].reshape(-1)
    random = np.random.default_rng(zlib.crc32(module.name.encode()))
    plan = plan_flips(base, action, np.zeros(len(action)), flip_compiles, random)
    if not plan.forced:
        return nothing, nothing
    shared = compiler(Request(module, _samples(advisor, len(plan.forced)), True, forced=plan.forced)).samples
    savings = attribute_savings(base, plan, shared)
    measured, which = np.unique(savings.flip, return_inverse=True)
    some = random.permutation(len(measured))[:SINGLE_FLIPS_PER_MODULE]
    flips = [plan.flips[i] for i in measured[some].tolist()]
    if not flips:
        return nothing, nothing
    saved = np.bincount(which, savings.saved * savings.together, len(measured))
    attributed = (saved / np.bincount(which, minlength=len(measured)))[some]
    singles = pin_flips(base, action, [[flip] for flip in flips])
    samples = compiler(Request(module, _samples(advisor, len(singles)), forced=singles)).samples
    real = np.array([base.text_size_bytes - sample.text_size_bytes for sample in samples], np.float64)
    return attributed, real


def _samples(advisor: Advisor, count: int) -> Advisor:
    return Advisor("policy", policy=advisor.policy, samples=count)
