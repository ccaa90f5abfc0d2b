"""Cost of one decision of the generated C++ policy: a C++ loop over recorded decisions, for plain x86-64."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import read_columns
from components.core.policy.dense import read_dense
from components.core.policy.generated.codegen import POLICY_SOURCE, generate, word_offsets
from components.core.policy.generated.shared_object import COMPILE_FLAGS
from tests.bench.context import BenchContext

DRIVER = r"""
#include "policy.h"
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>
// CPU time of this thread, which excludes other processes on a shared machine.
static double cpu_us() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}
// Reads rows of eight-byte words, all features of a decision, from stdin and prints the microseconds a decision of each
// of `rounds` passes, and the sum of the decisions.
int main() {
  llvm::MODEL model;
  constexpr int features = FEATURES, rounds = ROUNDS, places[] = {PLACES}, words = places[features];
  std::vector<int64_t> rows;
  int64_t row[words];
  while (std::fread(row, sizeof row, 1, stdin) == 1)
    rows.insert(rows.end(), row, row + words);
  const size_t decisions = rows.size() / words;
  for (int round = 0; round < rounds; ++round) {
    long long decided = 0;
    const double start = cpu_us();
    for (size_t i = 0; i < decisions; ++i) {
      for (int f = 0; f < features; ++f)
        if (places[f + 1] - places[f] == 1) // LLVM stores a number, and calls nothing for that
          *static_cast<int64_t *>(model.arg_data(f)) = rows[i * words + places[f]];
        else
          std::memcpy(model.arg_data(f), &rows[i * words + places[f]], 8 * (places[f + 1] - places[f]));
      model.Run();
      decided += *static_cast<int64_t *>(model.result_data(0));
    }
    std::printf("%.4f %lld\n", (cpu_us() - start) / decisions, decided);
  }
}
"""

DECISIONS = 100_000
"""Maximum number of decisions, in the order in which the compiler made them."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """(regalloc_)emitted_policy_us_per_decision: CPU time of the final policy, median over passes, including the time
    to fill its buffers.

    emitted_policy_bytes: code and data of policy.cpp's object, as linked into a release clang.
    """
    toolchain, policy = load_toolchain(ctx.training), read_dense(ctx.policy)
    names = [feature.name for feature in policy.features]
    columns = {name: column[:DECISIONS] for name, column in read_columns(ctx.trace, names).items()}
    rows = np.concatenate([words(feature, columns[feature.name]) for feature in policy.features], axis=1)
    compiler = str(toolchain.directory / "bin" / "clang++")
    generate(policy, ctx.scratch)
    (ctx.scratch / "driver.cpp").write_text(DRIVER)
    macros = [
        f"-DFEATURES={len(names)}",
        f"-DROUNDS={max(ctx.repeats, 5)}",
        f"-DPLACES={','.join(map(str, word_offsets(policy.features)))}",
        f"-DMODEL={problems.get(policy.problem).llvm.model_class}",
    ]
    for source in (POLICY_SOURCE, "driver.cpp"):
        flags = [*COMPILE_FLAGS, *macros, "-march=x86-64", "-c", source]
        subprocess.run([compiler, *flags], cwd=ctx.scratch, check=True)
    subprocess.run([compiler, "driver.o", "policy.o", "-o", "driver"], cwd=ctx.scratch, check=True)
    done = subprocess.run([ctx.scratch / "driver"], input=rows.tobytes(), capture_output=True, check=True)
    passes = [line.split() for line in done.stdout.splitlines()]
    expected = int(policy.logits(columns).argmax(axis=1).sum())
    if any(abs(int(decided) - expected) > expected * 1e-3 for _, decided in passes):
        raise AssertionError(f"the loop's {len(rows)} decisions sum to {passes[0][1]!r}, the reference's to {expected}")
    return {
        ctx.key("emitted_policy_us_per_decision"): statistics.median(float(us) for us, _ in passes),
        ctx.key("emitted_policy_bytes"): size_bytes(ctx.scratch / "policy.o"),
    }


def words(feature: FeatureSpec, values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the values [N, ...] of a feature in the layout of the model's buffer, in whole words: int64 [N, W]."""
    flat = values.reshape(len(values), -1).astype(feature.numpy_dtype)
    padding = -flat.shape[1] * flat.itemsize % 8 // flat.itemsize
    return np.ascontiguousarray(np.pad(flat, ((0, 0), (0, padding)))).view(np.int64)


def size_bytes(path: Path) -> int:
    """Return the bytes of code and data of an object, as size(1) counts them."""
    listed = subprocess.run(["size", path], capture_output=True, text=True, check=True).stdout
    return int(listed.splitlines()[1].split()[3])
