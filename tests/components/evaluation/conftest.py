"""What the tests of this step share: sizes of an invented corpus, and a small real corpus made by clang-19."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.evaluation.measurements import Excluded, Measurements
from components.formats.corpus import Corpus, load_corpus
from components.formats.splits import Splits, write_splits
from components.storage.manifest import write_manifest

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
"""File name -> source. The last is trained on, the rest is held out; all of "unknown" is."""


def measurements(**sizes: list[int]) -> Measurements:
    """Four modules; keyword arguments replace or add variants ("inline_threshold_5" is the sweep's 5)."""
    columns = {
        "baseline": [1000, 3000, 400, 600],
        "policy": [900, 3100, 380, 600],
        "warmstart": [1000, 3000, 400, 610],
        "inline_threshold_5": [1000, 3000, 400, 600],
        "inline_threshold_15": [990, 2950, 410, 600],
    } | sizes
    named = {name.replace("inline_threshold_", "inline-threshold="): np.array(c) for name, c in columns.items()}
    return Measurements(
        modules=("zstd/a.o", "zstd/b.o", "lz4/c.o", "snappy/<script>alert(1)</script>$x_{$.o"),
        projects=("zstd", "zstd", "lz4", "snappy"),
        unseen_project=np.array([False, False, False, True]),
        sizes=named,
        excluded=(Excluded("zstd/broken.o", "policy", "timeout", "no answer within 60 s <b>"),),
        compile_s={"baseline": 1.5},
    )


@pytest.fixture
def make_measurements() -> Callable[..., Measurements]:
    return measurements


@pytest.fixture
def measured() -> Measurements:
    return measurements()


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
