"""The pipeline for another processor: code for riscv64 is trained on, compiled with the policy, and run in QEMU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from components.core.compiler.elf import Elf
from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info
from tests.end_to_end.chain import TINY, mlgo_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("riscv64")
    recipe = directory / "recipe.yaml"
    document = yaml.safe_load(TINY.read_text())
    document["projects"] = [str(TINY.parent / name) for name in document["projects"]]
    recipe.write_text(yaml.safe_dump({**document, "target": {"triple": TRIPLE}}))
    # Not from a trained policy: a few seconds need not gain anything over it, and then no release clang is built.
    mlgo_run(directory / "run", "--strategy", "plugin", recipe=recipe)
    return directory / "run"


def test_policy_is_trained_and_measured_on_riscv64(run: Path) -> None:
    assert load_policy_info(run / "policy").trained_by != "warmstart"
    objects = [b"riscv64" in path.read_bytes() for path in sorted((run / "corpus").rglob("*.cmd"))]
    assert len(objects) == len(load_corpus(run / "corpus").modules) and all(objects)
    metrics = json.loads((run / "release_report" / "metrics.json").read_text())
    assert metrics["as_under_the_training_clang"] == metrics["modules"] > 0
    assert metrics["policy_bytes"] != metrics["baseline_bytes"]


def test_program_for_riscv64_does_what_the_stock_one_does(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "count.cc"
    source.write_text(_SOURCE)
    outputs, sizes = [], []
    for compiler, flags in (
        ("clang++-19", []),
        (str(run / "release/bin/clang++"), ["-mllvm", "-enable-ml-inliner=release"]),
    ):
        program = tmp_path / f"program{len(sizes)}"
        words = [compiler, f"--target={TRIPLE}", "-Oz", *flags, "-fuse-ld=lld", "-static", source, "-o", program]
        subprocess.run(list(map(str, words)), check=True)
        assert Elf(program.read_bytes()).machine == RISCV
        sizes.append(program.stat().st_size)
        outputs.append(subprocess.run(["qemu-riscv64-static", program], capture_output=True, check=True).stdout)
    assert outputs[0] == outputs[1] == b"a 3\nb 1\nc 1\n"
    assert sizes[0] != sizes[1]
