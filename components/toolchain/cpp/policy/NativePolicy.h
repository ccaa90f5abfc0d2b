// A policy as generated C++, compiled into a shared object: POLICYDIR/policy.so
// (components/core/policy/generated/shared_object.py). The release clang embeds
// the same C++.
#ifndef MLGO_NATIVE_POLICY_H
#define MLGO_NATIVE_POLICY_H

#include "policy/PolicyModel.h"
#include "llvm/Support/JSON.h"

namespace mlgo {

class NativePolicy : public PolicyModel {
public:
  /// See PolicyModel::load. Outputs next to the decision must be logits.
  static llvm::Expected<std::unique_ptr<PolicyModel>>
  load(llvm::StringRef Directory, const std::vector<llvm::TensorSpec> &Features,
       const std::vector<void *> &Buffers,
       const std::vector<llvm::TensorSpec> &Outputs);

  /// Computes the logits from the features' buffers and returns the decision:
  /// the action with the largest logit or, with -mlgo-seed, one sampled from
  /// the softmax of the logits.
  int64_t decide() override;

  /// The logits of the last decision, one for each action.
  const void *output(size_t) const override { return Logits.data(); }

private:
  using LogitsFunction = void (*)(const void *const *, float *);

  NativePolicy() = default;
  llvm::Error bind(llvm::StringRef Library,
                   const llvm::json::Object &Description,
                   const std::vector<llvm::TensorSpec> &Features,
                   const std::vector<void *> &Buffers);
  llvm::Error bindOutputs(const std::vector<llvm::TensorSpec> &Outputs) const;
  int64_t sample() const;

  LogitsFunction RunLogits = nullptr;
  /// Pointers to the features' values, in the policy's order.
  std::vector<const void *> Inputs;
  std::vector<float> Logits;
};

} // namespace mlgo

#endif
