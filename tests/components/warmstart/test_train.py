"""The step as users run it: one command, a whole policy, clear errors."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from components.core.formats.embeddings import VOCABULARY
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import load_trace
from components.platform.errors import UserError
from components.platform.storage import digest, verify
from components.policy.compare import compare
from components.warmstart.__main__ import main
from components.warmstart.train import feature_names
from tests.components.warmstart.conftest import FEATURES, TENSORS, VOCABULARY_CONTENT

pytestmark = pytest.mark.usefixtures("fresh_gin")


def arguments(inputs, output, *more):
    return [*(f"--{name}={path}" for name, path in inputs.items()), f"--output={output}", *map(str, more)]


@pytest.mark.tf
def test_step_writes_a_complete_policy(inputs, tmp_path):
    output = tmp_path / "policy"
    command = [sys.executable, "-W", "ignore", "-m", "components.warmstart"]
    command += arguments(inputs, output, "--epochs=30", "--batch-size=512", "--features=ir2vec")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "cloning the heuristic" in done.stdout and "held-out decisions" in done.stdout
    verify(output)
    report = json.loads((output / "report.json").read_text())
    assert report["agreement"] > 0.95 and (report["decisions"], report["heldout_decisions"]) == (5400, 600)
    assert report["compared_decisions"] == 600
    info = load_policy_info(output)
    assert (info.trained_by, info.llvm_version, info.corpus_digest) == ("warmstart", "19.1.7", "corpus digest")
    assert (info.trace_digest, info.vocab_digest) == (digest(inputs["trace"]), digest(inputs["vocab"]))
    assert info.features == (*FEATURES, *TENSORS)
    assert (output / VOCABULARY).read_bytes() == VOCABULARY_CONTENT
    assert info.ir2vec_vocabulary == hashlib.sha256(VOCABULARY_CONTENT).hexdigest()
    assert info.metrics["agreement"] == report["agreement"]
    assert not any(len(a.differences) for a in compare(output, inputs["trace"], limit=100))
    assert list((output / "tensorboard").glob("events.out.tfevents.*"))
    assert [p.name for p in tmp_path.iterdir()] == ["policy"]


def test_toolchain_with_other_features_is_refused_before_training(inputs, tmp_path, make_toolchain):
    make_toolchain(tmp_path / "toolchain", (FeatureSpec("cost", "int64"), FeatureSpec("novelty", "int64")))
    wrong = {**inputs, "toolchain": tmp_path / "toolchain"}
    result = CliRunner().invoke(main, arguments(wrong, tmp_path / "policy"))
    assert isinstance(result.exception, UserError)
    assert "does not log: threshold, blocks, always_zero" in str(result.exception)
    assert "does not use: novelty" in str(result.exception)
    assert not (tmp_path / "policy").exists()


def test_feature_sets(inputs):
    trace, toolchain = load_trace(inputs["trace"]), load_toolchain(inputs["toolchain"])
    numbers = {spec.name for spec in FEATURES}
    upstream = replace(toolchain, upstream_features={"inlining": ("cost", "blocks")})
    assert feature_names("llvm", trace, upstream) == {"cost", "blocks"}
    assert feature_names("extended", trace, toolchain) == numbers
    assert feature_names("ir2vec", trace, toolchain) == numbers | {spec.name for spec in TENSORS}
    with pytest.raises(UserError, match=r"LLVM 19\.1\.7\) logs no embeddings") as caught:
        feature_names("ir2vec", replace(trace, features=FEATURES), toolchain)
    assert "--strategy plugin --llvm-major 22" in caught.value.remedy


@pytest.mark.parametrize("kind", ["trace", "vocab", "toolchain"])
def test_missing_input_is_reported(inputs, tmp_path, kind):
    result = CliRunner().invoke(main, arguments({**inputs, kind: tmp_path / "nowhere"}, tmp_path / "policy"))
    assert isinstance(result.exception, UserError)
    assert f"{kind} at {tmp_path / 'nowhere'}" in str(result.exception)


def test_wrong_gin_binding_leaves_no_output(inputs, tmp_path):
    result = CliRunner().invoke(main, arguments(inputs, tmp_path / "policy", "--gin-binding=actor_network.units=3"))
    assert isinstance(result.exception, UserError) and "gin" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_help_does_not_import_tensorflow():
    code = "import sys; from components.warmstart.__main__ import main; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    result = CliRunner().invoke(main, ["--help"])
    assert "Example:" in result.output and "--entropy-weight" in result.output
