"""The training clang runs a native policy: its logged logits are those of the arrays on the logged features."""

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.toolchain import load_toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from tests.support.samples import random_layers


@pytest.mark.toolchain
def test_logged_logits_and_decisions_are_those_of_the_policy(training_toolchain, tiny_corpus, tmp_path):
    toolchain = load_toolchain(training_toolchain)
    module = next(m for m in tiny_corpus.modules if m.name.startswith("lib/strings"))
    compiler = Compiler(toolchain.clang, "inlining")
    (heuristic,) = compiler(Request(module, Advisor("log"))).samples
    columns = heuristic.log.contexts[0].columns
    features = toolchain.features["inlining"]
    rng = np.random.default_rng(1)
    layers = random_layers([2 * len(features), 64, 64, 32, 2], rng, scaled=True)
    buckets = {f.name: np.sort(rng.choice(columns[f.name].reshape(-1), 1000)).astype(np.float64) for f in features}
    policy = DensePolicy("inlining", features, buckets, layers)
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
    # The policy does not decide calls that must or must not be inlined, so not all agree.
    assert np.mean(decided == logits.argmax(axis=1)) > 0.9


@pytest.mark.toolchain
def test_half_of_the_samples_decide_by_callee(training_toolchain, tiny_corpus, tmp_path):
    """With equal logits, an even seed decides calls of a function independently, an odd seed all of them alike."""
    toolchain = load_toolchain(training_toolchain)
    module = next(m for m in tiny_corpus.modules if m.name.startswith("lib/strings"))
    features = toolchain.features["inlining"]
    coin = ((np.zeros((2 * len(features), 2), np.float32), np.zeros(2, np.float32)),)
    buckets = {feature.name: np.arange(1000, dtype=np.float64) for feature in features}
    export_fast(DensePolicy("inlining", features, buckets, coin), tmp_path, toolchain.clang)
    compiler = Compiler(toolchain.clang, "inlining")
    request = Request(module, Advisor("policy", policy=tmp_path, seed=4, samples=4, log=True))
    mixed_shares = []
    for sample in compiler(request).samples:
        decided = sample.log.contexts[0].columns["inlining_decision"].reshape(-1)
        callees = sample.callsites.callee
        assert 0.2 < decided.mean() < 0.8
        repeated = [callee for callee in np.unique(callees) if (callees == callee).sum() > 2]
        assert len(repeated) > 5
        mixed_shares.append(np.mean([len(np.unique(decided[callees == callee])) == 2 for callee in repeated]))
    even, odd = mixed_shares[0::2], mixed_shares[1::2]
    assert min(even) > 0.5 and max(odd) == 0, mixed_shares
    again = compiler(request).samples
    assert [s.text_size_bytes for s in again] == [s.text_size_bytes for s in compiler(request).samples]
