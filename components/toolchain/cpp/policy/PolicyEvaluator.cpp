// Runs a policy inside LLVM's ModelUnderTrainingRunner, for the register
// allocator of the training clang.
//
// The runner needs a single class, TFModelEvaluator
// (llvm/Analysis/Utils/TFUtils.h), which LLVM implements with TFLite and this
// file with PolicyModel.
#include "policy/PolicyModel.h"
#include "llvm/Analysis/Utils/TFUtils.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstring>

using namespace llvm;
using namespace mlgo;

/// The default of LLVM's feed prefix, which it prepends to each feature's name.
static constexpr StringLiteral FeedPrefix = "action_";

namespace llvm {
class EvaluationResultImpl {
public:
  explicit EvaluationResultImpl(std::vector<std::vector<char>> &Outputs)
      : Outputs(Outputs) {}
  std::vector<std::vector<char>> &Outputs;
};

class TFModelEvaluatorImpl {
public:
  /// One buffer for each TensorSpec that the compiler feeds.
  std::vector<std::vector<char>> Inputs;
  /// [0] is the decision, the others are what output_spec.json lists.
  std::vector<std::vector<char>> Outputs;
  std::unique_ptr<PolicyModel> Policy;
};
} // namespace llvm

TFModelEvaluator::TFModelEvaluator(StringRef SavedModelPath,
                                   const std::vector<TensorSpec> &InputSpecs,
                                   const std::vector<TensorSpec> &OutputSpecs,
                                   const char *)
    : Impl(std::make_unique<TFModelEvaluatorImpl>()) {
  std::vector<TensorSpec> Features;
  std::vector<void *> Buffers;
  for (const TensorSpec &Spec : InputSpecs) {
    StringRef Name = Spec.name();
    Name.consume_front(FeedPrefix);
    Features.emplace_back(Name.str(), Spec);
    Impl->Inputs.emplace_back(Spec.getTotalTensorBufferSize());
  }
  for (std::vector<char> &Buffer : Impl->Inputs)
    Buffers.push_back(Buffer.data());
  auto Policy =
      PolicyModel::load(SavedModelPath, Features, Buffers, OutputSpecs);
  if (!Policy) {
    errs() << "error: " << toString(Policy.takeError()) << "\n";
    Impl.reset();
    return;
  }
  Impl->Policy = std::move(*Policy);
  // Only now, because a policy refuses outputs that are not its own, of any
  // size.
  for (const TensorSpec &Spec : OutputSpecs)
    Impl->Outputs.emplace_back(Spec.getTotalTensorBufferSize());
}

TFModelEvaluator::~TFModelEvaluator() = default;

std::optional<TFModelEvaluator::EvaluationResult> TFModelEvaluator::evaluate() {
  if (!isValid())
    return std::nullopt;
  std::vector<std::vector<char>> &Outputs = Impl->Outputs;
  int64_t Action = Impl->Policy->decide();
  std::memcpy(Outputs[0].data(), &Action,
              std::min(Outputs[0].size(), sizeof(Action)));
  for (size_t I = 1; I < Outputs.size(); ++I)
    std::memcpy(Outputs[I].data(), Impl->Policy->output(I), Outputs[I].size());
  return EvaluationResult(std::make_unique<EvaluationResultImpl>(Outputs));
}

void *TFModelEvaluator::getUntypedInput(size_t Index) {
  return Impl->Inputs[Index].data();
}

TFModelEvaluator::EvaluationResult::EvaluationResult(
    std::unique_ptr<EvaluationResultImpl> Impl)
    : Impl(std::move(Impl)) {}
TFModelEvaluator::EvaluationResult::EvaluationResult(EvaluationResult &&Other) =
    default;
TFModelEvaluator::EvaluationResult &
TFModelEvaluator::EvaluationResult::operator=(EvaluationResult &&Other) =
    default;
TFModelEvaluator::EvaluationResult::~EvaluationResult() = default;

void *TFModelEvaluator::EvaluationResult::getUntypedTensorValue(size_t Index) {
  return Impl->Outputs[Index].data();
}
const void *
TFModelEvaluator::EvaluationResult::getUntypedTensorValue(size_t Index) const {
  return Impl->Outputs[Index].data();
}
