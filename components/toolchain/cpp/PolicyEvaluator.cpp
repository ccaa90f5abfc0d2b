// Runs a native policy (generated C++) inside the training clang.
//
// LLVM's ModelUnderTrainingRunner needs a single class, TFModelEvaluator
// (llvm/Analysis/Utils/TFUtils.h), which LLVM implements with TFLite. This
// implementation loads POLICYDIR/policy.so, compiled from the same C++ that is
// later linked into the release clang. The decision is the action with the
// largest logit or, with -mlgo-seed, one sampled from the softmax of the
// logits.
#include "PolicySampling.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Analysis/Utils/TFUtils.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <dlfcn.h>

using namespace llvm;
using namespace mlgo;

namespace {
/// The default of -ml-inliner-trained-model-feed-prefix, which LLVM prepends to
/// each feature's name.
constexpr StringLiteral FeedPrefix = "action_";

using DescribeFn = const char *(*)();
using LogitsFn = void (*)(const void *const *, float *);
} // namespace

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
  /// [0] is the decision, the others are the logits that output_spec.json
  /// lists.
  std::vector<std::vector<char>> Outputs;
  /// Pointers into Inputs, in the policy's order of features.
  std::vector<const void *> PolicyInputs;
  std::vector<TensorSpec> OutputSpecs;
  std::vector<float> Logits;
  LogitsFn RunLogits = nullptr;

  bool load(StringRef Directory, const std::vector<TensorSpec> &InputSpecs);
  bool bind(StringRef Library, const json::Object &Description,
            const std::vector<TensorSpec> &InputSpecs);
  void evaluate();

private:
  int64_t choose();
};
} // namespace llvm

static bool fail(const Twine &Message) {
  errs() << "error: policy: " << Message << "\n";
  return false;
}

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

bool TFModelEvaluatorImpl::load(StringRef Directory,
                                const std::vector<TensorSpec> &InputSpecs) {
  std::string Library = (Directory + "/policy.so").str();
  void *Handle = dlopen(Library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!Handle)
    return fail(Twine("cannot load the emitted policy: ") + dlerror());
  auto Describe =
      reinterpret_cast<DescribeFn>(dlsym(Handle, "mlgo_policy_describe"));
  RunLogits = reinterpret_cast<LogitsFn>(dlsym(Handle, "mlgo_policy_logits"));
  if (!Describe || !RunLogits)
    return fail(Library + " is not an emitted policy: mlgo_policy_describe or "
                          "mlgo_policy_logits is missing");
  auto Description = json::parse(Describe());
  if (!Description)
    return fail(Library + " describes itself in broken JSON: " +
                toString(Description.takeError()));
  const json::Object *Object = Description->getAsObject();
  if (!Object)
    return fail(Library + " must describe itself as a JSON object");
  return bind(Library, *Object, InputSpecs);
}

bool TFModelEvaluatorImpl::bind(StringRef Library,
                                const json::Object &Description,
                                const std::vector<TensorSpec> &InputSpecs) {
  const json::Array *Features = Description.getArray("features");
  auto NumActions = Description.getInteger("num_actions");
  if (!Features || !NumActions || *NumActions < 2)
    return fail(Library +
                " does not say its features and its number of actions");
  Logits.resize(*NumActions);
  std::string Missing;
  for (const json::Value &Feature : *Features) {
    const json::Object *Spec = Feature.getAsObject();
    StringRef Name = Spec ? Spec->getString("name").value_or("") : "";
    StringRef Type = Spec ? Spec->getString("type").value_or("") : "";
    auto It = find_if(InputSpecs, [&](const TensorSpec &S) {
      return StringRef(S.name()).starts_with(FeedPrefix) &&
             S.name().substr(FeedPrefix.size()) == Name;
    });
    std::optional<std::vector<int64_t>> Shape = shapeOf(Spec);
    bool Agrees = It != InputSpecs.end() && Shape && *Shape == It->shape() &&
                  ((Type == "int64_t" && It->isElementType<int64_t>()) ||
                   (Type == "float" && It->isElementType<float>()));
    if (!Agrees) {
      Missing += (Missing.empty() ? "" : ", ") +
                 (Name + " (" + Type + shapeToString(Shape) + ")").str();
      continue;
    }
    PolicyInputs.push_back(Inputs[It - InputSpecs.begin()].data());
  }
  if (!Missing.empty())
    return fail(Library +
                " was trained on features that this compiler does not log: " +
                Missing + "; train it again with a trace of this compiler");
  return true;
}

int64_t TFModelEvaluatorImpl::choose() {
  auto Best = std::max_element(Logits.begin(), Logits.end());
  if (!isSamplingPolicy())
    return Best - Logits.begin();
  double Total = 0;
  SmallVector<double, 40> Weights;
  for (float Logit : Logits)
    Total += Weights.emplace_back(std::exp(static_cast<double>(Logit) - *Best));
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

void TFModelEvaluatorImpl::evaluate() {
  RunLogits(PolicyInputs.data(), Logits.data());
  int64_t Action = choose();
  std::memcpy(Outputs[0].data(), &Action,
              std::min(Outputs[0].size(), sizeof(Action)));
  for (size_t I = 1; I < Outputs.size(); ++I)
    std::memcpy(Outputs[I].data(), Logits.data(),
                std::min(Outputs[I].size(), Logits.size() * sizeof(float)));
}

TFModelEvaluator::TFModelEvaluator(StringRef SavedModelPath,
                                   const std::vector<TensorSpec> &InputSpecs,
                                   const std::vector<TensorSpec> &OutputSpecs,
                                   const char *)
    : Impl(std::make_unique<TFModelEvaluatorImpl>()) {
  for (const TensorSpec &Spec : InputSpecs)
    Impl->Inputs.emplace_back(Spec.getTotalTensorBufferSize());
  for (const TensorSpec &Spec : OutputSpecs)
    Impl->Outputs.emplace_back(Spec.getTotalTensorBufferSize());
  Impl->OutputSpecs = OutputSpecs;
  bool DecisionIsInt64 =
      !OutputSpecs.empty() && OutputSpecs[0].isElementType<int64_t>();
  bool OthersAreLogits =
      std::all_of(OutputSpecs.begin() + DecisionIsInt64, OutputSpecs.end(),
                  [](const TensorSpec &S) { return S.isElementType<float>(); });
  if (!DecisionIsInt64 || !OthersAreLogits)
    fail(SavedModelPath + "/output_spec.json must list an int64_t decision and "
                          "then nothing but float logits");
  if (!DecisionIsInt64 || !OthersAreLogits ||
      !Impl->load(SavedModelPath, InputSpecs))
    Impl.reset();
}

TFModelEvaluator::~TFModelEvaluator() = default;

std::optional<TFModelEvaluator::EvaluationResult> TFModelEvaluator::evaluate() {
  if (!isValid())
    return std::nullopt;
  Impl->evaluate();
  return EvaluationResult(
      std::make_unique<EvaluationResultImpl>(Impl->Outputs));
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
