"""Random policies with the features that the training clang logs, and a release clang with one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.policy.generated.codegen import generate
from components.platform.storage import publish
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain

PublishPolicy = Callable[..., Path]


def random_policy(features: tuple[FeatureSpec, ...], seed: int = 0) -> DensePolicy:
    """Return a policy with one hidden layer, random weights, and bucket boundaries on the scale of the features.

    It takes both decisions.
    """
    rng = np.random.default_rng(seed)
    buckets = {f.name: np.unique(rng.integers(-20, 300, 200)).astype(np.float64) for f in features}
    units = [2 * len(features), 16, 2]
    layers = tuple(
        (rng.normal(size=(a, b)).astype(np.float32), np.zeros(b, np.float32)) for a, b in itertools.pairwise(units)
    )
    return DensePolicy("inlining", features, buckets, layers)


def random_upstream_policy(toolchain: Toolchain) -> DensePolicy:
    """Return a random policy of the features that LLVM's own advisor has."""
    upstream = set(toolchain.upstream_features["inlining"])
    return random_policy(tuple(spec for spec in toolchain.features["inlining"] if spec.name in upstream))


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


@pytest.fixture(scope="session")
def plugin_toolchain(make_once) -> Callable[[int], Path]:
    """Return a function that returns the training toolchain with the plugin for an LLVM major version."""

    def make(major: int) -> Path:
        def build(directory: Path) -> None:
            make_toolchain(ToolchainConfig("training", directory / "training", "plugin", major))

        return make_once(f"plugin-{major}", build) / "training"

    return make


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

    def make(major: int) -> Path:
        def build(directory: Path) -> None:
            make_toolchain(ToolchainConfig("release", directory / "release", "plugin", major, policies=(policy,)))

        return make_once(f"release-plugin-{major}", build) / "release"

    return make
