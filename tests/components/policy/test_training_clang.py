"""The training clang runs an emitted policy: what it logs is what the arrays say of the features that it logs."""

import itertools

import numpy as np
import pytest

from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request
from components.formats.toolchain import load_toolchain
from components.policy.dense import DensePolicy
from components.policy.export import export_fast


@pytest.mark.slow
def test_logged_logits_and_decisions_are_those_of_the_policy(training_toolchain, tiny_corpus, tmp_path):
    toolchain = load_toolchain(training_toolchain)
    module = next(m for m in tiny_corpus.modules if m.name.startswith("lib/strings"))
    compiler = Compiler(toolchain.clang, "inlining")
    (heuristic,) = compiler(Request(module, Advisor("log"))).samples
    columns = heuristic.log.contexts[0].columns
    features = toolchain.features["inlining"]
    rng = np.random.default_rng(1)
    units = [3 * len(features), 64, 64, 32, 2]
    layers = [
        (rng.normal(0, np.sqrt(2 / a), (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(units)
    ]
    buckets = {f.name: np.sort(rng.choice(columns[f.name].reshape(-1), 1000)).astype(np.float64) for f in features}
    policy = DensePolicy("inlining", features, buckets, tuple(layers))
    centred = (layers[-1][0], -np.median(policy.logits(columns), axis=0).astype(np.float32))
    policy = DensePolicy("inlining", features, buckets, (*layers[:-1], centred))
    export_fast(policy, tmp_path, toolchain.clang)

    (sample,) = compiler(Request(module, Advisor("policy", policy=tmp_path, log=True))).samples
    logged = sample.log.contexts[0].columns
    logits = logged["CategoricalProjectionNetwork_logits"].reshape(-1, 2)
    assert len(logits) > 20
    np.testing.assert_allclose(logits, policy.logits(logged), atol=2e-5)
    decided = logged["inlining_decision"].reshape(-1)
    assert 0 < decided.sum() < len(decided)
    # Calls that must or must not be inlined are not the policy's to decide, so not all need to agree.
    assert np.mean(decided == logits.argmax(axis=1)) > 0.9
