"""Differences and ties between forms, and the selection of decisions."""

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.core.policy.agreement import compare_to_reference
from components.core.policy.dense import DensePolicy
from components.platform.errors import UserError
from components.platform.storage import write_manifest
from components.policy.compare import sample_decisions

REFERENCE = np.array([[1.0, 2.0], [3.0, 3.0 + 5e-6], [2.0, 1.0]], np.float32)


def test_equal_decisions_agree_even_if_logits_differ():
    agreement = compare_to_reference("form", REFERENCE, REFERENCE * 2)
    assert not len(agreement.differences) and not len(agreement.ties)
    assert agreement.max_error == pytest.approx(3.0, abs=1e-4)


def test_another_decision_is_a_difference_unless_logits_tie():
    agreement = compare_to_reference("form", REFERENCE, REFERENCE[:, ::-1])
    assert agreement.differences.tolist() == [0, 2]
    assert agreement.ties.tolist() == [1]


def test_decisions_of_a_form_take_precedence_over_its_logits():
    agreement = compare_to_reference("form", REFERENCE, REFERENCE, np.array([1, 1, 1]))
    assert agreement.differences.tolist() == [2]


@pytest.fixture
def write_trace(tmp_path):
    def write(values, problem="inlining"):
        writer = TraceWriter(tmp_path, problem, "inlining_decision", [FeatureSpec("f", "int64")])
        zeros = np.zeros(len(values), np.int32)
        columns = {"f": np.array(values, np.int64)}
        writer.add(ModuleTrace("m", 1, 0.0, [""], zeros, zeros, ["n"], zeros, zeros, columns, zeros.astype(np.int64)))
        writer.close("", "")
        write_manifest(tmp_path)
        return tmp_path

    return write


@pytest.fixture
def policy():
    layers = ((np.ones((2, 2), np.float32), np.ones(2, np.float32)),)
    return DensePolicy("inlining", (FeatureSpec("f", "int64"),), {"f": np.arange(5.0)}, layers)


def test_samples_are_distinct_decisions(write_trace, policy):
    trace = write_trace([4, 1, 4, 4, 9, 1])
    assert sorted(sample_decisions(trace, policy, 10, 0)["f"]) == [1, 4, 9]
    assert len(sample_decisions(trace, policy, 2, 0)["f"]) == 2


def test_a_trace_without_decisions_is_refused(write_trace, policy):
    with pytest.raises(UserError, match="no decisions"):
        sample_decisions(write_trace([]), policy, 10, 0)


def test_a_trace_of_another_problem_is_refused(write_trace, policy):
    with pytest.raises(UserError, match="regalloc"):
        sample_decisions(write_trace([1], "regalloc"), policy, 10, 0)
