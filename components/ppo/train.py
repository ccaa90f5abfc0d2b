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
end of a training the values are fitted to everything and validated once more.

A validation has the number of the last iteration whose measurements its policy has learned from: the fit in the
iteration after 10 finished ones has the number 10. Fits start and end within an iteration, so a checkpoint never holds
half of one, and a training that continues from it starts the same fit again.

For the other algorithms the validated policy is a moving average of the weights (Polyak and Juditsky 1992): single
updates are noisy, and that hurts the greedy policy more than the sampled one. The published policy is the best one on
the validation modules, which are neither trained on nor reported.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.command_line import require_replayable
from components.core.compiler.quarantine import Quarantine
from components.core.compiler.upstream import UpstreamCompiler, compiler_for
from components.core.console import Progress, UserError, say
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.ir2vec_vocabulary import check_vocabulary
from components.core.formats.policy import POLICY_JSON, check_features, load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import load_trace, read_columns, read_modules, read_object_counts
from components.core.objectives import OBJECTIVES
from components.core.objectives.outcomes import outcome_reduction
from components.core.objectives.size_credit import normalize_advantages
from components.core.policy import networks
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.feature_encoding import invert_magnitudes
from components.core.policy.observation import logits, observations
from components.core.workers import make_pool
from components.ppo.checkpointing.checkpoint import Checkpoint
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from components.ppo.checkpointing.fingerprint import require_same
from components.ppo.config import PpoConfig
from components.ppo.learners.dqn import DqnLearner, DqnParameters, margins
from components.ppo.learners.es import EsLearner, EsParameters
from components.ppo.learners.learner import require_possible
from components.ppo.learners.ppo import Experience, PpoLearner, PpoParameters
from components.ppo.learners.replay import Flips, ReplayBuffer
from components.ppo.module_sampler import ModuleSampler, sampling_weights
from components.ppo.oversampling import oversampled, read_oversampling
from components.ppo.policy_weights import calibrate_entropy, compiled_policy, ema_update
from components.ppo.rollout import Rollout, RolloutCollector
from components.ppo.summaries import Summaries

GIN_DIRECTORY = Path(__file__).with_name("gin")
SCALE_DECAY = 0.9
MIN_VALIDATION = 24
"""Modules on which a validation is made at least; where fewer were set aside, training modules fill up.

Fine-tuning on yaml-cpp (34 modules): on the five that were set aside one decision moves the figure by five points, and
the starting policy was delivered for three seeds of four.
"""
ENTROPY_DECISIONS = 20_000
"""Decisions of the trace on which the entropy of the warmstart and the scale of the inputs are measured."""


def configure(config: PpoConfig) -> None:
    """Bind the problem's and the user's gin hyperparameters; raise UserError for an unknown problem or a gin error."""
    problem = problems.get(config.problem).name
    files = [GIN_DIRECTORY / f"{problem}.gin"]
    finetuning = GIN_DIRECTORY / f"{problem}_finetuning.gin"
    if finetuning.is_file() and config.starts_from_trained:
        files.append(finetuning)
    networks.configure(problem, config.gin_bindings, (*files, *config.gin_files))


def require_problem(problem: str, trace: Path) -> None:
    """Raise UserError if the trace belongs to another problem."""
    traced = load_trace(trace).problem
    if traced != problem:
        raise UserError(f"the trace in {trace} is for the problem {traced}, not {problem}", f"pass --problem {traced}")


@dataclass
class TrainingState:
    """State of a training, without learner and sampler.

    Attributes:
        iteration: number of finished iterations.
        trained_s: wall time of training, including resumed parts.
        scale: root of the mean absolute gain or advantage; None before the first measurement.
        best_iteration, best_percent: iteration and reduction of the best validation.
        history: iteration and reduction in percent of each validation.
        rewards: mean reward of each iteration.
    """

    iteration: int = 0
    trained_s: float = 0.0
    scale: float | None = None
    best_percent: float = -np.inf
    best_iteration: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """The best policy of a run, and the final state."""

    policy: DensePolicy
    state: TrainingState


