"""policy.json, output_spec.json, and the check of a policy's features against a compiler's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import (
    PolicyInfo,
    check_features,
    check_optional_features,
    load_policy_info,
    output_spec,
    require_policy,
    write_output_spec,
    write_policy_info,
)
from components.platform.errors import UserError

specs = st.builds(
    FeatureSpec,
    st.text(min_size=1),
    st.sampled_from(["int64", "float32"]),
    st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
)
infos = st.builds(
    PolicyInfo,
    problem=st.text(),
    features=st.lists(specs, max_size=4).map(tuple),
    num_actions=st.integers(1, 40),
    trained_by=st.text(),
    vocab_digest=st.text(),
    corpus_digest=st.text(),
    llvm_version=st.text(),
    metrics=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    trained_ranges=st.dictionaries(
        st.text(), st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2).map(lambda pair: (min(pair), max(pair)))
    ),
    unwind_tables=st.none() | st.booleans(),
)


@given(info=infos)
def test_written_policy_info_is_read_back(tmp_path_factory, info):
    directory = tmp_path_factory.mktemp("policy")
    write_policy_info(directory, info)
    assert load_policy_info(directory) == info


def test_policy_without_ranges_is_written_as_before(tmp_path):
    write_policy_info(tmp_path, PolicyInfo("p", (), 2, "ppo"))
    written = json.loads((tmp_path / "policy.json").read_text())
    assert not {"trained_ranges", "unwind_tables"} & set(written)
    assert load_policy_info(tmp_path).trained_ranges == {} and load_policy_info(tmp_path).unwind_tables is None


WRITTEN = '{"version": 1, "problem": "p", "features": [], "num_actions": 2, "trained_by": ""}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "not a policy description"),
        ('{"version": 1}', "not a policy description"),
        ('{"version": 2}', "has version 2"),
        ('{"version": 1, "problem": "p", "features": [{"name": "f", "type": "odd", "shape": [1]}]}', "odd"),
        (WRITTEN.replace("}", ', "x": 1}'), "unknown field `x`"),
        (WRITTEN.replace("}", ', "optional_features": {"a": 1}}'), "the optional feature a is no scalar feature"),
        (WRITTEN.replace("}", ', "trained_ranges": {"a": [2, 1]}}'), "the trained range of a is 2 to 1"),
    ],
)
def test_invalid_policy_json_is_refused(tmp_path, text, message):
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(UserError, match=message):
        load_policy_info(tmp_path)


A, B, C = (FeatureSpec(name, "int64") for name in "abc")


def test_optional_features_may_be_missing(tmp_path):
    info = PolicyInfo("inlining", (A, B), 2, "ppo", optional_features={"b": 3.0})
    write_policy_info(tmp_path, info)
    assert load_policy_info(tmp_path) == info
    check_features(info.features, [A, C], info.optional_features)
    with pytest.raises(UserError, match="log: a;"):
        check_features(info.features, [B, C], info.optional_features)


NO_INTEGERS = [0.5, 1e30, 2**63, float(2**63), -(2**63) - 1, 10**400, float("inf"), float("nan")]
NO_FLOATS = [1e39, 10**400, float("-inf"), float("nan"), True, "1", None]


@pytest.mark.parametrize(("dtype", "values"), [("int64", NO_INTEGERS), ("float32", NO_FLOATS)])
def test_optional_value_that_the_feature_cannot_hold_is_refused(dtype, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"{dtype}|number"):
            check_optional_features({"a": value}, [FeatureSpec("a", dtype)])
    check_optional_features({"a": -(2.0**63), "b": 2**63 - 1, "c": -1e30}, [A, B, FeatureSpec("c", "float32")])


def test_policy_may_use_only_features_of_the_compiler():
    with pytest.raises(UserError, match="use: c") as caught:
        check_features([A, B], [A, C])
    assert "same LLVM version" in caught.value.remedy
    with pytest.raises(UserError, match=r"float32\[33\]"):
        check_features([A], [FeatureSpec("a", "float32", (33,))])
    check_features([A, B], [C, B, A])


def test_output_spec_puts_the_decision_first_and_numbers_ports_by_name(tmp_path):
    path = write_output_spec(tmp_path, "inlining_decision", "CategoricalProjectionNetwork_logits", 2)
    decision, logits = json.loads(path.read_text())
    assert decision["logging_name"] == "inlining_decision"
    assert (decision["tensor_spec"]["type"], decision["tensor_spec"]["port"]) == ("int64_t", 1)
    assert (logits["tensor_spec"]["shape"], logits["tensor_spec"]["port"]) == ([1, 2], 0)
    assert output_spec("a", "b", 2)[0]["tensor_spec"]["port"] == 0


def test_saved_model_of_ml_compiler_opt_is_named(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(UserError, match="SavedModel") as error:
        require_policy(tmp_path)
    assert f"mlgo policy import --saved-model {tmp_path}" in error.value.remedy
    with pytest.raises(UserError, match="no policy at"):
        require_policy(tmp_path / "none")
    with pytest.raises(UserError, match=r"policy\.json"):
        load_policy_info(tmp_path)
