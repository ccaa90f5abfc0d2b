"""The whole pipeline with Debian's unmodified clang 22, which loads the advisors and then the policy as a plugin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.end_to_end.chain import mlgo_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

RELEASE = ["-mllvm", "-enable-ml-inliner=release"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plugin") / "run"
    mlgo_run(directory, "--strategy", "plugin", "--llvm-major", "22")
    return directory


def test_policy_is_trained_and_measured_with_clang_22(run: Path) -> None:
    assert load_policy_info(run / "policy").llvm_version.startswith("22.")
    assert load_toolchain(run / "release").built["strategy"] == "plugin"
    metrics = json.loads((run / "release_report" / "metrics.json").read_text())
    judged = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert metrics["as_under_the_training_clang"] == metrics["modules"] == judged["modules"] > 0
    assert metrics["policy_bytes"] != metrics["baseline_bytes"]
    assert metrics["linked"]["default"]["all"]["files"] > 0, "programs are built by clang 22 with the plugin"


def test_stock_clang_22_compiles_with_the_trained_policy(run: Path, tmp_path: Path) -> None:
    plugin = run / "release" / "lib" / "mlgo-inliner.so"
    module = next(path for path in sorted((run / "corpus").rglob("*.cpp.o.bc")))
    sizes = []
    for flags in ([], [f"-fpass-plugin={plugin}", *RELEASE]):
        command = ["/usr/lib/llvm-22/bin/clang", "-Oz", *flags, "-c", str(module), "-o", str(tmp_path / "m.o")]
        subprocess.run(command, check=True)
        sizes.append((tmp_path / "m.o").read_bytes())
    assert sizes[0] != sizes[1]


def test_policy_of_llvm_22_works_in_a_release_clang_19(run: Path, tmp_path: Path) -> None:
    """The two versions have the same features, so a policy fits both."""
    make_toolchain(ToolchainConfig("release", tmp_path / "release", policies=(run / "policy",)))
    source = tmp_path / "m.cc"
    source.write_text("#include <map>\nint find(std::map<int, int> &m, int k) { return m[k] + m.at(k + 1); }\n")
    command: list[str | Path] = [tmp_path / "release/bin/clang++", "-Oz", *RELEASE, "-c", source]
    command += ["-o", tmp_path / "m.o"]
    subprocess.run(command, check=True)
