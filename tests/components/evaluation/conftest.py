"""Fixtures: sizes and scores of an artificial corpus, and a small real corpus made by clang-19."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.formats.corpus import Corpus, load_corpus
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.splits import Splits, write_splits
from components.core.formats.toolchain import load_toolchain
from components.core.objectives import SCORE, SIZE
from components.core.objectives.geometric_mean import FLOOR
from components.core.policy.dense import DensePolicy, Layer
from components.core.policy.export import export_fast
from components.evaluation.measurements import Measurements
from components.evaluation.metrics_types import Excluded
from components.platform.storage import publish
from components.platform.storage.manifest import write_manifest

SOURCES = {
    "known/words.cpp": """
        #include <map>
        #include <string>
        #include <vector>
        std::map<std::string, int> count(const std::vector<std::string> &words) {
          std::map<std::string, int> counts;
          for (const auto &word : words) ++counts[word + "/" + word.substr(0, 2)];
          return counts;
        }
    """,
    "known/sorted.cpp": """
        #include <algorithm>
        #include <string>
        #include <vector>
        void order(std::vector<std::string> &words, std::vector<double> &numbers) {
          std::sort(words.begin(), words.end());
          std::stable_sort(numbers.begin(), numbers.end());
        }
    """,
    "unknown/stack.cpp": """
        #include <deque>
        #include <memory>
        struct Node { std::unique_ptr<Node> next; int value; };
        int drain(std::deque<Node> &nodes, int limit) {
          int sum = 0;
          while (!nodes.empty() && sum < limit) { sum += nodes.front().value; nodes.pop_front(); }
          return sum;
        }
        void push(std::deque<Node> &nodes, int value) { nodes.push_back({nullptr, value}); nodes.emplace_back(); }
    """,
    "known/trained.cpp": "int trained(int x) { return x + 1; }",
}
"""File name -> source. The last module is for training, the others are held out, with the whole project "unknown"."""


def sections(sizes: np.ndarray) -> dict[str, np.ndarray]:
    """Sizes by section: a tenth each in .rodata and .eh_frame, no exception tables, the rest is code."""
    tenth = sizes // 10
    return {".text": sizes - 2 * tenth, ".rodata": tenth, ".eh_frame": tenth, ".gcc_except_table": 0 * tenth}


def measurements(**sizes: list[int]) -> Measurements:
    """Four modules; keyword arguments replace or add variants ("inline_threshold_5" for -inline-threshold=5)."""
    columns = {
        "baseline": [1000, 3000, 400, 600],
        "policy": [900, 3100, 380, 600],
        "warmstart": [1000, 3000, 400, 610],
        "inline_threshold_5": [1000, 3000, 400, 600],
        "inline_threshold_15": [990, 2950, 410, 600],
    } | sizes
    values = {name.replace("inline_threshold_", "inline-threshold="): np.array(c) for name, c in columns.items()}
    return Measurements(
        objective=SIZE,
        modules=("zstd/a.o", "zstd/b.o", "lz4/c.o", "snappy/<script>alert(1)</script>$x_{$.o"),
        projects=("zstd", "zstd", "lz4", "snappy"),
        unseen_project=np.array([False, False, False, True]),
        values=values,
        languages=("c", "c", "c", "c++"),
        sections={variant: sections(values[variant]) for variant in ("baseline", "policy")},
        excluded=(Excluded("zstd/broken.o", "policy", "timeout", "no answer within 60 s <b>"),),
        compile_s={"baseline": 1.5},
    )


@pytest.fixture
def make_measurements() -> Callable[..., Measurements]:
    return measurements


@pytest.fixture
def measured() -> Measurements:
    return measurements()


@pytest.fixture
def shown() -> Measurements:
    """0.40% smaller as `measured`, but each module by about as much, so that a gain on other modules is shown."""
    return measurements(policy=[996, 2988, 398, 598])


def scores(**variants: Any) -> Measurements:
    """Four modules, one without functions, and five functions; keyword arguments replace or add variants.

    With FLOOR added, the policy halves, keeps, doubles, quarters and keeps the scores."""
    columns = {
        "baseline": np.array([20, 100, 10, 100, 60]) - FLOOR,
        "policy": np.array([10, 100, 20, 25, 60]) - FLOOR,
        "warmstart": np.array([20, 100, 10, 100, 60]) - FLOOR,
    } | variants
    return Measurements(
        objective=SCORE,
        modules=("zstd/a.o", "zstd/leaf.o", "lz4/b.o", "snappy/<b>c.o"),
        projects=("zstd", "zstd", "lz4", "snappy"),
        unseen_project=np.array([False, False, False, True]),
        functions=("mix", "calls", "mix", "_ZN<script>$x_{$E", "fold"),
        module=np.array([0, 0, 2, 3, 3]),
        values={name: np.array(column, dtype=np.float64) for name, column in columns.items()},
        excluded=(Excluded("zstd/broken.o", "policy", "timeout", "no answer within 60 s <b>"),),
        compile_s={"baseline": 1.5},
    )


@pytest.fixture
def make_scores() -> Callable[..., Measurements]:
    return scores


@pytest.fixture
def scored() -> Measurements:
    return scores()


@pytest.fixture
def shown_scores() -> Measurements:
    """24.21% lower as `scored`, but each function by as much, so that a gain on other modules is shown."""
    return scores(policy=np.array([20, 100, 10, 100, 60]) * 0.25 ** (1 / 5) - FLOOR)


@pytest.fixture(scope="session")
def corpus_directory(
    tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[[Path, dict[str, str]], Corpus]
) -> Path:
    directory = tmp_path_factory.mktemp("evaluation") / "corpus"
    names = [module.name for module in make_corpus(directory, SOURCES).modules]
    write_splits(directory, Splits(0, tuple(names[-1:]), (), tuple(names[:-1]), ("unknown",)))
    write_manifest(directory)
    return directory


@pytest.fixture
def corpus(corpus_directory: Path) -> Corpus:
    return load_corpus(corpus_directory)


def write_policy(output: Path, toolchain: Path, inlines: bool) -> Path:
    """Write a policy that always or never inlines: the last layer's biases decide, all other weights are zero."""
    layers = zeros(2 * len(load_toolchain(toolchain).features["inlining"]), 4, 2)
    layers[-1][1][1 if inlines else 0] = 1.0
    return write_layers(output, toolchain, "inlining", layers)


