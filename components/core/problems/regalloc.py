"""Register allocation: which live range to evict when a range needs a register and none is free.

The greedy allocator asks, for a range without a register, which of at most 32 physical registers to free. The features
are tensors [1, 33]: one column per register in the order in which the allocator would try them, and the last column for
the range itself, which means that nothing is evicted (the range is then split or spilled). Ranges that must not be
evicted are masked.

A context of the log is a function. Its outcome is LLVM's score: loads, stores, copies and rematerializations, weighted
by kind and by the frequency of their blocks relative to the function's entry. The better of two allocations of a
function has the lower score; scores of different functions are not comparable, so a reward compares a score with the
mean score of the same function. A function is in the log if it has a decision; whether it has a first decision does not
depend on the policy, so that all policies log the same functions of a module.

Names come from LLVM: lib/CodeGen/MLRegAllocEvictAdvisor.cpp (features, decision, model class, options),
RegAllocScore.cpp.
"""

from components.core.problems.problem import LlvmInterface, PolicyInterface, Problem, TrainingDefaults

MAX_INTERFERENCES = 32
"""LLVM's MaxInterferences: the registers of the largest class of x86-64."""

_PROBE = """\
void wants_many(const int *in, int *out, int n) {
  int a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7], i = in[8], j = in[9];
  int k = in[10], l = in[11], m = in[12], o = in[13], p = in[14], q = in[15], r = in[16], s = in[17];
  for (int x = 0; x < n; ++x) {
    a += b * c, b ^= d + e, c -= f * g, d += h ^ i, e *= j + k, f += l * m, g -= o ^ p, h += q * r, i ^= s + a;
    j += b * x, k -= c, l ^= d * x, m += e, o *= f, p ^= g + x, q += h, r -= i * x, s ^= j;
  }
  out[0] = a + b + c + d + e + f, out[1] = g - h + i - j + k - l, out[2] = m ^ o ^ p ^ q ^ r ^ s;
}
"""

REGALLOC = Problem(
    name="regalloc",
    optimization="-O2",
    cmd_filter="^-O[23]$",
    objective="score",
    # Published gains in executed instructions are 0.3 to 1.5%; evictions are a small part of the code.
    min_reduction_percent=0.1,
    llvm=LlvmInterface(
        logs_scores=True,
        model_class="RegAllocEvictModel",
        development_options=("-regalloc-enable-advisor=development",),
        release_options=("-regalloc-enable-advisor=release",),
        log_option="-regalloc-training-log",
        policy_option="-regalloc-model",
        channel_option="-regalloc-evict-interactive-channel-base",
        probe=_PROBE,
    ),
    policy=PolicyInterface(
        decision="index_to_evict",
        default_decision=None,
        logits="RegAllocProbProjectionNetwork_logits",
        num_actions=MAX_INTERFERENCES + 1,
        mask="mask",
        # No excluded feature, because none identifies a module: each describes live ranges, relative to the others.
        per_instruction_features=frozenset({"instructions", "instructions_mapping", "mbb_frequencies", "mbb_mapping"}),
    ),
    training=TrainingDefaults(
        # Modules have few decisions, and scores hardly differ: more of both are needed to see which decision was
        # better.
        modules=32,
        samples=8,
        # The value of an eviction is hard to predict: on unseen modules a network explains 1% of the variance. The
        # action with the greatest predicted value among up to 33 is then one whose value is overestimated. Small policy
        # steps average this out.
        algorithm="ppo",
    ),
)
