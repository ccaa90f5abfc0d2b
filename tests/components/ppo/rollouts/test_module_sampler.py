"""The order in which modules come."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.policy import write_regressed
from components.platform.errors import UserError
from components.ppo.config import TrainingConfig
from components.ppo.module_sampler import MIN_WEIGHT, ModuleSampler, oversampled, read_oversampling, sampling_weights

NAMES = [f"project/m{i}.o" for i in range(7)]
ALIKE = dict.fromkeys(NAMES, 1.0)


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 2**32))
def test_equal_weights_sample_equally_without_duplicates(count, rounds, seed):
    sampler = ModuleSampler(ALIKE, seed)
    seen = []
    for _ in range(rounds):
        taken = sampler.next_batch(count)
        assert len(set(taken)) == len(taken) == min(count, len(NAMES))
        seen += taken
    often = [seen.count(name) for name in NAMES]
    assert max(often) - min(often) <= 1


@given(st.integers(0, 5))
def test_restored_sampler_continues_exactly(before):
    one, two = ModuleSampler(ALIKE, 1), ModuleSampler(ALIKE, 2)
    for _ in range(before):
        one.next_batch(3)
    two.restore(json.loads(json.dumps(one.state())))
    assert [one.next_batch(3) for _ in range(6)] == [two.next_batch(3) for _ in range(6)]


def test_sampling_frequency_equals_weight():
    sampler = ModuleSampler({**ALIKE, NAMES[0]: 0.25}, 0)
    seen = [name for _ in range(2000) for name in sampler.next_batch(3)]
    assert seen.count(NAMES[0]) / seen.count(NAMES[1]) == pytest.approx(0.25, rel=0.15)


def test_large_modules_with_few_decisions_get_the_minimum_weight():
    weights = sampling_weights(np.array([1000, 1000, 1000, 1]), np.array([10_000, 10_000, 100_000, 500_000]))
    assert weights[:2] == pytest.approx([1, 1])
    assert MIN_WEIGHT == weights[3] < weights[2] < 0.5


def test_oversamples_named_modules_and_directories_of_held_out_ones() -> None:
    trained = {"zstd/lib/a.o", "zstd/lib/b.o", "zstd/programs/c.o", "lz4/d.o"}
    assert oversampled(("lz4/d.o",), trained) == {"lz4/d.o"}
    assert oversampled(("zstd/lib/held-out.o",), trained) == {"zstd/lib/a.o", "zstd/lib/b.o"}
    assert oversampled(("nowhere/x.o",), trained) == set() == oversampled((), trained)


def test_reads_list_or_state_of_retraining(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    for document in (["a", "b"], {"regressed": ["a", "b"], "deployed": None}):
        path.write_text(json.dumps(document))
        assert read_oversampling(path) == ("a", "b")


@pytest.mark.parametrize("text", ["", "3", "[1]", '{"names": []}'])
def test_other_documents_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(UserError, match=r"names\.json is not (a list of modules|valid JSON)"):
        read_oversampling(tmp_path / "names.json")


def test_warmstart_names_modules_unless_the_option_does(tmp_path: Path) -> None:
    def oversampling(option: Path | None = None) -> Path | None:
        paths = (tmp_path,) * 6
        return TrainingConfig(*paths, minutes=1, oversample_modules=option).oversampling

    write_regressed(tmp_path, ())
    assert oversampling() is None and list(tmp_path.iterdir()) == []
    write_regressed(tmp_path, ("a", "b"))
    path = oversampling()
    assert path is not None and read_oversampling(path) == ("a", "b")
    assert oversampling(tmp_path / "names.json") == tmp_path / "names.json"
