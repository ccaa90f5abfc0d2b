"""Credit of decisions by function scores, and the reduction over many scores."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.logs.training_log import Context, TrainingLog
from components.core.compiler.sample import Sample
from components.core.objectives import SCORE
from components.core.objectives.geometric_mean import FLOOR
from components.core.objectives.outcomes import outcome_reduction
from components.ppo.credit.score_credit import function_advantages, module_advantages

names = st.sampled_from(["f", "g", "h", "k"])
score = st.floats(0, 1e9)
samples = st.lists(st.dictionaries(names, st.tuples(score, st.integers(1, 5)), max_size=4), min_size=2, max_size=5)


def sample(functions):
    """functions: name -> (score, decisions)."""
    contexts = tuple(
        Context(name, {"index_to_evict": np.zeros((decisions, 1), np.int64)}, np.full((decisions, 1), score))
        for name, (score, decisions) in functions.items()
    )
    return Sample(log=TrainingLog((), contexts), scores={name: score for name, (score, _) in functions.items()})


def test_a_decision_is_credited_by_its_function_only():
    one, two = function_advantages([sample({"f": (9, 2), "g": (0, 1)}), sample({"g": (3, 2), "f": (9, 1)})])
    f, g = 0, np.log(3 + FLOOR) / 2
    assert one == pytest.approx([f, f, g])
    assert two == pytest.approx([-g, -g, f])


def test_the_unit_of_a_function_does_not_matter():
    small = function_advantages([sample({"f": (1e6, 1)}), sample({"f": (2e6, 1)})])
    large = function_advantages([sample({"f": (1e12, 1)}), sample({"f": (2e12, 1)})])
    np.testing.assert_allclose(small, large, rtol=1e-5)
    assert small[0] == pytest.approx([np.log(2) / 2], rel=1e-5)


@given(samples)
def test_advantages_cover_common_functions_and_sum_to_zero(described):
    advantages = function_advantages([sample(functions) for functions in described])
    total: dict[str, float] = {}
    for functions, advantage in zip(described, advantages, strict=True):
        assert advantage.shape == (sum(decisions for _, decisions in functions.values()),)
        at = 0
        for name, (_, decisions) in functions.items():
            mine = advantage[at : at + decisions]
            assert (mine == mine[0]).all()
            if not all(name in others for others in described):
                assert not mine.any()
            total[name] = total.get(name, 0) + mine[0]
            at += decisions
    assert all(abs(value) < 1e-9 for value in total.values())


@given(samples)
def test_a_lower_score_never_has_a_lower_advantage(described):
    advantages = function_advantages([sample(functions) for functions in described])
    for name in set.intersection(*map(set, described)):
        at = [sum(n for _, n in list(f.values())[: list(f).index(name)]) for f in described]
        by_score = sorted((f[name][0], -a[i]) for f, a, i in zip(described, advantages, at, strict=True))
        assert all(left <= right + 1e-12 for (_, left), (_, right) in itertools.pairwise(by_score))


@given(samples)
def test_module_advantages_are_the_mean_over_functions(described):
    for advantage in module_advantages([sample(functions) for functions in described]):
        assert len(set(advantage.tolist())) <= 1


def test_a_reduction_is_a_geometric_mean_over_functions():
    halved, doubled = (({name: to - FLOOR}, {name: 1000 - FLOOR}) for name, to in (("f", 500), ("g", 2000)))
    assert outcome_reduction(SCORE, [halved]) == pytest.approx(0.5)
    assert outcome_reduction(SCORE, [doubled]) == pytest.approx(-1)
    assert outcome_reduction(SCORE, [halved, doubled]) == pytest.approx(0)
    assert outcome_reduction(SCORE, [({"f": 5, "new": 7}, {"f": 5})]) == 0
    assert outcome_reduction(SCORE, [({}, {}), ({"new": 7}, {})]) == 0


@given(st.dictionaries(names, st.tuples(score, score), min_size=1))
def test_a_reduction_and_its_reverse_undo_each_other(pairs):
    before, after = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
    there, back = outcome_reduction(SCORE, [(after, before)]), outcome_reduction(SCORE, [(before, after)])
    assert (1 - there) * (1 - back) == pytest.approx(1, rel=1e-6)
