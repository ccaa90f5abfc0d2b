"""A tiny corpus, its trace and an untrained policy, and trainings of it that take seconds."""

import itertools
import os

import numpy as np
import pytest

from components.core.formats.splits import Splits, write_splits
from components.core.formats.toolchain import load_toolchain
from components.core.formats.vocab import load_vocab
from components.core.policy.dense import DensePolicy
from components.platform.storage import write_manifest
from tests.components.ppo.runs import ITERATIONS, LEARNING, step, train

CPP = """#include <map>
#include <string>
#include <vector>
static std::map<std::string, std::vector<int>> store;
void add{i}(const std::string &key, int value) {{ store[key].push_back(value + {i}); }}
int sum{i}(const std::string &key) {{ int s = {i}; for (int v : store[key]) s += v; return s; }}
"""


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory, make_corpus, training_toolchain):
    """Corpus, trace and an untrained policy: the arguments that every run of the step shares."""
    root = tmp_path_factory.mktemp("ppo")
    names = [f"app/m{i}.cpp" for i in range(4)]
    corpus = make_corpus(root / "corpus", {name: CPP.format(i=i) for i, name in enumerate(names)})
    modules = tuple(module.name for module in corpus)
    write_splits(corpus.directory, Splits(0, modules[:3], modules[3:], ()))
    write_manifest(corpus.directory)
    # Relative, as a user types it, though the compiles run in other directories.
    step(
        "trace",
        "--corpus",
        os.path.relpath(corpus.directory),
        "--toolchain",
        os.path.relpath(training_toolchain),
        "--output",
        root / "trace",
    )
    step("vocab", "--trace", root / "trace", "--output", root / "vocab")
    vocab = load_vocab(root / "vocab")
    features = tuple(f for f in load_toolchain(training_toolchain).features["inlining"] if f.name in vocab)
    random, sizes = np.random.default_rng(0), [2 * len(features), 64, 64, 32, 2]
    layers = tuple(
        (random.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(sizes)
    )
    (root / "start").mkdir()
    DensePolicy("inlining", features, vocab, layers).save(root / "start")
    return [
        "--corpus",
        corpus.directory,
        "--toolchain",
        training_toolchain,
        "--trace",
        root / "trace",
        "--warmstart",
        root / "start",
        "--iterations",
        ITERATIONS,
        "--modules",
        2,
        "--samples",
        3,
        "--validate-every",
        2,
        "--workers",
        "local:2",
        "--seed",
        5,
    ]


@pytest.fixture(scope="session", params=["dqn", "ppo"])
def inputs(request, artifacts):
    """Arguments of a training. Tests of what has nothing to do with how it learns take one of LEARNING."""
    return [*artifacts, *LEARNING[request.param]]


@pytest.fixture(scope="session")
def first(inputs, tmp_path_factory):
    where = tmp_path_factory.mktemp("first")
    return where, train(inputs, where)
