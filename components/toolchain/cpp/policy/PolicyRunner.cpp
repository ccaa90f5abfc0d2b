#include "policy/PolicyRunner.h"

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

Error PolicyRunner::readOutputs(StringRef Path, StringRef DecisionName) {
  auto Fail = [&](const Twine &Problem) {
    return createStringError(inconvertibleErrorCode(),
                             "policy: " + Path + " " + Problem);
  };
  auto File = MemoryBuffer::getFile(Path);
  if (!File)
    return Fail("cannot be read: " + File.getError().message());
  auto Parsed = json::parse((*File)->getBuffer());
  if (!Parsed)
    return Fail("is not JSON: " + toString(Parsed.takeError()));
  const json::Array *Entries = Parsed->getAsArray();
  if (!Entries || Entries->empty())
    return Fail("must be a list of outputs");
  for (const json::Value &Value : *Entries) {
    const json::Object *Entry = Value.getAsObject();
    const json::Value *Spec = Entry ? Entry->get("tensor_spec") : nullptr;
    auto Name = Entry ? Entry->getString("logging_name") : std::nullopt;
    auto Tensor = Spec ? getTensorSpecFromJSON(Ctx, *Spec) : std::nullopt;
    if (!Name || !Tensor)
      return Fail("has an output without logging_name or tensor_spec");
    const bool IsDecision = &Value == &Entries->front();
    const bool Agrees =
        IsDecision ? *Name == DecisionName && Tensor->isElementType<int64_t>()
                   : Tensor->isElementType<float>() &&
                         Tensor->getElementCount() == Policy->logits().size();
    if (!Agrees)
      return Fail("must list the int64_t decision " + DecisionName +
                  " and then nothing but float logits");
    if (!IsDecision)
      Outputs.emplace_back(Name->str(), *Tensor);
  }
  return Error::success();
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
  auto Policy = NativePolicy::load(Directory, Features, Buffers);
  if (!Policy)
    return Report(Policy.takeError());
  Runner->Policy = std::move(*Policy);
  if (Error E = Runner->readOutputs((Directory + "/output_spec.json").str(),
                                    DecisionName))
    return Report(std::move(E));
  return Runner;
}

void *PolicyRunner::evaluateUntyped() {
  Decision = Policy->decide();
  return &Decision;
}
