"""Tests of the whole pipeline for register allocation: a clang with both policies, and measured programs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from components.core.formats.toolchain import load_toolchain
from components.platform.storage import digest
from tests.end_to_end.chain import RECIPES, mlgo_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

SOURCE = """
int callee(int x) { return x < 0 ? -x * 3 : x + 1; }
int wants_many(const int *in, int *out, int n) {
  int a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7], i = in[8], j = in[9];
  int k = in[10], l = in[11], m = in[12], o = in[13], p = in[14], q = in[15], r = in[16], s = in[17];
  for (int x = 0; x < n; ++x) {
    a += b * c, b ^= d + e, c -= f * g, d += h ^ i, e *= j + k, f += l * m, g -= o ^ p, h += q * r, i ^= s + a;
    j += b * x, k -= c, l ^= d * x, m += e, o *= f, p ^= g + x, q += h, r -= i * x, s ^= callee(j);
  }
  return a + b + c + d + e + f - g * h + i - j + k - l + m + o - p + q - r + s + out[0];
}
"""


_LOOPS = re.compile(r"\b(?:400000|40000|30000|24000)\b")
"""Numbers that make the programs of lua.yaml take long."""


def smaller_inputs(directory: Path) -> Path:
    """Return the recipe codecs with double-conversion to train on, and with an eighth of its inputs.

    The modules of zstd and brotli take long to build, to trace and to compile in training. callgrind counts
    instructions slowly.
    """
    codecs = yaml.safe_load((RECIPES / "codecs.yaml").read_text())
    smaller = {}
    for name in ("lz4.yaml", "lua.yaml"):
        smaller[name] = yaml.safe_load((RECIPES / name).read_text())
        for generated in (benchmark["input"] for benchmark in smaller[name]["benchmarks"]):
            if "bytes" in generated:
                generated["bytes"] //= 8
            elif "text" in generated:
                generated["text"], changes = _LOOPS.subn(lambda number: str(int(number[0]) // 8), generated["text"])
                assert changes
    codecs["projects"] = [str(RECIPES / "double-conversion.yaml"), *smaller.values()]
    path = directory / "codecs.yaml"
    path.write_text(yaml.safe_dump(codecs))
    return path


@pytest.fixture(scope="module")
def both(finished: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a run whose release clang embeds its own policy and the inlining run's, and the output of the run."""
    directory = tmp_path_factory.mktemp("regalloc")
    run = directory / "run"
    inlining = finished[0] / "policy"
    return run, mlgo_run(
        run, "--problem", "regalloc", "--extra-policy", str(inlining), recipe=smaller_inputs(directory)
    )


def test_release_clang_embeds_and_uses_both_policies(
    both: tuple[Path, str], finished: tuple[Path, str], tmp_path: Path
) -> None:
    run, _output = both
    release = load_toolchain(run / "release")
    assert release.built["policies"] == {
        "inlining": digest(finished[0] / "policy"),
        "regalloc": digest(run / "release_policy"),
    }
    (tmp_path / "s.c").write_text(SOURCE)
    for level, flag in (("-Oz", "-enable-ml-inliner=release"), ("-O2", "-regalloc-enable-advisor=release")):
        words: list[str | Path] = [release.clang, level, "-mllvm", flag, "-c", "s.c", "-o", "s.o"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", done.stderr  # LLVM reports a missing model on stderr


def test_scores_and_executed_instructions_are_reported(both: tuple[Path, str]) -> None:
    run, output = both
    metrics = json.loads((run / "release_report" / "metrics.json").read_text())
    enough = metrics["programs"]["reduction_percent"] >= 0 and metrics["reduction_percent"] >= 0.1
    assert metrics["problem"] == "regalloc" and (metrics["verdict"] != "not better") == enough
    with (run / "release_report" / "report.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) > 20 and len({row["identifier"] for row in rows}) > 20
    programs = metrics["programs"]["programs"]
    assert {entry["project"] for entry in programs} == {"lz4", "lua"}
    assert all(min(entry[side]["instructions"] for side in ("stock", "policy")) > 1e7 for entry in programs)
    assert any(entry["stock"]["instructions"] != entry["policy"]["instructions"] for entry in programs)
    table = output[output.rindex("all held-out") :]
    assert "lz4" in table and str(run / "release") in table
