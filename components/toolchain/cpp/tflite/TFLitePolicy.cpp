#include "tflite/TFLitePolicy.h"

#include "decisions/PolicySampling.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <cstring>
#include <random>

using namespace llvm;
using namespace mlgo;

/// TF-Agents' name of the signature, which is before each feature's name.
static constexpr StringLiteral FeedPrefix = "action_";
/// What else TF-Agents' policies take; they do not use it, and it stays 0.
static constexpr StringLiteral Unused[] = {"step_type", "reward", "discount"};

/// Returns a random number in [0, 1): with -mlgo-seed as other policies draw.
static double draw() {
  if (isSamplingPolicy())
    return sampleUniform();
  static std::mt19937_64 Generator{std::random_device()()};
  return std::uniform_real_distribution<double>()(Generator);
}

static bool hasType(const tflite::Tensor &Value, const TensorSpec &Spec) {
  switch (Value.Type) {
  case tflite::Type::Float:
    return Spec.isElementType<float>();
  case tflite::Type::Int32:
    return Spec.isElementType<int32_t>();
  case tflite::Type::Int64:
    return Spec.isElementType<int64_t>();
  default:
    return false;
  }
}

static bool agrees(const tflite::Tensor &Value, const TensorSpec &Spec) {
  return hasType(Value, Spec) && Value.size() == Spec.getElementCount();
}

Error TFLitePolicy::bindInputs(const std::vector<TensorSpec> &Features,
                               const std::vector<void *> &Buffers) {
  std::string Missing;
  for (tflite::Tensor *Input : Model->inputs()) {
    // action_NAME:0
    StringRef Name = StringRef(Input->Name).rsplit(':').first;
    Name.consume_front(FeedPrefix);
    if (is_contained(Unused, Name))
      continue;
    auto It = find_if(Features,
                      [&](const TensorSpec &S) { return S.name() == Name; });
    if (It != Features.end() && agrees(*Input, *It))
      Inputs.emplace_back(Input, Buffers[It - Features.begin()]);
    else
      Missing += (Missing.empty() ? "" : ", ") + Name.str();
  }
  if (Missing.empty())
    return Error::success();
  return policyError("model.tflite was trained on features that this compiler "
                     "does not log, or logs with another type or shape: " +
                     Missing);
}

Error TFLitePolicy::bindOutputs(const std::vector<TensorSpec> &Specs) {
  for (const TensorSpec &Spec : Specs) {
    const std::string Name = Spec.name() + ":" + std::to_string(Spec.port());
    auto It = find_if(Model->outputs(), [&](const tflite::Tensor *Output) {
      return Output->Name == Name && agrees(*Output, Spec);
    });
    if (It == Model->outputs().end())
      return policyError("model.tflite has no output " + Name +
                         " with the type and shape of output_spec.json");
    Outputs.push_back(*It);
  }
  if (Outputs.empty() || Outputs[0]->Type != tflite::Type::Int64 ||
      Outputs[0]->size() != 1)
    return policyError(
        "output_spec.json must begin with one int64_t, the decision");
  return Error::success();
}

Expected<std::unique_ptr<PolicyModel>>
TFLitePolicy::load(StringRef Directory, const std::vector<TensorSpec> &Features,
                   const std::vector<void *> &Buffers,
                   const std::vector<TensorSpec> &Outputs) {
  auto Loaded = tflite::Model::load((Directory + "/model.tflite").str(), draw);
  if (!Loaded)
    return policyError(toString(Loaded.takeError()));
  auto Policy = std::make_unique<TFLitePolicy>();
  Policy->Model = std::move(*Loaded);
  if (Error E = Policy->bindInputs(Features, Buffers))
    return std::move(E);
  if (Error E = Policy->bindOutputs(Outputs))
    return std::move(E);
  return std::move(Policy);
}

int64_t TFLitePolicy::decide() {
  for (auto &[Input, Buffer] : Inputs)
    std::memcpy(Input->Bytes.data(), Buffer, Input->Bytes.size());
  Model->run();
  return *Outputs[0]->data<int64_t>();
}
