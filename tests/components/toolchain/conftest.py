"""Random policies with the features that the training clang logs, and a release clang with one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.forced_decisions import Key, ordinals
from components.core.compiler.sample import Sample
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import Mode, Toolchain, load_toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.policy.generated.codegen import generate
from components.platform.storage import publish
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.support.samples import random_layers

PublishPolicy = Callable[..., Path]


def random_policy(features: tuple[FeatureSpec, ...], seed: int = 0) -> DensePolicy:
    """Return a policy with one hidden layer, random weights, and bucket boundaries on the scale of the features.

    It takes both decisions.
    """
    rng = np.random.default_rng(seed)
    buckets = {f.name: np.unique(rng.integers(-20, 300, 200)).astype(np.float64) for f in features}
    return DensePolicy("inlining", features, buckets, random_layers([2 * len(features), 16, 2], rng))


def random_upstream_policy(toolchain: Toolchain) -> DensePolicy:
    """Return a random policy of the features that LLVM's own advisor has."""
    upstream = set(toolchain.upstream_features["inlining"])
    return random_policy(tuple(spec for spec in toolchain.features["inlining"] if spec.name in upstream))


def decisions_by_key(sample: Sample) -> dict[Key, int]:
    """Return the action of each inlining decision of a compile."""
    calls = sample.callsites
    assert calls is not None and sample.log is not None
    (context,) = sample.log.contexts
    actions = context.columns["inlining_decision"].reshape(-1).tolist()
    keys = zip(calls.caller.tolist(), calls.callee.tolist(), ordinals(calls.caller, calls.callee).tolist(), strict=True)
    return {(calls.names[a], calls.names[b], k): action for (a, b, k), action in zip(keys, actions, strict=True)}


@pytest.fixture(scope="session")
def publish_policy(training_toolchain: Path) -> PublishPolicy:
    """Return a function that publishes a random policy as an artifact; by default with the features that clang logs."""
    toolchain = load_toolchain(training_toolchain)

    def make(output: Path, features: tuple[FeatureSpec, ...] | None = None) -> Path:
        dense = random_policy(features or toolchain.features["inlining"])
        with publish(output, "policy") as partial:
            if features is None:
                export_fast(dense, partial, toolchain.clang)
                dense.save(partial)
            else:
                generate(dense, partial)
            write_policy_info(partial, PolicyInfo("inlining", dense.features, 2, trained_by="warmstart"))
        return output

    return make


def _plugins(make_once, mode: Mode, policies: tuple[Path, ...] = ()) -> Callable[[int], Path]:
    def make(major: int) -> Path:
        def build(directory: Path) -> None:
            make_toolchain(ToolchainConfig(mode, directory / mode, "plugin", major, policies=policies))

        return make_once(f"{mode}-plugin-{major}", build) / mode

    return make


@pytest.fixture(scope="session")
def plugin_toolchain(make_once) -> Callable[[int], Path]:
    """Return a function that returns the training toolchain with the plugin for an LLVM major version."""
    return _plugins(make_once, "training")


@pytest.fixture(scope="session")
def policy(publish_policy: PublishPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_policy(tmp_path_factory.mktemp("policy") / "policy")


@pytest.fixture(scope="session")
def release_toolchain(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("toolchain") / "release"
    make_toolchain(ToolchainConfig("release", output, policies=(policy,)))
    return output


@pytest.fixture(scope="session")
def release_plugin(policy: Path, make_once) -> Callable[[int], Path]:
    """Return a function that returns the release toolchain with the plugin and `policy` for an LLVM major version."""
    return _plugins(make_once, "release", (policy,))
