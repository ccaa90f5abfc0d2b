// How a policy under training is run: greedily, sampled with a seed, or sampled several times from one front half.
#ifndef MLGO_POLICY_SAMPLING_H
#define MLGO_POLICY_SAMPLING_H

#include <cstdint>
#include <optional>
#include <string>

/// True if -mlgo-seed was given: decisions are drawn from the policy's distribution, not its most likely ones.
bool isSamplingPolicy();

/// The seed of this process's decisions: -mlgo-seed, plus the sample's index in a forked sample.
uint64_t policySeed();

/// Names what the next decision is about, by a hash; 0 for nothing. Decisions about the same thing share one draw in
/// half of the samples, see drawUnit.
void setDecisionSubject(uint64_t Hash);

/// Begins a new stream of draws, of the seed and `Hash`: what is drawn from
/// here on does not depend on how many decisions there were before.
void restartDraws(uint64_t Hash);

/// A number in [0, 1) for the next decision, the same for the same seed.
///
/// In samples with an even seed, draws are independent of each other. In those with an odd one, all decisions about one
/// subject (for the inliner: a callee) share a draw, so that calls that the policy is equally sure about go the same
/// way: whether a function can be dropped because nobody calls it any more is otherwise hardly ever tried. Each decision
/// by itself is drawn from the policy's distribution either way.
double drawUnit();

/// What one sample of a compile writes. With -mlgo-sample-logs=false Log and
/// Calls are empty, and the register allocator writes Scores.
struct SampleFiles {
  unsigned Index;
  std::string Object, Log, Calls, Forced, Scores;
};

/// With -mlgo-samples=K: forks K children one after another and waits for each; returns in a child, with the files that
/// belong to it and stdout redirected to its object, and never returns in the parent, which exits with 0 only if every
/// child did. Without it: returns nothing.
std::optional<SampleFiles> forkIntoSamples();

#endif
