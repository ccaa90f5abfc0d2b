// A policy as generated C++, compiled into a shared object: POLICYDIR/policy.so
// (components/core/policy/generated/shared_object.py). The release clang embeds
// the same C++.
#ifndef MLGO_NATIVE_POLICY_H
#define MLGO_NATIVE_POLICY_H

#include "inlining/features/TrainedRanges.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mlgo {

class NativePolicy {
public:
  /// Loads \p Directory/policy.so. Feature i of \p Features is read from
  /// \p Buffers[i], which must outlive the policy. The policy may use fewer
  /// features than there are, in any order.
  ///
  /// Errors: there is no policy, it is damaged, or it wants a feature that is
  /// not in \p Features.
  static llvm::Expected<std::unique_ptr<NativePolicy>>
  load(llvm::StringRef Directory, const std::vector<llvm::TensorSpec> &Features,
       const std::vector<void *> &Buffers);

  /// Computes the logits from the features' buffers and returns the decision:
  /// the action with the largest logit or, with -mlgo-seed, one sampled from
  /// the softmax of the logits.
  int64_t decide();

  /// Where the policy was trained.
  const TrainedRanges &ranges() const { return Ranges; }

  /// The logits of the last decision, one for each action.
  const std::vector<float> &logits() const { return Logits; }

private:
  using LogitsFunction = void (*)(const void *const *, float *);

  NativePolicy() = default;
  llvm::Error bind(llvm::StringRef Library,
                   const llvm::json::Object &Description,
                   const std::vector<llvm::TensorSpec> &Features,
                   const std::vector<void *> &Buffers);
  int64_t sample() const;

  LogitsFunction RunLogits = nullptr;
  TrainedRanges Ranges;
  /// Pointers to the features' values, in the policy's order.
  std::vector<const void *> Inputs;
  std::vector<float> Logits;
};

} // namespace mlgo

#endif
