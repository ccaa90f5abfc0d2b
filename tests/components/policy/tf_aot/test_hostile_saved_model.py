"""SavedModels that are incomplete, strange or hostile are refused with one message, and write nothing."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from components.core.formats.features import FeatureSpec
from components.core.formats.toolchain import Toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.forms import run_form
from components.core.policy.tf.saved_model import TIME_STEP_INPUTS
from components.platform.errors import UserError
from components.platform.processes import sandbox
from components.policy.tf_aot import import_saved_model
from components.policy.tf_aot.import_saved_model import import_policy, read_signature

FEATURES = ("callee_users", "caller_users", "cost_estimate")
SPECS = tuple(FeatureSpec(name, "int64", (1,)) for name in FEATURES)

pytestmark = pytest.mark.tf


class Model(tf.Module):
    """A model with a variable, which also does something else in each decision."""

    def __init__(self, extra: Callable[[], tf.Tensor]) -> None:
        super().__init__()
        self.weights = tf.Variable([[1.0], [2.0], [3.0]])
        self.extra = extra

    @tf.function(
        input_signature=[
            *(tf.TensorSpec([1], tf.int64, name) for name in FEATURES),
            *(tf.TensorSpec([1], dtype, name) for name, dtype in TIME_STEP_INPUTS.items()),
        ]
    )
    def action(self, callee_users, caller_users, cost_estimate, _discount, _reward, _step_type):
        inputs = tf.cast(tf.stack([callee_users, caller_users, cost_estimate], -1), tf.float32)
        logit = tf.matmul(inputs, self.weights)[0] + self.extra()
        decision = tf.cast(logit > 0, tf.int64)
        return {"inlining_decision": decision, "CategoricalProjectionNetwork_logits": tf.stack([-logit, logit], -1)}


def save(directory: Path, extra: Callable[[], tf.Tensor] = lambda: tf.constant(0.0)) -> Path:
    model = Model(extra)
    tf.saved_model.save(model, str(directory), signatures={"action": model.action})
    return directory


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def replace_by(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # paths of sockets are short
        listener.bind(path.name)


KINDS: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": bind,
    "a symbolic link": lambda path: path.symlink_to("/etc/passwd"),
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize(
    "member", ["fingerprint.pb", "variables/variables.index", "assets/words.txt", "saved_model.pb"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_members_that_are_no_files_are_refused(
    model: Path, member: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model)
    replace_by(model / member, KINDS[kind])
    expected = kind
    if member == "saved_model.pb" and kind != "a symbolic link":
        expected = "it has no file saved_model.pb"
    if kind == "a directory" and "/" in member:
        expected = "is incomplete" if "variables" in member else ""
    if not expected:  # an empty directory in assets/ harms nobody
        assert read_signature(model).problem == "inlining"
        return
    with pytest.raises(UserError, match=expected):
        read_signature(model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: shutil.rmtree(model / "variables"), r"is incomplete: .* no variables/variables\.index"),
        (lambda model: os.unlink(model / "variables/variables.index"), r"no variables/variables\.index"),
        (lambda model: os.unlink(model / "variables/variables.data-00000-of-00001"), r"no variables/variables\.data"),
        (lambda model: shutil.rmtree(model / "variables") or (model / "variables").touch(), "has a directory"),
        (lambda model: os.truncate(model / "saved_model.pb", 999), "is not a readable SavedModel"),
        (lambda model: os.truncate(model / "saved_model.pb", 1 << 40), r"model has 1,099\.5 GB"),
    ],
)
def test_incomplete_and_huge_models_are_refused(model: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(model)
    with pytest.raises(UserError, match=message):
        read_signature(model)


def test_signature_with_unknown_types_is_refused(model: Path) -> None:
    graph = saved_model_pb2.SavedModel.FromString((model / "saved_model.pb").read_bytes())
    graph.meta_graphs[0].signature_def["action"].inputs["cost_estimate"].dtype = 999  # type: ignore[assignment]
    (model / "saved_model.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(UserError, match="is not a readable SavedModel"):
        read_signature(model)


@pytest.mark.parametrize("operation", ["read", "cut off"])
def test_model_that_tensorflow_cannot_compile_is_one_error_without_a_traceback(
    saved: Path, tmp_path: Path, clang: Path, operation: str
) -> None:
    if operation == "read":
        source = save(tmp_path / "model", lambda: tf.strings.to_number(tf.io.read_file("/etc/hostname")))
        reason = "Detected unsupported operations .* ReadFile"
    else:
        source = shutil.copytree(saved, tmp_path / "model")
        os.truncate(source / "variables/variables.data-00000-of-00001", 3)
        reason = "saved_model: Read less bytes than requested"
    (tmp_path / "policy").mkdir()
    toolchain = Toolchain(tmp_path, "training", "19.1.7", "x86_64", {"inlining": SPECS}, {})
    with pytest.raises(UserError, match=reason) as caught:
        import_policy(source, tmp_path / "policy", toolchain)
    assert "Traceback" not in caught.value.problem and "\n" not in caught.value.problem
    assert "--embed" not in caught.value.remedy


def test_operation_of_a_saved_model_cannot_write(tmp_path: Path) -> None:
    """`mlgo policy compare` runs a SavedModel's operations in a child that can write to its scratch directory only."""
    if sandbox.kind() == "none":
        pytest.skip("nothing confines here")
    touched, directory = tmp_path / "touched", tmp_path / "policy"

    def write() -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(str(touched), "written")]):
            return tf.constant(0.0)

    buckets = {name: np.arange(3.0) for name in FEATURES}
    layers = ((np.ones((6, 2), np.float32), np.zeros(2, np.float32)),)
    directory.mkdir()
    DensePolicy("inlining", SPECS, buckets, layers).save(directory)
    save(directory / "saved_model", write)
    columns = {name: np.arange(2) for name in FEATURES}
    with pytest.raises(UserError, match=r"saved_model cannot be run: .*Permission denied"):
        run_form("saved_model", directory, columns)
    assert not touched.exists()


def test_import_copies_only_regular_files(model: Path, tmp_path: Path) -> None:
    """Everything that would be copied into the policy is a file with a link to nowhere else."""
    names = import_saved_model.saved_model_files(model)
    assert all(stat.S_ISREG(os.lstat(model / name).st_mode) for name in names)
    assert "saved_model.pb" in names and "variables/variables.index" in names
