"""The values are fitted while an iteration compiles, and neither disturbs the other."""

import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager

import gin
import numpy as np
import pytest

from components.platform.errors import UserError
from components.platform.storage.shared_state.root_lease import RootLease
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from components.ppo.checkpointing.fingerprint import training_fingerprint
from components.ppo.config import TrainingConfig
from components.ppo.learners.dqn import DqnLearner
from components.ppo.learners.factory import configure
from components.ppo.policy_weights import mean_policy
from components.ppo.rollout import RolloutCollector
from components.ppo.train import Trainer
from components.ppo.training_data import load_training_data

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("fresh_gin")]

DEADLINE_S = 60
"""For what happens at once if it happens at all."""


@pytest.fixture
def begin(artifacts, tmp_path):
    """Makes a trainer of few modules that validates at the start, and then fits in each iteration."""

    @contextmanager
    def training(name="root", **options):
        directories = {"root_dir": tmp_path / name, "output": tmp_path / "policy"}
        config = TrainingConfig(**{**artifacts, "iterations": 3, "validate_every": 1, **directories, **options})
        gin.clear_config()
        configure(config)
        config.root_dir.mkdir(exist_ok=True)
        with (
            RootLease(config.root_dir, "training") as fence,
            closing(
                Trainer(config, training_fingerprint(config), CheckpointManager(fence, 3), load_training_data(config))
            ) as trainer,
        ):
            trainer.resume()
            yield trainer

    return training


@pytest.fixture
def before(monkeypatch):
    """Has something done first whenever a method is called."""

    def hook(owner, name, do):
        method = getattr(owner, name)

        def hooked(self, *arguments):
            do(*arguments)
            return method(self, *arguments)

        monkeypatch.setattr(owner, name, hooked)

    return hook


def test_fit_uses_earlier_flips_and_overlaps_compiles(begin, before, monkeypatch):
    fitting, measuring, added = threading.Event(), threading.Event(), threading.Event()
    fitted = []

    def wait_for_the_compiles(flips, *_):
        fitting.set()
        assert measuring.wait(DEADLINE_S) and added.wait(DEADLINE_S)
        fitted.append(len(flips))

    with begin() as trainer:
        trainer.iterate(time.monotonic())
        assert [number for number, _ in trainer.state.history] == [0]
        first, count = trainer.best, len(trainer.learner.replay)
        add = trainer.learner.replay.add

        def add_and_tell(*arguments):
            add(*arguments)
            added.set()

        monkeypatch.setattr(trainer.learner.replay, "add", add_and_tell)
        before(DqnLearner, "fit", wait_for_the_compiles)

        def wait_for_the_fit(modules, policy, base, *_):
            assert base is first, "it compiles under the best policy that is validated"
            measuring.set()
            assert fitting.wait(DEADLINE_S)

        before(RolloutCollector, "measure", wait_for_the_fit)
        trainer.iterate(time.monotonic())
        assert fitted == [count] and len(trainer.learner.replay) > count > 0
        assert [number for number, _ in trainer.state.history] == [0, 1] and trainer.state.iteration == 2
        assert trainer.learner.candidate is trainer.learner.policy and trainer.learner.candidate is not first


def test_duration_of_the_fit_does_not_change_results(begin, before):
    def trained(name):
        with begin(name) as trainer:
            trainer.run()
            state = trainer.state
            weights = {name: value.tolist() for name, value in trainer.learner.state().items()}
            return state.rewards, state.history, weights

    at_once = trained("at_once")
    assert [number for number, _ in at_once[1]] == [0, 1, 2, 3]
    before(DqnLearner, "fit", lambda *_: time.sleep(0.5))
    assert trained("late") == at_once


def test_final_policy_is_the_mean_of_several_fits(begin, monkeypatch):
    fitted = []
    end = DqnLearner._end_fit

    def end_and_keep(learner):
        if losses := end(learner):
            fitted.append(learner.policy)
        return losses

    monkeypatch.setattr(DqnLearner, "_end_fit", end_and_keep)
    with begin(gin_bindings=("DqnParameters.final_fits=2",)) as trainer:
        trainer.run()
        assert [number for number, _ in trainer.state.history] == [0, 1, 2, 3]
        final = trainer.learner.candidate
    assert len(fitted) == 4, "one before each of the last two iterations, two at the end"
    one, two = fitted[2:]
    layers = zip(final.layers, mean_policy([one, two]).layers, one.layers, two.layers, strict=True)
    for (weights, _), (expected, _), (first, _), (second, _) in layers:
        np.testing.assert_array_equal(weights, expected)
        assert not np.array_equal(first, second), "each fit has random numbers of its own"


OUTCOMES = {f"m{i}": {"": 1000.0 - i} for i in range(8)}


@pytest.mark.parametrize(
    ("final", "percent", "accepted"),
    [
        ({name: {"": value[""] - (-1) ** i} for i, (name, value) in enumerate(OUTCOMES.items())}, 2.9, True),
        ({name: {"": value[""] + 1} for name, value in OUTCOMES.items()}, 2.9, False),
        (OUTCOMES, 0.4, False),
    ],
    ids=["as_good", "worse_everywhere", "not_better_than_the_start"],
)
def test_final_policy_is_preferred_unless_it_is_worse_beyond_noise(begin, final, percent, accepted):
    with begin() as trainer:
        trainer.state.history, trainer.state.best_iteration = [(0, 0.5), (5, 3.0)], 5
        trainer._best_outcomes = OUTCOMES
        assert trainer._is_as_good(percent, final) is accepted
        trainer.state.best_iteration = 0
        assert not trainer._is_as_good(percent, final), "nothing beats the start"


@pytest.mark.parametrize("error", [ZeroDivisionError("in the fit"), UserError("in the fit")])
def test_error_in_the_fit_ends_the_training(begin, before, error):
    def fail(*_):
        raise error

    before(DqnLearner, "fit", fail)
    with pytest.raises(type(error)) as caught, begin() as trainer:
        trainer.run()
    assert caught.value is error
    assert trainer.state.iteration == 1, "no iteration that fits is over"
    trainer.save()
    assert trainer.saver.saved == 1


def test_interruption_cancels_the_fit_and_keeps_the_previous_iteration(begin, before):
    """The fit would take days."""
    endless = ("DqnParameters.num_epochs=1e9", "DqnParameters.max_steps=1000000000")
    with begin(gin_bindings=endless) as trainer:
        trainer.iterate(time.monotonic())

        def interrupt(*_):
            deadline = time.monotonic() + DEADLINE_S
            while not trainer.learner.step.numpy():
                assert time.monotonic() < deadline
            raise KeyboardInterrupt

        before(RolloutCollector, "measure", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trainer.iterate(time.monotonic())
        fitting = trainer.learner.running
        began = time.monotonic()
        trainer.close()
        assert time.monotonic() - began < 5 and isinstance(fitting.exception(), CancelledError)
        trainer.save()
        assert trainer.saver.saved == 1
        newest = trainer.checkpoints.newest()
        assert newest.variables["step"] == 0, "of the iteration that fitted nothing"
