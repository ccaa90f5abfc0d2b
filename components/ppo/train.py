"""The training loop, from top to bottom.

An iteration validates if it is due, generates the policy's code, compiles the next modules several times, updates the
policy and writes a checkpoint. The credit assignment decides what is compiled. With counterfactual credit, one compile
takes the greedy policy's decisions and others flip some of them; otherwise all compiles sample the policy, or run
perturbed policies (ES).

PPO compiles with the policy that it updates and validates at the start of every `validate_every`th iteration. DQN
compiles with the best policy so far, because a policy from values that are barely learned is much worse than the one it
would replace. A fit therefore changes no compile before it is validated, and it runs in a thread while every
`validate_every`th iteration compiles: it starts with the iteration, on the measurements of all earlier iterations, and
is validated when the iteration's compiles are done. The first policy is validated before anything is compiled. At the
end of a training the values are fitted to everything several times, and the mean of the weights is validated once more:
single fits to the same flips differ by more than late iterations gain. It is published unless it is worse than the best
policy so far beyond noise, or no better than the start.

A validation has the number of the last iteration whose measurements its policy has learned from: the fit in the
iteration after 10 finished ones has the number 10. Fits start and end within an iteration, so a checkpoint never holds
half of one, and a training that continues from it starts the same fit again.

Validation modules count like training modules: with `size_of` "linked", by the bytes that the project's link keeps. The
training ends at its limit, or after `patience` validations without a new best one.

For the other algorithms the validated policy is a moving average of the weights (Polyak and Juditsky 1992): single
updates are noisy, and that hurts the greedy policy more than the sampled one. The published policy is the best one on
the validation modules, which are not reported, and not trained on unless too few were set aside (training_data.py).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.development_mode.upstream import UpstreamCompiler, compiler_for
from components.core.compiler.quarantine import Quarantine
from components.core.formats.corpus import Module
from components.core.objectives.objective import Outcome
from components.core.objectives.outcomes import outcome_interval, outcome_reduction
from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.platform.console import Progress, say
from components.platform.workers import make_pool
from components.ppo.background_fit import BackgroundFit
from components.ppo.checkpointing.background_saver import BackgroundSaver
from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from components.ppo.checkpointing.fingerprint import require_same
from components.ppo.config import PpoConfig
from components.ppo.credit.measured_flips import attribution_error_percent
from components.ppo.expectation import FORECAST_S, forecast
from components.ppo.experience import flip_experience, sampled_experience
from components.ppo.learners.dqn import DqnLearner, DqnParameters
from components.ppo.learners.es import EsLearner, EsParameters
from components.ppo.learners.learner import require_possible
from components.ppo.learners.ppo import PpoLearner, PpoParameters
from components.ppo.learners.replay import ReplayBuffer, ReplayRows
from components.ppo.module_sampler import ModuleSampler
from components.ppo.policy_weights import calibrate_entropy, compiled_policy, ema_update, mean_policy
from components.ppo.rollout import RolloutCollector
from components.ppo.summaries import Summaries
from components.ppo.training_data import TrainingData
from components.ppo.training_state import TrainingState

GIN_DIRECTORY = Path(__file__).with_name("gin")


def configure(config: PpoConfig) -> None:
    """Bind the problem's and the user's gin hyperparameters; raise UserError for an unknown problem or a gin error."""
    problem = problems.get(config.problem).name
    files = [GIN_DIRECTORY / f"{problem}.gin"]
    finetuning = GIN_DIRECTORY / f"{problem}_finetuning.gin"
    if finetuning.is_file() and config.starts_from_trained:
        files.append(finetuning)
    networks.configure(problem, config.gin_bindings, (*files, *config.gin_files))


@dataclass(frozen=True)
class Trained:
    """The best policy of a run, and the final state."""

    policy: DensePolicy
    state: TrainingState


class Trainer:
    """Training loop with its learner, rollout collector, sampler and checkpoints.

    Args:
        fingerprint: from training_fingerprint; gin must be configured (see `configure`).
        checkpoints: reads and publishes checkpoints.
        data: from load_training_data.
    """

    def __init__(
        self, config: PpoConfig, fingerprint: Mapping[str, str], checkpoints: CheckpointManager, data: TrainingData
    ) -> None:
        self.config = config
        self.inputs = dict(fingerprint)
        self.checkpoints = checkpoints
        problem = problems.get(config.problem)
        self.toolchain, self.clang = data.toolchain, data.toolchain.clang
        self.vocab_digest, self.optional_features = data.vocab_digest, data.optional_features
        self.trained_ranges = data.trained_ranges
        self.objective, self.baselines = data.objective, data.baselines
        self._linked = bool(data.definition_counts)
        self._validation_baselines = None if self._linked else data.baselines
        self.modules, self.validation = data.modules, data.validation
        ppo = PpoParameters()
        require_possible(ppo, {})  # initial_entropy applies to every algorithm
        self.replay: ReplayBuffer | None = None
        self.learner = self._make_learner(ppo, data)
        warmstart = calibrate_entropy(data.warmstart, data.sample, ppo.initial_entropy)
        networks.load_dense(self.learner.actor, warmstart)
        self.first = self.dense = self.average = self.best = warmstart
        self._best_outcomes: dict[str, Outcome] | None = None
        self._fit = None
        if isinstance(self.learner, DqnLearner):
            self.replay = ReplayBuffer(self.learner.parameters.replay_measurements)
            self._fit = BackgroundFit(self.learner, warmstart, problem.name)
        self.sampler = ModuleSampler(data.weights, config.seed)
        self.quarantine = Quarantine(config.max_failed_fraction, len(self.modules) + len(self.validation))
        self.state = TrainingState()
        # Below the root directory, so that a resumed run removes the files of a killed one.
        self.policies = config.root_dir.absolute() / "policies"
        shutil.rmtree(self.policies, ignore_errors=True)
        self.policies.mkdir(parents=True, exist_ok=True)
        self.summaries = Summaries(config.root_dir)
        self.compiles: dict[str, int] = {}
        """Number of compiles of each module in the last iteration."""
        self.saver = BackgroundSaver(checkpoints, self.summaries.push)
        self._checkpoint_s = 0.0
        compiler = compiler_for(self.toolchain, problem.name, config.timeout_s, config.allowed_options)
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

    def _make_learner(self, ppo: PpoParameters, data: TrainingData) -> PpoLearner | DqnLearner | EsLearner:
        problem, seed = problems.get(self.config.problem), self.config.seed
        shape = (len(data.warmstart.network_features), problem.policy.num_actions)
        masked, scale = problem.policy.mask is not None, networks.InputScale.fit(problem, data.sample)
        if self.config.algorithm == "dqn":
            return DqnLearner(*shape, DqnParameters(), seed, masked, scale)
        if self.config.algorithm == "es":
            return EsLearner(*shape, EsParameters(), seed, masked, scale)
        return PpoLearner(*shape, ppo, seed, masked, scale)

    def resume(self) -> None:
        """Resume from the newest checkpoint, if there is one."""
        found = self.checkpoints.newest()
        if found is None:
            self.summaries.rewind({})
            return
        require_same(self.config.root_dir, found.state["inputs"], self.inputs)
        if "events" in found.state:  # checkpoints of earlier versions do not have them
            self.summaries.rewind(found.state["events"], found.state.get("curve", ()))
        self.learner.restore(found.variables)
        if self.replay is not None:
            self.replay.restore(found.replay)
        self.learner.shuffle_state = found.state["shuffle"]
        self.sampler.restore(found.state["sampler"])
        self.quarantine = Quarantine.from_json(found.state["quarantine"])
        # After too many failures, the same command with a higher limit must continue.
        self.quarantine.max_failed_fraction = self.config.max_failed_fraction
        training = found.state["training"]
        # Checkpoints of earlier versions do not have it.
        self.state = TrainingState(**{"progress_iteration": training["best_iteration"], **training})
        self.best, self.average = found.best, found.average
        self._update_policy()
        self.saver.saved = found.iteration
        say(f"resuming after iteration {self.state.iteration} ({self.state.trained_s / 60:.1f} minutes trained)")

    def run(self) -> Trained:
        """Train until the time limit or the iteration limit is reached, or validations do not improve any more."""
        limit_s = None if self.config.minutes is None else self.config.minutes * 60
        started_s = time.monotonic() - self.state.trained_s
        forecast_due = self.state.trained_s < FORECAST_S or len(self.state.history) <= 1
        say(f"to see the training's curve: {self.summaries.command()}")
        with Progress("training", self.config.max_iterations) as progress:
            progress.advance(self.state.iteration)
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
            self._average_fits()
            self._validate(final=self.replay is not None)
            self._keep_checkpoint()
        self.save()
        return Trained(self.best, self.state)

    def close(self) -> None:
        """End the workers, cancel a fit, and wait for a checkpoint that is being published."""
        if self._fit is not None:
            self._fit.cancel()
        self.pool.close()
        if self._fit is not None:
            self._fit.close()
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
        fits = due and self._start_fit()
        if due and not fits:
            self._validate()
            clock.lap("validate")
        rewards, decisions, losses = self._compile_and_update(clock)
        if fits:  # before the iteration is counted: the fit used only the previous iterations
            self._validate()
            clock.lap("validate")
        if self.replay is None:
            self._update_policy()
            # Less in the first iterations, as in tf.train.ExponentialMovingAverage: they must not weigh the start most.
            decay = min(config.ema_decay, (1 + state.iteration) / (10 + state.iteration))
            self.average = ema_update(self.average, self.dense, decay)
            clock.lap("average")
        state.iteration += 1
        state.trained_s = time.monotonic() - started_s
        state.rewards.append(float(rewards.mean()) if rewards.size else 0.0)
        clock.laps["checkpoint"] = self._checkpoint_s  # of the previous iteration: this one's includes these numbers
        if rewards.size:
            failures = len(self.quarantine.errors) - failed
            self.summaries.iteration(state, rewards, losses, clock.laps, failures, decisions)
        self._keep_checkpoint()
        if state.iteration % config.checkpoint_every == 0:
            self.saver.start()
        clock.lap("checkpoint")
        self._checkpoint_s = clock.laps["checkpoint"]

    def _next_modules(self) -> list[Module]:
        names = self.sampler.next_batch(self.config.modules)
        return [self.modules[name] for name in names if name not in self.quarantine]

    def _compile_and_update(self, clock: _Clock) -> tuple[NDArray[np.float64], int, dict[str, float]]:
        """Compile the next modules and update; return rewards, number of decisions or flips, and losses."""
        if isinstance(self.learner, EsLearner):
            return self._evolve(self.learner, clock)
        return self._measure(clock) if self.config.credit_assignment == "counterfactual" else self._sample(clock)

    def _evolve(self, learner: EsLearner, clock: _Clock) -> tuple[NDArray[np.float64], int, dict[str, float]]:
        """Compile under perturbed weights and update; return rewards [modules, perturbations], 0, and losses."""
        count = self.config.samples
        with ExitStack() as stack:
            policies = [
                stack.enter_context(self._compiled(self._policy(), greedy=True)) for _ in learner.perturb(count)
            ]
            clock.lap("emit")
            names, rewards = self.collector.compare(self._next_modules(), policies, self.quarantine)
        self.compiles = dict.fromkeys(names, count)
        clock.lap("compile")
        losses = learner.update(rewards, self.state.iteration) if rewards.size else {}
        clock.lap("update")
        return rewards, 0, losses

    def _sample(self, clock: _Clock) -> tuple[NDArray[np.float64], int, dict[str, float]]:
        """Compile under the sampled policy and update; return rewards [modules, samples], decisions and losses."""
        config, iteration = self.config, self.state.iteration
        with self._compiled(self.dense) as policy:
            clock.lap("emit")
            seed = (config.seed << 32) + iteration * config.modules * config.samples
            rollout = self.collector.sample(
                self._next_modules(), policy, self.dense, config.samples, seed, self.quarantine
            )
        self.compiles = dict.fromkeys(rollout.modules, config.samples)
        clock.lap("compile")
        losses = {}
        if len(rollout.action) and isinstance(self.learner, PpoLearner):
            scale = self.state.update_scale(rollout.advantage)
            losses = self.learner.update(sampled_experience(rollout, self.first, scale), iteration)
        clock.lap("update")
        return rollout.rewards, len(rollout.action), losses

    def _measure(self, clock: _Clock) -> tuple[NDArray[np.float64], int, dict[str, float]]:
        """Measure flips of the base policy's decisions and update; return rewards [modules], flips and losses.

        Also waits for a fit that was started.
        """
        config, iteration = self.config, self.state.iteration
        base = self.dense if self.replay is None else self.best
        with self._compiled(base) as policy:
            clock.lap("emit")
            seed = (config.seed << 32) + iteration
            results = self.collector.measure(self._next_modules(), policy, base, config.samples, seed, self.quarantine)
        self.compiles = {result.module_name: result.compiles for result in results}
        clock.lap("compile")
        rows = [result.rows for result in results]
        new = sum(map(len, rows))
        losses = {}
        if self.objective.wants_function_sizes(True):
            losses["attribution_error_percent"] = attribution_error_percent(results)
        if new:
            scale = self.state.update_scale(np.concatenate([part.gain for part in rows]))
            if isinstance(self.learner, PpoLearner):
                experience = flip_experience(ReplayRows.concatenate(rows), self.first, scale)
                losses |= self.learner.update(experience, iteration)
            elif self.replay is not None:
                self.replay.add([result.module_name for result in results], rows)
        losses |= self._end_fit()
        clock.lap("update")  # of a fit, only the part after the compiles
        rewards = [self.collector.reward(result.outcome, result.module_name) for result in results]
        return np.array(rewards), new, losses

    def _start_fit(self, repetition: int = 0) -> bool:
        """Start to fit the values to all present flips; return False for other algorithms or without flips.

        Args:
            repetition: number of the fit among those to the same flips, which have different random numbers.
        """
        if self._fit is None or not self.replay:
            return False
        assert self.state.scale is not None  # flips exist, so it was measured
        self._fit.start(self.replay, self.state.iteration, self.state.scale, repetition)
        return True

    def _average_fits(self) -> None:
        """Fit the values to all flips `final_fits` times and average the weights; nothing for other algorithms."""
        fitted: list[DensePolicy] = []
        count = self.learner.parameters.final_fits if isinstance(self.learner, DqnLearner) else 0
        for repetition in range(count):
            if self._start_fit(repetition):
                self._end_fit()
                fitted.append(self.dense)
        if fitted:
            self.average = mean_policy(fitted)

    def _end_fit(self) -> dict[str, float]:
        """Wait for the fit, if one was started, and use its weights; return the losses. Raises the fit's exception."""
        losses = None if self._fit is None else self._fit.finish()
        if losses is None:
            return {}
        self._update_policy()
        self.average = self.dense
        return losses

    def _compiled(self, policy: DensePolicy, greedy: bool = False) -> AbstractContextManager[Path]:
        """Return a context with a directory of the policy; greedy: for compiles that do not sample."""
        return compiled_policy(policy, self.clang, self.policies, tflite=greedy and self._loads_tflite)

    def _is_validated(self) -> bool:
        return bool(self.state.history) and self.state.history[-1][0] == self.state.iteration

    def _validate(self, final: bool = False) -> None:
        """Validate `average`, and make it the best policy if it is.

        Args:
            final: prefer it also to a best policy that is better, but not beyond noise.
        """
        state = self.state
        if self._validation_baselines is None:  # the trace does not have the sizes of functions
            self._validation_baselines = self.collector.greedy(self.validation, None, self.quarantine, linked=True)
        baselines = self._validation_baselines
        outcomes = self._validation_outcomes(self.average)
        pairs = _paired(outcomes, baselines)
        percent = 100 * outcome_reduction(self.objective, pairs)
        best = percent > state.best_percent or (final and self._is_as_good(percent, outcomes))
        interval = outcome_interval(self.objective, pairs, self.config.seed) if best else None
        state.add_validation(percent, best, interval, self.config.patience)
        self.summaries.validation(state, percent)
        if best:
            self.best, self._best_outcomes = self.average, outcomes

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
        interval = outcome_interval(self.objective, _paired(outcomes, self._best_outcomes), self.config.seed)
        return interval is not None and interval[1] >= 0

    def _update_policy(self) -> None:
        self.dense = self._policy()

    def _policy(self) -> DensePolicy:
        """Return the policy with the present weights of the network."""
        dense = self.dense
        return networks.to_dense(self.learner.actor, dense.buckets, dense.features, dense.problem, dense.limits)

    def save(self) -> None:
        """Publish the state after the last finished iteration, unless it is published already."""
        self.saver.save()

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
        replay = () if self.replay is None else self.replay.segments
        frozen = json.loads(json.dumps(state))
        self.saver.keep(Checkpoint(self.state.iteration, variables, self.average, self.best, frozen, replay))


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
