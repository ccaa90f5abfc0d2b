"""A tiny corpus, its trace and an untrained policy, and trainings of it that take seconds."""

import os

import pytest

from components.core.formats.splits import Splits, write_splits
from components.core.formats.toolchain import load_toolchain
from components.platform.storage import write_manifest
from tests.components.ppo.runs import ITERATIONS, LEARNING, SMALL, command_line, step, train, write_start_policy

CPP = """#include <map>
#include <string>
#include <vector>
static std::map<std::string, std::vector<int>> store;
void add{i}(const std::string &key, int value) {{ store[key].push_back(value + {i}); }}
int sum{i}(const std::string &key) {{ int s = {i}; for (int v : store[key]) s += v; return s; }}
"""


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory, make_corpus, training_toolchain):
    """Corpus, trace and an untrained policy: the options that every run of the step shares."""
    root = tmp_path_factory.mktemp("ppo")
    names = [f"app/m{i}.cpp" for i in range(4)]
    corpus = make_corpus(root / "corpus", {name: CPP.format(i=i) for i, name in enumerate(names)})
    modules = tuple(module.name for module in corpus)
    write_splits(corpus.directory, Splits(0, modules[:3], modules[3:], ()))
    write_manifest(corpus.directory)
    # Relative, as a user types it, though the compiles run in other directories.
    inputs = {"corpus": os.path.relpath(corpus.directory), "toolchain": os.path.relpath(training_toolchain)}
    step("trace", *command_line(inputs | {"output": root / "trace"}))
    step("vocab", "--trace", root / "trace", "--output", root / "vocab")
    write_start_policy(root / "start", root / "vocab", load_toolchain(training_toolchain).features["inlining"])
    made = {"corpus": corpus.directory, "toolchain": training_toolchain, "trace": root / "trace"}
    return {**made, "warmstart": root / "start", "iterations": ITERATIONS, **SMALL}


@pytest.fixture(scope="session", params=["dqn", "ppo"])
def inputs(request, artifacts):
    """Arguments of a training. Tests of what has nothing to do with how it learns take one of LEARNING."""
    return [*command_line(artifacts), *LEARNING[request.param]]


@pytest.fixture(scope="session")
def first(inputs, tmp_path_factory):
    where = tmp_path_factory.mktemp("first")
    return where, train(inputs, where)
