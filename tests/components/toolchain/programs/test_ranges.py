"""Outside of the ranges that a policy was trained in, the clangs take the heuristic's decisions (-mlgo-ranges)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.policy.export import export_fast
from components.core.policy.generated.codegen import Training
from components.platform.storage import publish
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.components.toolchain.conftest import random_policy

pytestmark = pytest.mark.toolchain

# Of these calls the heuristic inlines only that of `once`.
SOURCE = """\
extern int sink(int);
static int twice(int x) { return sink(x) + sink(x + 1); }
static int branches(int x) { if (x > 3) { sink(x); sink(x * 5); } return x < 0 ? sink(-x) : sink(x + 7); }
static int once(int x) { for (int i = 0; i < x; ++i) sink(i + x); return sink(x ^ 5); }
int shared(int x) { for (int i = 0; i < x; ++i) sink(i * x); return sink(x ^ 3); }
int one(int x) { return twice(x) + branches(x) + shared(x) + once(x); }
int two(int x) { return twice(x + 9) * branches(x + 1) - shared(x + 2) + one(x); }
int three(int x) { return twice(x - 5) + branches(x * 2) + shared(two(x)) + one(x - 1); }
"""
ON, OFF = ("-mllvm", "-mlgo-ranges=1"), ("-mllvm", "-mlgo-ranges=0")
NO_OUTLINING = ("-mllvm", "-mlgo-outline=0")
"""The release clang outlines by default, the training clang does not."""

Compile = Callable[..., bytes]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    source = tmp_path / "calls.c"
    source.write_text(SOURCE)

    def run(toolchain: Path, advisor: Advisor, *options: str) -> bytes:
        output = tmp_path / "calls.o"
        flags = advisor.flags("inlining", None, None)
        command: list[str | Path] = [toolchain / "bin" / "clang", "-Oz", *flags, *options, *NO_OUTLINING]
        command += ["-c", source, "-o", output]
        subprocess.run(command, check=True)
        return output.read_bytes()

    return run


@pytest.fixture
def trained(training_toolchain: Path, tmp_path: Path) -> Callable[[Training], Path]:
    """Return a function that publishes a policy with these ranges that inlines every call."""
    toolchain = load_toolchain(training_toolchain)

    def make(training: Training) -> Path:
        dense = random_policy(toolchain.features["inlining"])
        first, (weights, _) = dense.layers
        dense = replace(dense, layers=(first, (np.zeros_like(weights), np.array([0, 1], np.float32))))
        with publish(tmp_path / "policy", "policy") as partial:
            export_fast(dense, partial, toolchain.clang, training=training)
            dense.save(partial)
            ranges, tables = training.ranges, training.unwind_tables or None
            info = PolicyInfo("inlining", dense.features, 2, "ppo", trained_ranges=ranges, unwind_tables=tables)
            write_policy_info(partial, info)
        return tmp_path / "policy"

    return make


@pytest.mark.parametrize("size", [(0, 1), (100, 200)])
def test_heuristic_decides_in_modules_of_other_sizes(
    training_toolchain: Path, trained: Callable[[Training], Path], compiled: Compile, size: tuple[int, int]
) -> None:
    policy = Advisor("policy", policy=trained(Training({"node_count": size})))
    heuristic = compiled(training_toolchain, Advisor("default"))
    assert compiled(training_toolchain, policy, *ON) == heuristic
    assert compiled(training_toolchain, policy) == compiled(training_toolchain, policy, *OFF) != heuristic


def test_policy_decides_within_its_ranges(
    training_toolchain: Path, trained: Callable[[Training], Path], compiled: Compile
) -> None:
    """Ranges of features that a compiler does not have do not count."""
    policy = Advisor("policy", policy=trained(Training({"node_count": (0, 100), "of_another_compiler": (5, 6)}, True)))
    inside = compiled(training_toolchain, policy, *ON)
    assert inside == compiled(training_toolchain, policy) != compiled(training_toolchain, Advisor("default"))


def test_heuristic_decides_without_unwind_tables(
    training_toolchain: Path, trained: Callable[[Training], Path], compiled: Compile
) -> None:
    policy = Advisor("policy", policy=trained(Training(unwind_tables=True)))
    without = ("-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
    heuristic = compiled(training_toolchain, Advisor("default"), *without)
    assert compiled(training_toolchain, policy, *without, *ON) == heuristic
    assert compiled(training_toolchain, policy, *without, *OFF) != heuristic


def test_release_clang_decides_like_the_training_clang_with_ranges(
    training_toolchain: Path, trained: Callable[[Training], Path], compiled: Compile, tmp_path: Path
) -> None:
    """By default with the ranges; the policy decides about callees of one block, the heuristic about others."""
    policy = trained(Training({"callee_basic_block_count": (1, 1)}, True))
    release = tmp_path / "release"
    make_toolchain(ToolchainConfig("release", release, policies=(policy,)))
    outcomes = {
        options: compiled(training_toolchain, Advisor("policy", policy=policy), *options) for options in (ON, OFF)
    }
    for options, expected in (((), outcomes[ON]), (ON, outcomes[ON]), (OFF, outcomes[OFF])):
        assert compiled(release, Advisor("release"), *options) == expected
    heuristic = compiled(training_toolchain, Advisor("default"))
    assert len({heuristic, *outcomes.values()}) == 3
    flags = [*Advisor("release").flags("inlining", None, None), "-Rpass-analysis=inline-ml"]
    command: list[str | Path] = [
        release / "bin" / "clang",
        "-Oz",
        *flags,
        "-c",
        tmp_path / "calls.c",
        "-o",
        tmp_path / "remarks.o",
    ]
    remarks = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "callee_basic_block_count" in remarks
