"""The whole pipeline for another processor, with Debian's unmodified clang 22.

The clang loads the advisors and then the policy as a plugin. Code for riscv64 is trained on, compiled with the policy,
and run in QEMU.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from components.core.compiler.objects.elf import Elf
from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.end_to_end.chain import TINY, mlgo_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

TRIPLE = "riscv64-linux-gnu"
RISCV = 243
"""e_machine (RISC-V ELF psABI)."""
_SOURCE = """\
#include <cstdio>
#include <map>
#include <string>
int main(int argc, char **) {
  std::map<std::string, int> counts;
  for (const char *word : {"a", "b", "a", "c", "a"}) counts[word] += argc;
  for (const auto &[word, count] : counts) std::printf("%s %d\\n", word.c_str(), count);
}
"""
RELEASE = ["-mllvm", "-enable-ml-inliner=release"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("riscv64")
    recipe = directory / "recipe.yaml"
    document = yaml.safe_load(TINY.read_text())
    document["projects"] = [str(TINY.parent / name) for name in document["projects"]]
    recipe.write_text(yaml.safe_dump({**document, "target": {"triple": TRIPLE}}))
    mlgo_run(directory / "run", "--strategy", "plugin", "--llvm-major", "22", recipe=recipe)
    return directory / "run"


def test_policy_is_trained_and_measured_on_riscv64_with_clang_22(run: Path) -> None:
    policy = load_policy_info(run / "policy")
    assert policy.llvm_version.startswith("22.") and policy.trained_by != "warmstart"
    objects = [b"riscv64" in path.read_bytes() for path in sorted((run / "corpus").rglob("*.cmd"))]
    assert len(objects) == len(load_corpus(run / "corpus").modules) and all(objects)
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


def test_program_for_riscv64_does_what_the_stock_one_does(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "count.cc"
    source.write_text(_SOURCE)
    outputs, sizes = [], []
    for compiler, flags in (
        ("clang++-22", []),
        (str(run / "release/bin/clang++"), RELEASE),
    ):
        program = tmp_path / f"program{len(sizes)}"
        words = [compiler, f"--target={TRIPLE}", "-Oz", *flags, "-fuse-ld=lld", "-static", source, "-o", program]
        subprocess.run(list(map(str, words)), check=True)
        assert Elf(program.read_bytes()).machine == RISCV
        sizes.append(program.stat().st_size)
        outputs.append(subprocess.run(["qemu-riscv64-static", program], capture_output=True, check=True).stdout)
    assert outputs[0] == outputs[1] == b"a 3\nb 1\nc 1\n"
    assert sizes[0] != sizes[1]
