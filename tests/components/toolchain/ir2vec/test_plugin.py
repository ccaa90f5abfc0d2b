"""IR2Vec's embeddings as features: their values are LLVM's, and a policy that reads them decides alike everywhere."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.logs.training_log import Context, read_log
from components.core.formats.embeddings import DIGEST, RANDOM, VOCABULARY
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.strategy import Strategy
from components.core.formats.toolchain import load_toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.policy.feature_encoding import num_layer_inputs
from components.core.problems.inlining import INLINING
from components.platform.errors import UserError
from components.platform.storage import publish
from components.toolchain.config import ToolchainConfig
from components.toolchain.ir2vec.plugin import make_vocabulary
from components.toolchain.ir2vec.vocabulary import read_vocabulary
from components.toolchain.make import make_toolchain
from components.toolchain.sdk import find_sdk
from tests.support.samples import random_layers

STOCK = "/usr/lib/llvm-22/bin/clang"


@pytest.fixture(scope="module")
def toolchain(make_once) -> Path:
    """A training toolchain that logs embeddings."""

    def build(directory: Path) -> None:
        make_toolchain(ToolchainConfig("training", directory / "training", "plugin", 22, ir2vec_vocab=RANDOM))

    return make_once("plugin-22-ir2vec", build) / "training"


def test_failing_program_of_llvm_is_named(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "llvm-ir2vec"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no such command >&2; exit 1\n")
    program.chmod(0o755)
    installed = find_sdk(19)
    (program.parent / "clang").symlink_to(installed.clang)
    sdk = dataclasses.replace(installed, prefix=tmp_path)
    with pytest.raises(UserError, match="llvm-ir2vec"):
        make_vocabulary(RANDOM, sdk, tmp_path / "vocabulary.json")
    assert not (tmp_path / "vocabulary.json").exists()


@pytest.fixture(scope="module")
def policy(toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy of two numbers and the embeddings."""
    output = tmp_path_factory.mktemp("ir2vec") / "policy"
    loaded = load_toolchain(toolchain)
    names = {"callee_instructions", "caller_users", "callee_embedding", "caller_embedding"}
    features = tuple(spec for spec in loaded.features["inlining"] if spec.name in names)
    scalars, tensors = features[:2], features[2:]
    assert [spec.shape for spec in tensors] == [(75,), (75,)]
    layers = random_layers([num_layer_inputs(scalars, tensors, masked=False), 16, 2])
    dense = DensePolicy("inlining", features, {spec.name: np.arange(50.0) for spec in scalars}, layers)
    with publish(output, "policy") as partial:
        export_fast(dense, partial, loaded.clang)
        (partial / VOCABULARY).write_bytes((toolchain / VOCABULARY).read_bytes())
        vocabulary = read_vocabulary(partial / VOCABULARY).digest
        info = PolicyInfo("inlining", features, 2, trained_by="warmstart", ir2vec_vocabulary=vocabulary)
        write_policy_info(partial, info)
    return output


def decisions(clang: Path, module: Path, advisor: Advisor, scratch: Path) -> tuple[bytes, Context | None]:
    """Return the object that this advisor makes of a module, and the logged decisions."""
    flags = advisor.flags("inlining", scratch / "log", None)
    subprocess.run([clang, "-Oz", *flags, "-c", module, "-o", scratch / "m.o"], check=True)
    contexts = read_log(scratch / "log").contexts if advisor.logs else ()
    return (scratch / "m.o").read_bytes(), next((context for context in contexts if len(context)), None)


@pytest.mark.toolchain
def test_embeddings_are_those_of_llvms_own_advisor(toolchain: Path, policy: Path, tiny_corpus, tmp_path: Path) -> None:
    """The stock clang asks for decisions with LLVM's features, and gets ours: those of a policy that inlines at random,
    so that many embeddings are of functions that calls were inlined into."""
    compared = 0
    for module in sorted(tiny_corpus.directory.rglob("*.bc")):
        advisor = Advisor("policy", policy=policy, seed=1, log=True)
        ours, context = decisions(toolchain / "bin" / "clang", module, advisor, tmp_path)
        if context is None:
            continue
        channel = tmp_path / "channel"
        decided = context.columns[INLINING.policy.decision]
        channel.with_suffix(".in").write_bytes(decided.astype("<i8").tobytes())
        options = [
            *INLINING.llvm.release_options,
            f"{INLINING.llvm.channel_option}={channel}",
            f"-ml-inliner-ir2vec-vocab-file={toolchain / VOCABULARY}",
            f"-ir2vec-vocab-path={toolchain / VOCABULARY}",
        ]
        flags = [flag for option in options for flag in ("-mllvm", option)]
        subprocess.run([STOCK, "-Oz", *flags, "-c", module, "-o", tmp_path / "stock.o"], check=True)
        assert (tmp_path / "stock.o").read_bytes() == ours
        (sent,) = read_log(channel.with_suffix(".out")).contexts
        for name in ("callee_embedding", "caller_embedding"):
            assert context.columns[name].shape == (len(context), 75)
            np.testing.assert_allclose(context.columns[name], sent.columns[name], atol=1e-4, err_msg=module.name)
        compared += int(decided.sum())
    assert compared > 20


@pytest.mark.toolchain
def test_release_plugin_has_the_vocabulary_of_its_policy(
    toolchain: Path, policy: Path, tiny_corpus, tmp_path: Path
) -> None:
    make_toolchain(ToolchainConfig("release", tmp_path / "release", "plugin", 22, policies=(policy,)))
    assert load_toolchain(tmp_path / "release").built[DIGEST] == load_toolchain(toolchain).built[DIGEST]
    decided = set()
    for module in sorted(tiny_corpus.directory.rglob("*.bc")):
        trained, context = decisions(
            toolchain / "bin" / "clang", module, Advisor("policy", policy=policy, log=True), tmp_path
        )
        released, _ = decisions(tmp_path / "release" / "bin" / "clang", module, Advisor("release"), tmp_path)
        assert released == trained
        decided |= set(context.columns[INLINING.policy.decision].ravel().tolist()) if context else set()
    assert decided == {0, 1}


@pytest.mark.toolchain
@pytest.mark.parametrize("strategy", ["sdk", "plugin"])
def test_policy_with_embeddings_is_refused_in_llvm_19(policy: Path, strategy: Strategy, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="LLVM 19") as caught:
        make_toolchain(ToolchainConfig("release", tmp_path / "release", strategy, 19, policies=(policy,)))
    assert caught.value.remedy == "pass --strategy plugin --llvm-major 22"
    assert not (tmp_path / "release").exists()


def test_embeddings_need_a_plugin_for_llvm_22(tmp_path: Path) -> None:
    good = ToolchainConfig("training", tmp_path / "t", "plugin", 22, ir2vec_vocab=RANDOM)
    changes: tuple[dict[str, Any], ...] = ({"llvm_major": 19}, {"llvm_major": 19, "strategy": "sdk"})
    for change in changes:
        with pytest.raises(UserError, match=r"LLVM 19 .* has no IR2Vec embeddings") as caught:
            dataclasses.replace(good, **change)
        assert "--strategy plugin --llvm-major 22" in caught.value.remedy


def test_missing_vocabulary_is_reported_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.toolchain.make.build_plugin", lambda *_: pytest.fail("a plugin is built"))
    with pytest.raises(UserError, match="IR2Vec"):
        make_toolchain(ToolchainConfig("training", tmp_path / "t", "plugin", 22, ir2vec_vocab=tmp_path / "none.json"))
    assert not (tmp_path / "t").exists()
