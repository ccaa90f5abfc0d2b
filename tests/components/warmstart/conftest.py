"""A trace whose decisions follow a rule, its vocab, and a toolchain directory around an installed clang."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.embeddings import DIGEST, VOCABULARY
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.core.formats.vocab import write_vocab
from components.platform.storage import write_manifest

FEATURES = tuple(FeatureSpec(name, "int64") for name in ("cost", "threshold", "blocks", "always_zero"))
TENSORS = tuple(FeatureSpec(name, "float32", (3,)) for name in ("callee_embedding", "caller_embedding"))
VOCABULARY_CONTENT = b"{}"
MODULES, DECISIONS = 20, 300


def columns(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "cost": rng.integers(-200, 200, DECISIONS),
        "threshold": rng.choice([5, 30, 50], DECISIONS),
        "blocks": rng.exponential(4, DECISIONS).astype(np.int64),
        "always_zero": np.zeros(DECISIONS, np.int64),
        **{f.name: rng.normal(size=(DECISIONS, *f.shape)).astype(np.float32) for f in TENSORS},
    }


def _make_toolchain(directory: Path, features: tuple[FeatureSpec, ...]) -> None:
    """The real clang-19 under the name it has in a toolchain; cloning only needs it to compile policies."""
    program = shutil.which("clang-19")
    assert program, "install clang-19"
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "clang").symlink_to(Path(program).resolve())
    description = {
        "version": 1,
        "mode": "training",
        "llvm_version": "19.1.7",
        "triple": "x86_64-pc-linux-gnu",
        "features": {"inlining": [f.to_json() for f in features]},
        "built": {DIGEST: hashlib.sha256(VOCABULARY_CONTENT).hexdigest()},
    }
    (directory / VOCABULARY).write_bytes(VOCABULARY_CONTENT)
    (directory / "toolchain.json").write_text(json.dumps(description))
    write_manifest(directory)


@pytest.fixture(scope="session")
def make_toolchain() -> Callable[[Path, tuple[FeatureSpec, ...]], None]:
    return _make_toolchain


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories "trace", "vocab" and "toolchain": inlined is what costs less than its threshold."""
    root = tmp_path_factory.mktemp("inputs")
    directories = {name: root / name for name in ("trace", "vocab", "toolchain")}
    for name in ("trace", "vocab"):
        directories[name].mkdir()
    rng = np.random.default_rng(0)
    writer = TraceWriter(directories["trace"], "inlining", "inlining_decision", (*FEATURES, *TENSORS))
    zeros = np.zeros(DECISIONS, np.int32)
    everything = []
    for i in range(MODULES):
        values = columns(rng)
        everything.append(values)
        action = (values["cost"] < values["threshold"]).astype(np.int64)
        writer.add(ModuleTrace(f"p/m{i}", 1, 0.0, [""], zeros, zeros, ["f"], zeros, zeros, values, action))
    writer.close("corpus digest", "")
    write_manifest(directories["trace"])
    levels = (np.arange(1000) + 0.5) / 1000
    quantiles = {f.name: np.quantile(np.concatenate([v[f.name] for v in everything]), levels) for f in FEATURES}
    write_vocab(directories["vocab"], {name: np.floor(values) for name, values in quantiles.items()})
    write_manifest(directories["vocab"])
    _make_toolchain(directories["toolchain"], (*FEATURES, *TENSORS))
    return directories
