"""The training loop, from top to bottom.

An iteration validates if it is due, compiles the next modules as the learner plans, lets the learner update its policy,
and writes a checkpoint. With counterfactual credit, one compile takes the greedy policy's decisions and others flip
some of them; otherwise all compiles sample the policy, or run perturbed policies (ES).

PPO and ES validate a moving average of the weights (Polyak and Juditsky 1992) at the start of every `validate_every`th
iteration: single updates are noisy, and that hurts the greedy policy more than the sampled one. DQN compiles with the
best policy so far, so that a fit changes no compile before it is validated. A fit starts with an iteration, on the
measurements of all earlier ones, runs in a thread while the iteration compiles, and is validated when it is done; the
initial policy is validated before anything is compiled. At the end the mean of several fits is validated once more. It
is published unless it is worse than the best policy so far beyond noise, or no better than the initial one.

The initial policy is the warmstart with another entropy (`calibrate_entropy`): the same greedy decisions, other logits.

A validation has the number of the last iteration whose measurements its policy has learned from: the fit in the
iteration after 10 finished ones has the number 10. Fits start and end within an iteration, so a checkpoint never holds
half of one, and a training that continues from it starts the same fit again.

Validation modules count like training modules: with `size_of` "linked", by the bytes that the project's link keeps.
They select the published policy, are not reported, and not trained on unless too few were set aside (training_data.py).
The training ends at its limit, or after `patience` validations without a new best one.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from components.core import problems
from components.core.compiler.development_mode.upstream import UpstreamCompiler, compiler_for
from components.core.compiler.quarantine import Quarantine
from components.core.objectives.objective import Outcome
from components.core.objectives.outcomes import outcome_estimate, outcome_reduction
from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.platform.console import Progress, say
from components.platform.workers import make_pool
from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.checkpoint_manager import BackgroundSaver, CheckpointManager
from components.ppo.checkpointing.fingerprint import require_same
from components.ppo.config import TrainingConfig
from components.ppo.learners.factory import make_learner, read_initial_entropy
from components.ppo.module_sampler import ModuleSampler
from components.ppo.policy_weights import calibrate_entropy, compiled_policy
from components.ppo.rollout import Rollout, RolloutCollector
from components.ppo.summaries import Summaries
from components.ppo.training_data import TrainingData
from components.ppo.training_state import FORECAST_S, TrainingState, forecast


class Trainer:
    """Training loop with its learner, rollout collector, sampler and checkpoints.

    Args:
        fingerprint: from training_fingerprint; gin must be configured (see `configure`).
        report_curve: is called with the rows of the curve before each checkpoint.
    """

    def __init__(
        self,
        config: TrainingConfig,
        fingerprint: Mapping[str, str],
        checkpoints: CheckpointManager,
        data: TrainingData,
        report_curve: Callable[[Sequence[Mapping[str, float]]], None] = lambda curve: None,
    ) -> None:
        self.config = config
        self.inputs = dict(fingerprint)
        self.checkpoints = checkpoints
        problem = problems.get(config.problem)
        self.data, self.clang = data, data.toolchain.clang
        self.objective, self.baselines = data.objective, data.baselines
        self._linked = bool(data.definition_counts)
        self._validation_baselines = None if self._linked else data.baselines
        self.modules, self.validation = data.modules, data.validation
        initial = calibrate_entropy(data.warmstart, data.calibration_observations, read_initial_entropy())
        self.learner = make_learner(config, networks.InputScale.fit(problem, data.calibration_observations), initial)
        self.best = initial
        self._best_outcomes: dict[str, Outcome] | None = None
        self.sampler = ModuleSampler(data.weights, config.seed)
        self.quarantine = Quarantine(config.max_failed_fraction, len(self.modules) + len(self.validation))
        self.state = TrainingState()
        # Below the root directory, so that a resumed run removes the files of a killed one.
        self.policies = config.root_dir.absolute() / "policies"
        shutil.rmtree(self.policies, ignore_errors=True)
        self.policies.mkdir(parents=True, exist_ok=True)
        self.summaries = Summaries(config.root_dir)
        self.compiles: Mapping[str, int] = {}
        """Number of compiles of each module in the last iteration."""
        self._report_curve = report_curve
        self.saver = BackgroundSaver(checkpoints, self._push)
        self._checkpoint_s = 0.0
        compiler = compiler_for(data.toolchain, problem.name, config.timeout_s, config.allowed_options)
        self._loads_tflite = isinstance(compiler, UpstreamCompiler)
        self.pool = make_pool(config.workers)
        self.collector = RolloutCollector(
            compiler,
            self.pool,
            problem,
            self.baselines,
            data.compile_s,
            config.credit_assignment == "function",
            config.module_weight,
            config.min_completed_fraction,
            data.definition_counts,
        )

    def resume(self) -> None:
        """Resume from the newest checkpoint, if there is one."""
        newest = self.checkpoints.newest()
        if newest is None:
            self.summaries.rewind({})
            return
        require_same(self.config.root_dir, newest.state["inputs"], self.inputs)
        if "events" in newest.state:  # checkpoints of earlier versions do not have them
            self.summaries.rewind(newest.state["events"], newest.state.get("curve", ()))
        self.learner.restore(newest.variables)
        self.learner.shuffle_state = newest.state["shuffle"]
        self.learner.resume(newest.average, newest.replay)
        self.sampler.restore(newest.state["sampler"])
        self.quarantine = Quarantine.from_json(newest.state["quarantine"])
        # After too many failures, the same command with a higher limit must continue.
        self.quarantine.max_failed_fraction = self.config.max_failed_fraction
        training = newest.state["training"]
        # Checkpoints of earlier versions do not have it.
        self.state = TrainingState(**{"progress_iteration": training["best_iteration"], **training})
        self.best = newest.best
        self.saver.saved = newest.iteration
        repeated_s = self.checkpoints.repeated_s
        again = f"; {repeated_s:.0f} s of training are repeated" if repeated_s else ""
        say(f"resuming after iteration {self.state.iteration} ({self.state.trained_s / 60:.1f} minutes trained){again}")

    def run(self) -> None:
        """Train until the time limit or the iteration limit is reached, or validations do not improve any more.

        Then `best` is the best policy, and `state` the final one.
        """
        limit_s = None if self.config.minutes is None else self.config.minutes * 60
        started_s = time.monotonic() - self.state.trained_s
        forecast_due = self.state.trained_s < FORECAST_S or len(self.state.history) <= 1
        say(f"to see the training's curve: {self.summaries.command()}")
        with Progress("training", self.config.max_iterations, self.state.iteration) as progress:
            while not self._finished(limit_s):
                self.iterate(started_s)
                progress.advance(
                    reward_percent=100 * self.state.rewards[-1],
                    validation_percent=self.state.history[-1][1],
                    best_percent=self.state.best_percent,
                    minutes=self.state.trained_s / 60,
                )
                # On a slow machine, the first five minutes may validate nothing but the start.
                if forecast_due and self.state.trained_s >= FORECAST_S and len(self.state.history) > 1:
                    if not self._finished(limit_s):
                        say(forecast(self.state, self.config, self.objective.labels))
                    forecast_due = False
        if self.state.is_stalled(self.config.patience):
            say(
                f"no improvement in {self.state.validations_since_best} validations: training ends after iteration "
                f"{self.state.iteration} (mlgo ppo --patience {self.config.patience})"
            )
        # The final policy is a candidate, too, also for a training that resumes from here.
        if not self._is_validated():
            self.learner.finish(self.state)
            self._validate(final=self.learner.prefers_final)
            self._keep_checkpoint()
        self.save()

    def close(self) -> None:
        """End the workers and the learner's work, and wait for a checkpoint that is being published."""
        self.learner.close()
        self.pool.close()
        self.saver.join()

    def _finished(self, limit_s: float | None) -> bool:
        timed_out = limit_s is not None and self.state.trained_s >= limit_s
        enough = self.config.max_iterations is not None and self.state.iteration >= self.config.max_iterations
        return timed_out or enough or self.state.is_stalled(self.config.patience)

    def iterate(self, started_s: float) -> None:
        """Run one iteration. started_s: when training would have started without interruptions."""
        state, config = self.state, self.config
        clock, failed = _Clock(), len(self.quarantine.errors)
        due = state.iteration % config.validate_every == 0 and not self._is_validated()
        is_pending = due and self.learner.start_candidate(state)
        if due and not is_pending:
            self._validate()
            clock.lap("validate")
        rollout = self._compile(clock)
        losses = self.learner.learn(rollout, state)
        if rollout.attribution_error_percent is not None:
            losses["attribution_error_percent"] = rollout.attribution_error_percent
        clock.lap("update")  # of a candidate, only the part after the compiles
        if is_pending:  # before the iteration is counted: the candidate is made of the previous iterations
            self._validate()
            clock.lap("validate")
        state.iteration += 1
        state.trained_s = time.monotonic() - started_s
        rewards = rollout.rewards
        state.rewards.append(float(rewards.mean()) if rewards.size else 0.0)
        clock.laps["checkpoint"] = self._checkpoint_s  # of the previous iteration: this one's includes these numbers
        if rewards.size:
            failures = len(self.quarantine.errors) - failed
            self.summaries.iteration(state, rewards, losses, clock.laps, failures, len(rollout.gains))
        self._keep_checkpoint()
        if state.iteration % config.checkpoint_every == 0:
            self.saver.start()
        clock.lap("checkpoint")
        self._checkpoint_s = clock.laps["checkpoint"]

    def _compile(self, clock: _Clock) -> Rollout:
        """Compile the next modules as the learner plans."""
        config, learner = self.config, self.learner
        plan = learner.plan(self.best if learner.compiles_with == "best" else learner.policy)
        with ExitStack() as stack:
            greedy = plan.kind == "compare"
            policies = [stack.enter_context(self._compiled(policy, greedy)) for policy in plan.policies]
            clock.lap("emit")
            names = self.sampler.next_batch(config.modules)
            modules = [self.modules[name] for name in names if name not in self.quarantine]
            # Each sampled compile has a seed, and each choice of flips.
            seeds = config.modules * config.samples if plan.kind == "sample" else 1
            seed = (config.seed << 32) + self.state.iteration * seeds
            rollout = self.collector.collect(plan, modules, policies, config.samples, seed, self.quarantine)
        self.compiles = rollout.compiles
        clock.lap("compile")
        return rollout

    def _compiled(self, policy: DensePolicy, greedy: bool = False) -> AbstractContextManager[Path]:
        """Return a context with a directory of the policy; greedy: for compiles that do not sample."""
        return compiled_policy(policy, self.clang, self.policies, tflite=greedy and self._loads_tflite)

    def _is_validated(self) -> bool:
        return bool(self.state.history) and self.state.history[-1][0] == self.state.iteration

    def _validate(self, final: bool = False) -> None:
        """Validate the learner's candidate, and make it the best policy if it is.

        Args:
            final: prefer it also to a best policy that is better, but not beyond noise.
        """
        state = self.state
        if self._validation_baselines is None:  # the trace does not have the sizes of functions
            self._validation_baselines = self.collector.greedy(self.validation, None, self.quarantine, linked=True)
        baselines = self._validation_baselines
        candidate = self.learner.candidate
        outcomes = self._validation_outcomes(candidate)
        pairs = _paired(outcomes, baselines)
        percent = 100 * outcome_reduction(self.objective, pairs)
        best = percent > state.best_percent or (final and self._is_as_good(percent, outcomes))
        known = outcome_estimate(self.objective, pairs) if best else None
        interval = list(known.interval95) if known is not None and known.interval95 is not None else None
        state.add_validation(percent, best, interval, self.config.patience)
        self.summaries.validation(state, percent)
        if best:
            self.best, self._best_outcomes = candidate, outcomes

    def _validation_outcomes(self, policy: DensePolicy) -> dict[str, Outcome]:
        with self._compiled(policy, greedy=True) as compiled:
            return self.collector.greedy(self.validation, compiled, self.quarantine, linked=self._linked)

    def _is_as_good(self, percent: float, outcomes: Mapping[str, Outcome]) -> bool:
        """Whether a policy is better than the start, and not worse than the best one beyond noise.

        The best of several validations is partly the luckiest one (Breiman et al. 1984 prefer the simplest tree within
        one standard error).

        Args:
            percent, outcomes: reduction and outcomes of the policy on the validation modules.
        """
        if self.state.best_iteration == 0 or percent <= self.state.history[0][1]:
            return False
        if self._best_outcomes is None:  # of an earlier run of this training
            self._best_outcomes = self._validation_outcomes(self.best)
        known = outcome_estimate(self.objective, _paired(outcomes, self._best_outcomes))
        return known is not None and known.interval95 is not None and known.interval95[1] >= 0

    def save(self) -> None:
        """Publish the state after the last finished iteration, unless it is published already."""
        self.saver.save()

    def _push(self) -> None:
        self.summaries.push()
        self._report_curve(self.summaries.curve)

    def _keep_checkpoint(self) -> None:
        """Copy the state at the end of an iteration, because the next iteration changes it."""
        state: dict[str, Any] = {
            "inputs": self.inputs,
            "training": vars(self.state),
            "sampler": self.sampler.state(),
            "shuffle": self.learner.shuffle_state,
            "quarantine": self.quarantine.to_json(),
            "events": self.summaries.file_lengths(),
            "curve": self.summaries.curve,
        }
        variables = {name: value.copy() for name, value in self.learner.state().items()}
        frozen, candidate = json.loads(json.dumps(state)), self.learner.candidate
        kept = Checkpoint(self.state.iteration, variables, candidate, self.best, frozen, self.learner.segments)
        self.saver.keep(kept)


def _paired(outcomes: Mapping[str, Outcome], baselines: Mapping[str, Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Return outcome and baseline of each module that has both, in an order that does not depend on the workers."""
    return [(outcome, baselines[name]) for name, outcome in sorted(outcomes.items()) if name in baselines]


class _Clock:
    """Seconds of each phase of an iteration."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last_s = time.monotonic()

    def lap(self, phase: str) -> None:
        """Record the seconds since the previous phase ended as those of `phase`."""
        now_s = time.monotonic()
        self.laps[phase] = now_s - self._last_s
        self._last_s = now_s
