"""Import of SavedModels of tf-agents, as ml-compiler-opt saves them: an imported policy decides like the original."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import IMPORTED, PolicyInfo, load_policy_info, write_policy_info
from components.core.formats.toolchain import Toolchain
from components.core.policy.dense import read_dense
from components.core.policy.generated.native_policy import NativePolicy
from components.platform.errors import UserError
from components.policy.tf_aot.import_saved_model import import_policy, read_signature

FEATURES = ("callee_users", "caller_users", "cost_estimate")
SAVE = """
import sys
import numpy as np, tensorflow as tf
from tf_agents.networks.actor_distribution_network import ActorDistributionNetwork
from tf_agents.policies import actor_policy, greedy_policy, policy_saver
from tf_agents.specs import BoundedTensorSpec
from tf_agents.trajectories import time_step as ts

# As ml-compiler-opt: a layer for each feature with its quantiles, their concatenation, dense layers.
directory, decision, *features = sys.argv[1:]
specs = {name: tf.TensorSpec((), tf.int64, name) for name in features}

def normalized(value):
    bucket = tf.raw_ops.Bucketize(input=tf.expand_dims(value, -1), boundaries=[-20.0, 0, 1, 3, 9, 30])
    q = tf.cast(bucket, tf.float32) / 6
    return tf.concat([q, q * q], -1)

tf.random.set_seed(5)
action = BoundedTensorSpec((), tf.int64, 0, 1, decision)
network = ActorDistributionNetwork(
    specs, action, preprocessing_layers={name: tf.keras.layers.Lambda(normalized) for name in features},
    preprocessing_combiner=tf.keras.layers.Concatenate(), fc_layer_params=(8,),
)
network.create_variables()
for variable in network.trainable_variables:
    variable.assign(tf.random.normal(variable.shape))
policy = greedy_policy.GreedyPolicy(actor_policy.ActorPolicy(ts.time_step_spec(specs), action, network))
policy_saver.PolicySaver(policy, batch_size=1, use_nest_path_signatures=False).save(directory)
columns = np.load(directory + "/columns.npz")
step = ts.restart({name: tf.constant(columns[name]) for name in features}, len(columns[features[0]]))
np.save(directory + "/decisions.npy", policy.action(step).action.numpy())
"""


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    return {name: generator.integers(-40, 40, 400) for name in FEATURES}


@pytest.fixture(scope="module")
def save(tmp_path_factory, columns):
    """Return a function (decision, features) -> directory of a policy that tf-agents saved, and of its decisions."""

    def saved(decision: str, features: tuple[str, ...] = FEATURES) -> Path:
        directory = tmp_path_factory.mktemp("saved")
        np.savez(directory / "columns.npz", **columns)
        # In a separate process, because an importer has not loaded the libraries that the model was saved with.
        command = [sys.executable, "-c", SAVE, str(directory), decision, *features]
        subprocess.run(command, check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}, capture_output=True)
        return directory

    return saved


@pytest.fixture(scope="module")
def model(save) -> Path:
    return save("inlining_decision")


def toolchain(clang: Path, directory: Path, names: tuple[str, ...] = (*FEATURES, "edge_count")) -> Toolchain:
    """Return a toolchain whose compiler logs these features."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin/clang").symlink_to(clang)
    return Toolchain(
        directory, "training", "19.1.7", "x86_64", {"inlining": tuple(FeatureSpec(name, "int64") for name in names)}, {}
    )


@pytest.mark.tf
def test_an_imported_policy_decides_like_tf_agents(model, columns, clang, tmp_path) -> None:
    output = tmp_path / "policy"
    output.mkdir()
    # The features have the compiler's order.
    info = import_policy(model, output, toolchain(clang, tmp_path / "toolchain", tuple(reversed(FEATURES))))
    assert info == load_policy_info(output) and info.trained_by == IMPORTED
    assert [feature.name for feature in info.features] == [*reversed(FEATURES)]
    native, expected = NativePolicy(output), np.load(model / "decisions.npy")
    assert (native.features, native.num_actions, native.problem) == (info.features, 2, "inlining")
    assert 0.02 < expected.mean() < 0.98
    np.testing.assert_array_equal(native.logits(columns).argmax(axis=1), expected)
    names = {"saved_model", "aot", "policy.so", "policy.json", "output_spec.json"}
    assert {path.name for path in output.iterdir()} == names
    assert not (output / "saved_model/decisions.npy").exists()


@pytest.mark.tf
def test_a_feature_that_the_compiler_does_not_log_is_refused(model, save, clang, tmp_path) -> None:
    with pytest.raises(UserError, match=r"this compiler does not log: cost_estimate"):
        import_policy(model, tmp_path, toolchain(clang, tmp_path / "a", FEATURES[:2]))
    other = save("what_to_unroll", FEATURES[:1])
    with pytest.raises(UserError, match="returns what_to_unroll, not inlining_decision or index_to_evict"):
        read_signature(other)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.tf
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "cut off", "directory"])
def test_a_damaged_saved_model_is_refused(model, tmp_path, damage) -> None:
    source = shutil.copytree(model, tmp_path / "copy")
    graph = source / "saved_model.pb"
    content = graph.read_bytes()
    graph.unlink()
    if damage == "directory":
        graph.mkdir()
    elif damage != "missing":
        graph.write_bytes({"empty": b"", "garbage": b"\xff" * 100, "cut off": content[: len(content) // 2]}[damage])
    with pytest.raises(UserError, match=r"copy.* (is not a (readable )?SavedModel|returns nothing)"):
        read_signature(source)


def test_training_from_an_imported_policy_is_refused(tmp_path) -> None:
    write_policy_info(tmp_path, PolicyInfo("inlining", (FeatureSpec("cost_estimate", "int64"),), 2, IMPORTED))
    with pytest.raises(UserError, match="was imported: this project does not know its layers"):
        read_dense(tmp_path)
    document = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(document | {"trained_by": "ppo"}))
    with pytest.raises(UserError, match="is not a policy"):
        read_dense(tmp_path)
