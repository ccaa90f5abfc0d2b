"""What one decision of the emitted policy costs: a loop in C++ over recorded decisions, for plain x86-64."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

import numpy as np

from components.formats.toolchain import load_toolchain
from components.formats.trace import read_columns
from components.policy.dense import read_dense
from components.policy.emit import POLICY_SOURCE, emit
from components.policy.shared_object import COMPILE_FLAGS
from tests.bench.context import BenchContext

DRIVER = r"""
#include "policy.h"
#include <cstdio>
#include <ctime>
#include <vector>
// Time of this thread on a processor: what others run meanwhile on a shared machine is not the policy's.
static double cpu_us() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}
// Reads rows of int64 features from stdin and prints the microseconds a decision of each of `rounds` passes.
int main() {
  llvm::InlinerSizeModel model;
  constexpr int features = FEATURES, rounds = ROUNDS;
  std::vector<int64_t> rows;
  int64_t row[features];
  while (std::fread(row, sizeof row, 1, stdin) == 1)
    rows.insert(rows.end(), row, row + features);
  const size_t decisions = rows.size() / features;
  for (int round = 0; round < rounds; ++round) {
    long long inlined = 0;
    const double start = cpu_us();
    for (size_t i = 0; i < decisions; ++i) {
      for (int f = 0; f < features; ++f)
        *static_cast<int64_t *>(model.arg_data(f)) = rows[i * features + f];
      model.Run();
      inlined += *static_cast<int64_t *>(model.result_data(0));
    }
    std::printf("%.4f %lld\n", (cpu_us() - start) / decisions, inlined);
  }
}
"""

DECISIONS = 100_000
"""At most so many, in the order in which the compiler made them."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """emitted_policy_us_per_decision: CPU time, median over passes, of the final policy; filling its buffers included.

    emitted_policy_bytes: code and data of policy.cpp's object, as it goes into a release clang.
    """
    toolchain, policy = load_toolchain(ctx.training), read_dense(ctx.policy)
    names = [feature.name for feature in policy.features]
    columns = read_columns(ctx.trace, names)
    rows = np.stack([columns[name].reshape(-1) for name in names], axis=1).astype(np.int64)[:DECISIONS]
    compiler = str(toolchain.directory / "bin" / "clang++")
    emit(policy, ctx.scratch)
    (ctx.scratch / "driver.cpp").write_text(DRIVER)
    macros = [f"-DFEATURES={len(names)}", f"-DROUNDS={max(ctx.repeats, 5)}"]
    for source in (POLICY_SOURCE, "driver.cpp"):
        flags = [*COMPILE_FLAGS, *macros, "-march=x86-64", "-c", source]
        subprocess.run([compiler, *flags], cwd=ctx.scratch, check=True)
    subprocess.run([compiler, "driver.o", "policy.o", "-o", "driver"], cwd=ctx.scratch, check=True)
    done = subprocess.run([ctx.scratch / "driver"], input=rows.tobytes(), capture_output=True, check=True)
    passes = [line.split() for line in done.stdout.splitlines()]
    expected = int(policy.logits(columns).argmax(axis=1)[: len(rows)].sum())
    if any(abs(int(inlined) - expected) > len(rows) * 1e-4 for _, inlined in passes):
        raise AssertionError(f"the loop inlined {passes[0][1]!r} of {len(rows)}, the reference {expected}")
    return {
        "emitted_policy_us_per_decision": statistics.median(float(us) for us, _ in passes),
        "emitted_policy_bytes": size_bytes(ctx.scratch / "policy.o"),
    }


def size_bytes(path: Path) -> int:
    """Code and data of an object, as size(1) counts them."""
    listed = subprocess.run(["size", path], capture_output=True, text=True, check=True).stdout
    return int(listed.splitlines()[1].split()[3])
