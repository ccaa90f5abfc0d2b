// Runs a policy that is loaded at run time for the training advisor.
//
// It stands in for LLVM's ModelUnderTrainingRunner, which an LLVM without
// TFLite does not have.
#ifndef MLGO_POLICY_RUNNER_H
#define MLGO_POLICY_RUNNER_H

#include "policy/PolicyModel.h"
#include "llvm/Analysis/MLModelRunner.h"

namespace mlgo {

class PolicyRunner : public llvm::MLModelRunner {
public:
  /// Loads the policy in \p Directory (PolicyModel), with output_spec.json,
  /// which lists what is logged next to a decision (ml-compiler-opt's format).
  /// Returns null after it has reported an error to \p Context.
  static std::unique_ptr<PolicyRunner>
  load(llvm::LLVMContext &Context, llvm::StringRef Directory,
       llvm::StringRef DecisionName,
       const std::vector<llvm::TensorSpec> &Features);

  /// The outputs next to the decision.
  const std::vector<llvm::TensorSpec> &loggedOutputs() const { return Logged; }
  /// The value of loggedOutputs()[Index] at the last decision.
  const void *loggedOutput(size_t Index) const {
    return Policy->output(1 + Index);
  }
  const TrainedRanges &ranges() const { return Policy->ranges(); }

  static bool classof(const llvm::MLModelRunner *Runner) {
    return Runner->getKind() == Kind::Development;
  }

private:
  PolicyRunner(llvm::LLVMContext &Context,
               const std::vector<llvm::TensorSpec> &Features);
  llvm::Expected<std::vector<llvm::TensorSpec>>
  readOutputs(llvm::StringRef Path, llvm::StringRef DecisionName);
  void *evaluateUntyped() override;

  std::unique_ptr<PolicyModel> Policy;
  std::vector<llvm::TensorSpec> Logged;
  int64_t Decision = 0;
};

} // namespace mlgo

#endif
