#include "policy/NativePolicy.h"

#include "decisions/PolicySampling.h"
#include "support/JSON.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>
#include <cmath>
#include <dlfcn.h>
#include <optional>
#include <string>

using namespace llvm;
using namespace mlgo;

static constexpr int64_t MaxActions = 1 << 16;

/// Returns the shape of a feature in a policy's description, or nothing if it
/// is not a list.
static std::optional<std::vector<int64_t>> shapeOf(const json::Object *Spec) {
  const json::Array *Extents = Spec ? Spec->getArray("shape") : nullptr;
  if (!Extents)
    return std::nullopt;
  std::vector<int64_t> Shape;
  for (const json::Value &Extent : *Extents)
    Shape.push_back(Extent.getAsInteger().value_or(-1));
  return Shape;
}

static std::string
shapeToString(const std::optional<std::vector<int64_t>> &Shape) {
  std::string Text = "[";
  for (int64_t Extent : Shape.value_or(std::vector<int64_t>()))
    Text += (Text.size() > 1 ? "," : "") + std::to_string(Extent);
  return Text + "]";
}

Expected<std::unique_ptr<PolicyModel>>
NativePolicy::load(StringRef Directory, const std::vector<TensorSpec> &Features,
                   const std::vector<void *> &Buffers,
                   const std::vector<TensorSpec> &Outputs) {
  std::string Library = (Directory + "/policy.so").str();
  void *Handle = dlopen(Library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!Handle)
    return policyError(Twine("cannot load the policy: ") + dlerror());
  std::unique_ptr<NativePolicy> Policy(new NativePolicy());
  auto Describe = reinterpret_cast<const char *(*)()>(
      dlsym(Handle, "mlgo_policy_describe"));
  Policy->RunLogits =
      reinterpret_cast<LogitsFunction>(dlsym(Handle, "mlgo_policy_logits"));
  if (!Describe || !Policy->RunLogits)
    return policyError(Library + " is not a policy: mlgo_policy_describe or "
                                 "mlgo_policy_logits is missing");
  auto Description = parseJSON(Describe());
  if (!Description)
    return policyError(Library + " describes itself in broken JSON: " +
                       toString(Description.takeError()));
  const json::Object *Object = Description->getAsObject();
  if (!Object)
    return policyError(Library + " must describe itself as a JSON object");
  if (Error E = Policy->bind(Library, *Object, Features, Buffers))
    return std::move(E);
  if (Error E = Policy->bindOutputs(Outputs))
    return std::move(E);
  auto Ranges = TrainedRanges::parse(*Object);
  if (!Ranges)
    return policyError(Library + ": " + toString(Ranges.takeError()));
  Policy->Ranges = std::move(*Ranges);
  return std::move(Policy);
}

Error NativePolicy::bind(StringRef Library, const json::Object &Description,
                         const std::vector<TensorSpec> &Features,
                         const std::vector<void *> &Buffers) {
  const json::Array *PolicyFeatures = Description.getArray("features");
  auto NumActions = Description.getInteger("num_actions");
  if (!PolicyFeatures || !NumActions || *NumActions < 2 ||
      *NumActions > MaxActions)
    return policyError(Library +
                       " does not say its features and its number of actions");
  Logits.resize(*NumActions);
  std::string Missing;
  for (const json::Value &Feature : *PolicyFeatures) {
    const json::Object *Spec = Feature.getAsObject();
    StringRef Name = Spec ? Spec->getString("name").value_or("") : "";
    StringRef Type = Spec ? Spec->getString("type").value_or("") : "";
    auto It = find_if(Features,
                      [&](const TensorSpec &S) { return S.name() == Name; });
    std::optional<std::vector<int64_t>> Shape = shapeOf(Spec);
    bool Agrees = It != Features.end() && Shape && *Shape == It->shape() &&
                  ((Type == "int64_t" && It->isElementType<int64_t>()) ||
                   (Type == "float" && It->isElementType<float>()));
    if (!Agrees) {
      Missing += (Missing.empty() ? "" : ", ") +
                 (Name + " (" + Type + shapeToString(Shape) + ")").str();
      continue;
    }
    Inputs.push_back(Buffers[It - Features.begin()]);
  }
  if (!Missing.empty())
    return policyError(
        Library + " was trained on features that this compiler does not log: " +
        Missing + "; train it again with a trace of this compiler");
  return Error::success();
}

Error NativePolicy::bindOutputs(const std::vector<TensorSpec> &Outputs) const {
  const bool Agrees = !Outputs.empty() && Outputs[0].isElementType<int64_t>() &&
                      Outputs[0].getElementCount() == 1 &&
                      all_of(drop_begin(Outputs), [&](const TensorSpec &Spec) {
                        return Spec.isElementType<float>() &&
                               Spec.getElementCount() == Logits.size();
                      });
  if (Agrees)
    return Error::success();
  return policyError("output_spec.json must list an int64_t decision and then "
                     "nothing but float logits");
}

int64_t NativePolicy::decide() {
  RunLogits(Inputs.data(), Logits.data());
  if (isSamplingPolicy())
    return sample();
  return std::max_element(Logits.begin(), Logits.end()) - Logits.begin();
}

int64_t NativePolicy::sample() const {
  const float Best = *std::max_element(Logits.begin(), Logits.end());
  double Total = 0;
  SmallVector<double, 40> Weights;
  for (float Logit : Logits)
    Total += Weights.emplace_back(std::exp(static_cast<double>(Logit) - Best));
  double Draw = sampleUniform() * Total;
  // Masked actions have the logit -inf and the weight 0. Rounding must not
  // select one of them, so end at the last action with a weight.
  size_t Last = Weights.size() - 1;
  while (Last > 0 && !(Weights[Last] > 0))
    --Last;
  size_t Action = 0;
  while (Action < Last && Draw >= Weights[Action])
    Draw -= Weights[Action++];
  return static_cast<int64_t>(Action);
}
