// Runs a policy that is loaded at run time for the training advisor.
//
// It stands in for LLVM's ModelUnderTrainingRunner, which an LLVM without
// TFLite does not have.
#ifndef MLGO_POLICY_RUNNER_H
#define MLGO_POLICY_RUNNER_H

#include "policy/NativePolicy.h"
#include "llvm/Analysis/MLModelRunner.h"

namespace mlgo {

class PolicyRunner : public llvm::MLModelRunner {
public:
  /// Loads the policy in \p Directory: policy.so, and output_spec.json, which
  /// lists what is logged next to a decision (ml-compiler-opt's format).
  /// Returns null after it has reported an error to \p Context.
  static std::unique_ptr<PolicyRunner>
  load(llvm::LLVMContext &Context, llvm::StringRef Directory,
       llvm::StringRef DecisionName,
       const std::vector<llvm::TensorSpec> &Features);

  /// The outputs next to the decision. Each has the value of the logits.
  const std::vector<llvm::TensorSpec> &loggedOutputs() const { return Outputs; }
  const void *logits() const { return Policy->logits().data(); }
  const TrainedRanges &ranges() const { return Policy->ranges(); }

  static bool classof(const llvm::MLModelRunner *Runner) {
    return Runner->getKind() == Kind::Development;
  }

private:
  PolicyRunner(llvm::LLVMContext &Context,
               const std::vector<llvm::TensorSpec> &Features);
  llvm::Error readOutputs(llvm::StringRef Path, llvm::StringRef DecisionName);
  void *evaluateUntyped() override;

  std::unique_ptr<NativePolicy> Policy;
  std::vector<llvm::TensorSpec> Outputs;
  int64_t Decision = 0;
};

} // namespace mlgo

#endif
