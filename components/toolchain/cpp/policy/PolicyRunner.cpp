#include "policy/PolicyRunner.h"

#include "support/JSON.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace mlgo;

PolicyRunner::PolicyRunner(LLVMContext &Context,
                           const std::vector<TensorSpec> &Features)
    : MLModelRunner(Context, Kind::Development, Features.size()) {
  for (size_t I = 0; I < Features.size(); ++I)
    setUpBufferForTensor(I, Features[I], nullptr);
}

/// Returns the tensors of the outputs, and sets those that are logged, by the
/// names that the log has.
Expected<std::vector<TensorSpec>>
PolicyRunner::readOutputs(StringRef Path, StringRef DecisionName) {
  auto Fail = [&](const Twine &Problem) {
    return policyError(Path + " " + Problem);
  };
  auto File = MemoryBuffer::getFile(Path);
  if (!File)
    return Fail("cannot be read: " + File.getError().message());
  auto Parsed = parseJSON((*File)->getBuffer());
  if (!Parsed)
    return Fail("is not JSON: " + toString(Parsed.takeError()));
  const json::Array *Entries = Parsed->getAsArray();
  if (!Entries || Entries->empty())
    return Fail("must be a list of outputs");
  std::vector<TensorSpec> Outputs;
  for (const json::Value &Value : *Entries) {
    const json::Object *Entry = Value.getAsObject();
    const json::Value *Spec = Entry ? Entry->get("tensor_spec") : nullptr;
    auto Name = Entry ? Entry->getString("logging_name") : std::nullopt;
    auto Tensor = Spec ? getTensorSpecFromJSON(Ctx, *Spec) : std::nullopt;
    if (!Name || !Tensor)
      return Fail("has an output without logging_name or tensor_spec");
    Outputs.push_back(*Tensor);
    if (Outputs.size() > 1)
      Logged.emplace_back(Name->str(), *Tensor);
    else if (*Name != DecisionName)
      return Fail("must begin with the decision " + DecisionName);
  }
  return Outputs;
}

std::unique_ptr<PolicyRunner>
PolicyRunner::load(LLVMContext &Context, StringRef Directory,
                   StringRef DecisionName,
                   const std::vector<TensorSpec> &Features) {
  std::unique_ptr<PolicyRunner> Runner(new PolicyRunner(Context, Features));
  std::vector<void *> Buffers;
  for (size_t I = 0; I < Features.size(); ++I)
    Buffers.push_back(Runner->getTensorUntyped(I));
  auto Report = [&](Error E) {
    Context.emitError(toString(std::move(E)));
    return nullptr;
  };
  auto Outputs = Runner->readOutputs((Directory + "/output_spec.json").str(),
                                     DecisionName);
  if (!Outputs)
    return Report(Outputs.takeError());
  auto Policy = PolicyModel::load(Directory, Features, Buffers, *Outputs);
  if (!Policy)
    return Report(Policy.takeError());
  Runner->Policy = std::move(*Policy);
  return Runner;
}

void *PolicyRunner::evaluateUntyped() {
  Decision = Policy->decide();
  return &Decision;
}