def write_evicting_policy(output: Path, toolchain: Path, heaviest: bool) -> Path:
    """Write a policy that evicts the register with the highest or lowest use_def_density, by that feature's rank."""
    names = [feature.name for feature in load_toolchain(toolchain).features["regalloc"] if feature.name != "mask"]
    layers = zeros(4 * len(names), 4, 1)  # the last quarter of the inputs are the action_ranks, see feature_encoding.py
    layers[0][0][3 * len(names) + names.index("use_def_density"), 0] = 1.0
    layers[1][0][0, 0] = 1.0 if heaviest else -1.0
    return write_layers(output, toolchain, "regalloc", layers)


def zeros(*widths: int) -> list[Layer]:
    return [(np.zeros(shape, np.float32), np.zeros(shape[1], np.float32)) for shape in pairwise(widths)]


def write_layers(output: Path, toolchain: Path, problem: str, layers: Sequence[Layer]) -> Path:
    """Write a policy artifact with these layers."""
    training = load_toolchain(toolchain)
    features = training.features[problem]
    buckets = {feature.name: np.linspace(0, 1000, 1000) for feature in features}
    dense = DensePolicy(problem, features, buckets, tuple(layers))
    with publish(output, "policy") as directory:
        export_fast(dense, directory, training.clang)
        dense.save(directory)
        info = PolicyInfo(problem, features, dense.num_actions, "ppo", llvm_version=training.llvm_version)
        write_policy_info(directory, info)
    return output


@pytest.fixture(scope="session")
def never(tmp_path_factory: pytest.TempPathFactory, training_toolchain: Path) -> Path:
    return write_policy(tmp_path_factory.mktemp("policies") / "never", training_toolchain, inlines=False)


@pytest.fixture(scope="session")
def always(tmp_path_factory: pytest.TempPathFactory, training_toolchain: Path) -> Path:
    return write_policy(tmp_path_factory.mktemp("policies") / "always", training_toolchain, inlines=True)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory, never: Path) -> Path:
    output = tmp_path_factory.mktemp("toolchain") / "release"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "release", "--policy", str(never)]
    subprocess.run([*command, "--output", str(output)], check=True)
    return output