class Trainer:
    """Training loop with its learner, rollout collector, sampler and checkpoints.

    Args:
        fingerprint: from training_fingerprint; gin must be configured (see `configure`).
        store: reads and publishes checkpoints.
    """

    def __init__(self, config: PpoConfig, fingerprint: Mapping[str, str], store: CheckpointManager) -> None:
        self.config = config
        self.inputs = dict(fingerprint)
        self.store = store
        problem = problems.get(config.problem)
        corpus = load_corpus(config.corpus)
        self.toolchain = load_toolchain(config.toolchain).require_mode("training")
        self.clang = self.toolchain.clang
        require_problem(problem.name, config.trace)
        warmstart = read_dense(config.warmstart)
        check_features(warmstart.features, self.toolchain.features.get(problem.name, ()))
        self.vocab_digest = ""
        self.optional_features: Mapping[str, float] = {}
        if (config.warmstart / POLICY_JSON).exists():
            info = load_policy_info(config.warmstart)
            check_vocabulary(info, self.toolchain)
            self.vocab_digest = info.vocab_digest
            self.optional_features = info.optional_features
        self.objective = OBJECTIVES[problem.objective]
        self.baselines = self.objective.baselines(config.trace)
        table = read_modules(config.trace)
        self.modules = {m.name: m for m in corpus.split("train") if m.name in self.baselines}
        self.validation = [m for m in corpus.split("validation") if m.name in self.baselines]
        if not self.modules or not self.validation:
            raise UserError(
                f"the corpus in {config.corpus} has {len(self.modules)} training and {len(self.validation)} validation "
                f"modules that are in the trace; both are needed",
                "split the corpus again (mlgo corpus split) or trace it again",
            )
        self.validation += self._training_modules(MIN_VALIDATION - len(self.validation))
        require_replayable([*self.modules.values(), *self.validation], config.allowed_options)
        sample = self._sample_observations(warmstart)
        shape = (len(warmstart.network_features), problem.policy.num_actions)
        masked, scale = problem.policy.mask is not None, networks.InputScale.fit(problem, sample)
        ppo = PpoParameters()
        require_possible(ppo, {})  # initial_entropy applies to every algorithm
        self.replay: ReplayBuffer | None = None
        self.learner: PpoLearner | DqnLearner | EsLearner
        if config.algorithm == "dqn":
            dqn = DqnParameters()
            self.learner = DqnLearner(*shape, dqn, config.seed, masked, scale)
            self.replay = ReplayBuffer(dqn.replay_measurements)
        elif config.algorithm == "es":
            self.learner = EsLearner(*shape, EsParameters(), config.seed, masked, scale)
        else:
            self.learner = PpoLearner(*shape, ppo, config.seed, masked, scale)
        warmstart = calibrate_entropy(warmstart, sample, ppo.initial_entropy)
        networks.load_dense(self.learner.actor, warmstart)
        self.first = self.dense = self.average = self.best = warmstart
        self.sampler = ModuleSampler(self._weights(table), config.seed)
        self.quarantine = Quarantine(config.max_failed_fraction, len(self.modules) + len(self.validation))
        self.state = TrainingState()
        # Below the root directory, so that a resumed run removes the files of a killed one.
        self.policies = config.root_dir.absolute() / "policies"
        shutil.rmtree(self.policies, ignore_errors=True)
        self.policies.mkdir(parents=True, exist_ok=True)
        self.summaries = Summaries(config.root_dir)
        self.compiles: dict[str, int] = {}
        """Number of compiles of each module in the last iteration."""
        self.saved = 0  # the iteration of the newest checkpoint
        self._unsaved: Checkpoint | None = None
        self._saver = ThreadPoolExecutor(1, "checkpoint")
        self._saving: tuple[Checkpoint, Future[None]] | None = None
        self._fitter = ThreadPoolExecutor(1, "fit")
        self._fitting: Future[dict[str, float]] | None = None
        self._closing = threading.Event()
        self._checkpoint_s = 0.0
        compiler = compiler_for(self.toolchain, problem.name, config.timeout_s, config.allowed_options)
        self._loads_tflite = isinstance(compiler, UpstreamCompiler)
        objects = self._objects()
        self.pool = make_pool(config.workers)
        compile_s = dict(zip(table["module"].tolist(), table["compile_s"].tolist(), strict=True))
        self.collector = RolloutCollector(
            compiler,
            self.pool,
            problem,
            self.baselines,
            compile_s,
            config.credit_assignment == "function",
            config.module_weight,
            config.min_completed_fraction,
            objects,
        )

    def _sample_observations(self, policy: DensePolicy) -> NDArray[np.float32]:
        columns = read_columns(self.config.trace, [feature.name for feature in policy.features])
        decisions = len(columns[policy.features[0].name])
        rows = np.random.default_rng(0).permutation(decisions)[:ENTROPY_DECISIONS]
        sampled = {name: column[rows] for name, column in columns.items()}
        return observations(problems.get(policy.problem), policy.features, policy.buckets, sampled)

    def _objects(self) -> dict[str, dict[str, int]]:
        """Return the number of objects that define a function; empty if the bytes of all of them count."""
        counts = self.config.size_of == "linked" and self.config.credit_assignment == "counterfactual"
        return read_object_counts(self.config.trace) if counts and self.objective.wants_function_sizes(True) else {}

    def _weights(self, table: dict[str, NDArray[Any]]) -> dict[str, float]:
        known = np.isin(table["module"], list(self.modules))
        weights = sampling_weights(table["decisions"][known], table["compile_s"][known])
        by_name = dict(zip(table["module"][known].tolist(), weights.tolist(), strict=True))
        selected = oversampled(read_oversampling(self.config.oversampling), by_name) if self.config.oversampling else ()
        by_name |= dict.fromkeys(selected, 1.0)
        return by_name

    def resume(self) -> None:
        """Resume from the newest checkpoint, if there is one."""
        found = self.store.newest()
        if found is None:
            self.summaries.rewind({})
            return
        require_same(self.config.root_dir, found.state["inputs"], self.inputs)
        if "events" in found.state:  # checkpoints of earlier versions do not have them
            self.summaries.rewind(found.state["events"])
        self.learner.restore(found.variables)
        if self.replay is not None:
            self.replay.restore(found.replay)
        self.learner.shuffle_state = found.state["shuffle"]
        self.sampler.restore(found.state["sampler"])
        self.quarantine = Quarantine.from_json(found.state["quarantine"])
        # After too many failures, the same command with a higher limit must continue.
        self.quarantine.max_failed_fraction = self.config.max_failed_fraction
        self.state = TrainingState(**found.state["training"])
        self.best, self.average = found.best, found.average
        self._update_policy()
        self.saved = found.iteration
        say(f"resuming after iteration {self.state.iteration} ({self.state.trained_s / 60:.1f} minutes trained)")

    def run(self) -> Trained:
        """Train until the time limit or the iteration limit is reached."""
        limit_s = None if self.config.minutes is None else self.config.minutes * 60
        started_s = time.monotonic() - self.state.trained_s
        say(f"to see the training's curve: {self.summaries.command()}")
        with Progress("training", self.config.iterations) as progress:
            progress.advance(self.state.iteration)
            while not self._finished(limit_s):
                self.iterate(started_s)
                progress.advance(
                    reward_percent=100 * self.state.rewards[-1],
                    validation_percent=self.state.history[-1][1],
                    best_percent=self.state.best_percent,
                    minutes=self.state.trained_s / 60,
                )
        # The final policy is a candidate, too, also for a training that resumes from here.
        if not self._is_validated():
            self._start_fit()
            self._end_fit()
            self._validate()
            self._keep_checkpoint()
        self.save()
        return Trained(self.best, self.state)

    def close(self) -> None:
        """End the workers, cancel a fit, and wait for a checkpoint that is being published."""
        self._closing.set()
        self.pool.close()
        self._fitter.shutdown(wait=True)
        if self._saving is not None:
            wait([self._saving[1]])

    def _finished(self, limit_s: float | None) -> bool:
        timed_out = limit_s is not None and self.state.trained_s >= limit_s
        return timed_out or (self.config.iterations is not None and self.state.iteration >= self.config.iterations)

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
            self.summaries.iteration(state.iteration, rewards, losses, clock.laps, failures, decisions)
        self._keep_checkpoint()
        if state.iteration % config.checkpoint_every == 0:
            self._start_saving()
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
            losses = self.learner.update(self._sampled_experience(rollout), iteration)
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
            measured = self.collector.measure(self._next_modules(), policy, base, config.samples, seed, self.quarantine)
        self.compiles = dict(zip(measured.modules, measured.compiles, strict=True))
        clock.lap("compile")
        new = sum(map(len, measured.flips))
        losses = (
            {"attribution_error_percent": measured.error_percent} if self.objective.wants_function_sizes(True) else {}
        )
        if new:
            self._rescale(np.concatenate([part.gain for part in measured.flips]))
            if isinstance(self.learner, PpoLearner):
                losses |= self.learner.update(self._flip_experience(Flips.concatenate(measured.flips)), iteration)
            elif self.replay is not None:
                self.replay.add(measured.modules, measured.flips)
        losses |= self._end_fit()
        clock.lap("update")  # of a fit, only the part after the compiles
        return measured.rewards, new, losses

    def _start_fit(self) -> bool:
        """Start to fit the values to all present flips in a thread; return False for other algorithms or without flips.

        The fit reads nothing that an iteration changes, and its random numbers depend only on the seed and the number
        of iterations. Nothing else uses the learner until `_end_fit`.
        """
        if not isinstance(self.learner, DqnLearner) or not self.replay:
            return False
        learner, replay, first = self.learner, self.replay.snapshot(), self.first
        number, scale, parameters = self.state.iteration, self.state.scale, self.learner.parameters
        assert scale is not None  # flips exist, so it was measured

        def returns(flips: Flips) -> NDArray[np.float32]:
            initial_action = logits(first, flips.observed).argmax(1)
            deviates = (flips.action == initial_action).astype(np.float32) - (flips.alternative == initial_action)
            return normalize_advantages(flips.gain, scale) - margins(parameters, self._repeats(flips)) * deviates

        def fit() -> dict[str, float]:
            networks.load_dense(learner.actor, first)
            return learner.fit(replay, returns, number, self._closing)

        self._fitting = self._fitter.submit(fit)
        return True

    def _end_fit(self) -> dict[str, float]:
        """Wait for the fit, if one was started, and use its weights; return the losses. Raises the fit's exception."""
        if self._fitting is None:
            return {}
        fitting, self._fitting = self._fitting, None
        losses = fitting.result()
        self._update_policy()
        self.average = self.dense
        return losses

    def _repeats(self, flips: Flips) -> NDArray[np.float64]:
        """Return float64 [N], how many similar decisions each flip's decision may have, 1 if unknown."""
        names = [feature.name for feature in self.first.network_features]
        feature = problems.get(self.config.problem).training.repeats
        if feature not in names:
            return np.ones(len(flips))
        return invert_magnitudes(flips.observed[:, len(names) + names.index(feature)])

    def _rescale(self, gains: NDArray[np.float64]) -> None:
        """Update the scale of gains or advantages, a moving average of the root of their mean absolute value."""
        rooted, old = np.sqrt(np.mean(np.abs(gains))), self.state.scale
        self.state.scale = float(rooted if old is None else SCALE_DECAY * old + (1 - SCALE_DECAY) * rooted)

    def _advantage(self, gains: NDArray[np.float64]) -> NDArray[np.float32]:
        assert self.state.scale is not None
        return normalize_advantages(gains, self.state.scale)

    def _sampled_experience(self, rollout: Rollout) -> Experience:
        self._rescale(rollout.advantage)
        prior = logits(self.first, rollout.observed)
        advantage = self._advantage(rollout.advantage)
        return Experience(rollout.observed, rollout.action, rollout.logits, prior, advantage, np.ones_like(advantage))

    def _flip_experience(self, flips: Flips) -> Experience:
        """Return a row for each of the two actions of a flip, weighted by its probability: their exact gradient."""
        gain = self._advantage(flips.gain)
        action = np.concatenate([flips.action, flips.alternative])
        both = np.concatenate([flips.logits, flips.logits])
        rows, n = np.arange(len(action)), len(flips)
        logit = both[rows, action].astype(np.float64)
        probability = 1 / (1 + np.exp(np.concatenate([logit[n:] - logit[:n], logit[:n] - logit[n:]])))
        # Twice the probability among the two actions, so that the mean weight is 1.
        weight = (2 * probability).astype(np.float32)
        observed = np.concatenate([flips.observed, flips.observed])
        prior = logits(self.first, observed)
        return Experience(observed, action, both, prior, np.concatenate([-gain, gain]) / 2, weight)

    def _training_modules(self, count: int) -> list[Module]:
        """Return at most `count` training modules, always the same, none if `count` is negative."""
        ranked = sorted(self.modules.values(), key=lambda m: hashlib.sha256(m.name.encode()).digest())
        return ranked[: max(0, count)]

    def _compiled(self, policy: DensePolicy, greedy: bool = False) -> AbstractContextManager[Path]:
        """Return a context with a directory of the policy; greedy: for compiles that do not sample."""
        return compiled_policy(policy, self.clang, self.policies, tflite=greedy and self._loads_tflite)

    def _is_validated(self) -> bool:
        return bool(self.state.history) and self.state.history[-1][0] == self.state.iteration

    def _validate(self) -> None:
        state = self.state
        with self._compiled(self.average, greedy=True) as policy:
            outcomes = self.collector.greedy(self.validation, policy, self.quarantine)
        pairs = [(outcome, self.baselines[name]) for name, outcome in outcomes.items()]
        percent = 100 * outcome_reduction(self.objective, pairs)
        state.history.append((state.iteration, percent))
        self.summaries.validation(state.iteration, percent)
        if percent > state.best_percent:
            state.best_percent, state.best_iteration = percent, state.iteration
            self.best = self.average

    def _update_policy(self) -> None:
        self.dense = self._policy()

    def _policy(self) -> DensePolicy:
        """Return the policy with the present weights of the network."""
        return networks.to_dense(self.learner.actor, self.dense.buckets, self.dense.features, self.dense.problem)

    def save(self) -> None:
        """Publish the state after the last finished iteration, unless it is published already."""
        self._start_saving()
        self._end_saving()

    def _start_saving(self) -> None:
        """Publish in the background: an iteration of thousands of modules measures a gigabyte."""
        self._end_saving()
        if self._unsaved is not None:
            self.summaries.push()
            self._saving = self._unsaved, self._saver.submit(self.store.save, self._unsaved)
            self._unsaved = None

    def _end_saving(self) -> None:
        if self._saving is None:
            return
        checkpoint, saving = self._saving
        try:
            saving.result()
        except Exception:
            self._saving, self._unsaved = None, self._unsaved or checkpoint
            raise
        self._saving, self.saved = None, checkpoint.iteration

    def _keep_checkpoint(self) -> None:
        """Copy the state at the end of an iteration, because the next iteration changes it."""
        state: dict[str, Any] = {
            "inputs": self.inputs,
            "training": vars(self.state),
            "sampler": self.sampler.state(),
            "shuffle": self.learner.shuffle_state,
            "quarantine": self.quarantine.to_json(),
            "events": self.summaries.file_lengths(),
        }
        variables = {name: value.copy() for name, value in self.learner.state().items()}
        replay = () if self.replay is None else self.replay.segments
        frozen = json.loads(json.dumps(state))
        self._unsaved = Checkpoint(self.state.iteration, variables, self.average, self.best, frozen, replay)


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
