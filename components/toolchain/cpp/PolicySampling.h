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

/// What one sample of a compile writes.
struct SampleFiles {
  std::string Object, Log, Calls;
};

/// With -mlgo-samples=K: forks K children one after another and waits for each; returns in a child, with the files that
/// belong to it and stdout redirected to its object, and never returns in the parent, which exits with 0 only if every
/// child did. Without it: returns nothing.
std::optional<SampleFiles> forkIntoSamples();

#endif
