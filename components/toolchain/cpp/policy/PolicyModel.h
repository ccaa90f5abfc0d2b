// A policy that the training clang loads from a directory at run time.
#ifndef MLGO_POLICY_MODEL_H
#define MLGO_POLICY_MODEL_H

#include "inlining/features/TrainedRanges.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mlgo {

class PolicyModel {
public:
  virtual ~PolicyModel();

  /// Loads the policy in \p Directory: policy.so, or if there is none,
  /// model.tflite. Feature i of \p Features is read from \p Buffers[i], which
  /// must outlive the policy. The policy may use fewer features than there are,
  /// in any order.
  ///
  /// \p Outputs are those of output_spec.json (ml-compiler-opt's format): the
  /// decision, and what is logged next to it.
  ///
  /// Errors: there is no policy, it is damaged, it wants a feature that is not
  /// in \p Features, or it does not have these outputs.
  static llvm::Expected<std::unique_ptr<PolicyModel>>
  load(llvm::StringRef Directory, const std::vector<llvm::TensorSpec> &Features,
       const std::vector<void *> &Buffers,
       const std::vector<llvm::TensorSpec> &Outputs);

  /// Decides on what is in the features' buffers.
  virtual int64_t decide() = 0;

  /// Returns the value of output \p Index > 0 at the last decision.
  virtual const void *output(size_t Index) const = 0;

  /// Where the policy was trained.
  const TrainedRanges &ranges() const { return Ranges; }

protected:
  TrainedRanges Ranges;
};

/// Returns an error that begins with what failed.
llvm::Error policyError(const llvm::Twine &Message);

} // namespace mlgo

#endif
