"""The policy artifact: its forms agree, have the names that LLVM looks for, and disagreement is detected."""

import json

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from tensorflow.core.protobuf import saved_model_pb2

from components.core.formats.policy import PolicyInfo, load_policy_info
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.core.formats.vocab import read_buckets
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_fast, export_policy
from components.core.policy.fixed_point import round_weights
from components.core.policy.generated.codegen import generate
from components.core.policy.generated.shared_object import build_shared_object
from components.core.policy.tf import saved_model
from components.platform.errors import UserError
from components.platform.storage import write_manifest
from components.policy.__main__ import main


@pytest.fixture(scope="module")
def exported(make_policy, clang, tmp_path_factory):
    """Return (directory, exported policy, columns)."""
    policy, columns = make_policy(11, (16, 8), decisions=200, tensors=True)
    directory = tmp_path_factory.mktemp("policy")
    export_policy(policy, directory, clang, PolicyInfo("", (), 0, trained_by="test", llvm_version="19.1.7"))
    write_manifest(directory)
    return directory, round_weights(policy), columns


@pytest.fixture(scope="module")
def trace(exported, tmp_path_factory):
    _, policy, columns = exported
    directory = tmp_path_factory.mktemp("trace")
    rows = len(columns["flag"])
    writer = TraceWriter(directory, "inlining", "inlining_decision", policy.features)
    zeros = np.zeros(rows, np.int32)
    writer.add(ModuleTrace("m", 1, 0.0, [""], zeros, zeros, ["f"], zeros, zeros, columns, zeros.astype(np.int64)))
    writer.close("", "")
    write_manifest(directory)
    return directory


def test_all_forms_agree_on_recorded_decisions(exported, trace):
    result = CliRunner().invoke(main, ["compare", "--policy", str(exported[0]), "--trace", str(trace)])
    assert result.exit_code == 0, result.output
    for form in ("generated C++", "SavedModel", "TensorFlow Lite"):
        assert f"{form}: 0 of 200 decisions differ" in result.output


def test_a_form_of_another_policy_is_detected(exported, trace, clang, tmp_path):
    directory, policy, _ = exported
    for path in directory.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "policy.so").unlink()
    weights, bias = policy.layers[-1]
    mirrored = DensePolicy("inlining", policy.features, policy.buckets, (*policy.layers[:-1], (-weights, -bias)))
    (tmp_path / "other").mkdir()
    generate(mirrored, tmp_path / "other")
    (tmp_path / "policy.so").symlink_to(build_shared_object(tmp_path / "other", clang))
    (tmp_path / "manifest.json").unlink()
    write_manifest(tmp_path)
    result = CliRunner().invoke(main, ["compare", "--policy", str(tmp_path), "--trace", str(trace)])
    assert isinstance(result.exception, UserError) and "generated C++" in result.exception.problem
    for form, differences in (("generated C++", 200), ("SavedModel", 0), ("TensorFlow Lite", 0)):
        assert f"{form}: {differences} of 200 decisions differ" in result.output


def test_policy_json_has_the_given_origin_and_properties_of_the_weights(exported):
    directory, policy, _ = exported
    info = load_policy_info(directory)
    assert (info.problem, info.features, info.num_actions) == ("inlining", policy.features, 2)
    assert (info.trained_by, info.llvm_version) == ("test", "19.1.7")


def test_artifact_includes_vocab_and_weights(exported):
    directory, policy, columns = exported
    np.testing.assert_array_equal(read_buckets(directory / "vocab" / "cost.buckets"), policy.buckets["cost"])
    np.testing.assert_array_equal(read_dense(directory).logits(columns), policy.logits(columns))


def test_signature_has_the_features_names_and_tf_agents_time_step(exported):
    directory, policy, _ = exported
    model = saved_model_pb2.SavedModel.FromString((directory / "saved_model" / "saved_model.pb").read_bytes())
    signature = model.meta_graphs[0].signature_def["action"]
    names = {f.name for f in policy.features} | {"discount", "reward", "step_type"}
    assert {key: tensor.name for key, tensor in signature.inputs.items()} == {n: f"action_{n}:0" for n in names}
    assert [d.size for d in signature.inputs["cost"].tensor_shape.dim] == [1]
    assert signature.inputs["weight"].dtype == tf.float32.as_datatype_enum
    assert {key: tensor.name for key, tensor in signature.outputs.items()} == {
        "CategoricalProjectionNetwork_logits": "StatefulPartitionedCall:0",
        "inlining_decision": "StatefulPartitionedCall:1",
    }


def test_tensors_of_the_lite_model_are_those_of_output_spec(exported):
    directory, policy, _ = exported
    interpreter = tf.lite.Interpreter(model_content=(directory / "model.tflite").read_bytes())
    details = {d["name"]: d for d in interpreter.get_output_details()}
    for entry in json.loads((directory / "output_spec.json").read_text()):
        spec = entry["tensor_spec"]
        detail = details[f"{spec['name']}:{spec['port']}"]
        assert list(detail["shape"]) == spec["shape"]
        assert detail["dtype"] == {"int64_t": np.int64, "float": np.float32}[spec["type"]]
    assert {f"action_{f.name}:0" for f in policy.features} <= {d["name"] for d in interpreter.get_input_details()}


def test_error_names_a_damaged_form(exported, tmp_path):
    _, policy, _ = exported
    with pytest.raises(UserError, match="no signature"):
        saved_model.saved_model_runner(tmp_path, policy)
    with pytest.raises(UserError, match=r"model\.tflite"):
        saved_model.tflite_runner(tmp_path, policy)
    (tmp_path / "model.tflite").write_bytes(b"nothing")
    with pytest.raises(UserError, match="TensorFlow Lite"):
        saved_model.tflite_runner(tmp_path, policy)


def test_fast_export_writes_the_files_that_a_training_clang_reads(exported, clang, tmp_path):
    export_fast(exported[1], tmp_path, clang)
    assert {p.name for p in tmp_path.iterdir()} == {"output_spec.json", "policy.h", "policy.cpp", "policy.so"}
