// Modes of running a policy under training: greedy, sampled with a seed, or
// several samples that share the compile up to the first decision.
#ifndef MLGO_POLICY_SAMPLING_H
#define MLGO_POLICY_SAMPLING_H

#include <cstdint>
#include <optional>
#include <string>

namespace mlgo {

/// Returns whether -mlgo-seed was given: decisions are then sampled from the
/// policy's distribution instead of taking the most likely ones.
bool isSamplingPolicy();

/// Returns the seed of this process's decisions: -mlgo-seed, plus the sample's
/// index in a forked sample.
uint64_t policySeed();

/// Sets a hash of the subject of the next decision (for the inliner: the
/// callee); 0 for none. Decisions about the same subject share one random draw
/// in half of the samples, see sampleUniform.
void setSampleKey(uint64_t Hash);

/// Starts a new random stream that is seeded by the seed and \p Hash, so that
/// further draws do not depend on the number of earlier decisions.
void restartDraws(uint64_t Hash);

/// Returns a uniform random number in [0, 1) for the next decision, determined
/// by the seed.
///
/// In samples with an even seed, draws are independent of each other. In
/// samples with an odd seed, all decisions about one subject (for the inliner:
/// a callee) share a draw, so that calls to which the policy assigns equal
/// probabilities are decided the same way. Otherwise samples would hardly ever
/// explore whether a function can be dropped because nothing calls it any more.
/// In both cases, each single decision is sampled from the policy's
/// distribution.
double sampleUniform();

/// The files that one sample of a compile writes. With -mlgo-sample-logs=false
/// Log and Calls are empty, and the register allocator writes Scores.
struct SampleFiles {
  unsigned Index;
  std::string Object, Log, Calls, Forced, Scores;
};

/// With -mlgo-samples=K, forks K children, -mlgo-sample-jobs at a time, by
/// default one after another, and waits for them. Returns in a child, with the
/// child's files and stdout redirected to its object. Does not return in the
/// parent, which exits with 0 only if every child did. Without the option,
/// returns nothing.
std::optional<SampleFiles> forkIntoSamples();

} // namespace mlgo

#endif
