// The inline advisor of the release clang, which decides by the embedded
// policy.
//
// In a module without functions that are compiled for size LLVM's heuristic
// decides, and nothing is tracked. In a program with a plan it decides about
// the calls that the plan does not list.
//
// -enable-ml-inliner=release requests it. With
// -inliner-interactive-channel-base another process decides, from the features
// that a policy sees. LLVM's own advisor is used only for
// -inliner-interactive-include-default.
#include "InlinerSizeModel.h"
#include "inlining/InlineAdvisors.h"
#include "inlining/InlineFeatureAdvisor.h"
#include "inlining/InlinePlan.h"
#include "program/SizePipeline.h"
#include "program/Variants.h"
#include "support/LLVMOptions.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/Analysis/NoInferenceModelRunner.h"
#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace mlgo;

/// Returns the ranges of the embedded policy. The objects of TensorFlow's AOT
/// compiler have none.
static TrainedRanges embeddedRanges() {
  TrainedRanges Ranges;
#ifdef MLGO_INLINING_TRAINED_RANGES
  static constexpr struct {
    const char *Feature;
    int64_t Smallest, Largest;
  } Embedded[] = {MLGO_INLINING_TRAINED_RANGES};
  for (const auto &R : Embedded)
    Ranges.add(R.Feature, R.Smallest, R.Largest);
#endif
#ifdef MLGO_INLINING_UNWIND_TABLES
  Ranges.requireUnwindTables();
#endif
  Ranges.requireSizeLevel();
  return Ranges;
}

/// Returns the advisor of a program with a plan, which lists what differs from
/// the heuristic's decisions, of both times that a program goes through the
/// inliner.
static std::unique_ptr<InlineAdvisor>
createPlannedProgramAdvisor(Module &M, ModuleAnalysisManager &MAM,
                            DefaultAdvice GetDefaultAdvice) {
  std::optional<ForcedDecisions> Plan;
  if (isSecondRound())
    Plan = takePlanOfFirstRound();
  else
    Plan = loadInlinePlan(M);
  if (!Plan || Plan->size() == 0)
    return createHeuristicAdvisor(M, MAM, std::move(GetDefaultAdvice));
  return std::make_unique<PlannedInlineAdvisor>(
      M, MAM,
      std::make_unique<NoInferenceModelRunner>(M.getContext(),
                                               inliningFeatures()),
      std::move(GetDefaultAdvice), std::move(*Plan));
}

static constexpr char ChannelOption[] = "inliner-interactive-channel-base";

std::unique_ptr<InlineAdvisor>
mlgo::createInlineReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                 DefaultAdvice GetDefaultAdvice) {
  if (isGiven("inliner-interactive-include-default"))
    return createLLVMReleaseAdvisor(M, MAM, std::move(GetDefaultAdvice));
  for (StringRef Option :
       {"ml-inliner-skip-policy", "ml-inliner-model-selector",
        "ml-advisor-keep-fpi-cache"})
    if (isGiven(Option))
      M.getContext().emitError(
          "-" + Option +
          " is not supported by the inline advisor of this clang");
  // Another process, and a plan, decide wherever they are asked to.
  const bool HasChannel = isGiven(ChannelOption);
  if (!HasChannel && !isPlanGiven() && useTrainedRanges(/*Default=*/true) &&
      none_of(M, [](const Function &F) {
        return !F.isDeclaration() && F.hasOptSize();
      }))
    return createHeuristicAdvisor(M, MAM, std::move(GetDefaultAdvice));
  if (!HasChannel && isPlanGiven() && isProgram && isProgram(M))
    if (const Variant *V = appliedVariant(); !V || V->Plan)
      return createPlannedProgramAdvisor(M, MAM, std::move(GetDefaultAdvice));
  std::unique_ptr<MLModelRunner> Model;
  const auto &Features = inliningFeatures();
  if (HasChannel) {
    const std::string &Base = llvmOption<std::string>(ChannelOption);
    Model = std::make_unique<InteractiveModelRunner>(
        M.getContext(), Features, InlineDecisionSpec, Base + ".out",
        Base + ".in");
  } else {
    Model = std::make_unique<ReleaseModeModelRunner<InlinerSizeModel>>(
        M.getContext(), Features, DecisionName);
  }
  std::unique_ptr<InlineFeatureAdvisor> Advisor;
  // The variant of a program that is decided by the policy has no plan.
  std::optional<ForcedDecisions> Plan;
  if (!isProgram || !isProgram(M))
    Plan = loadInlinePlan(M);
  const bool IsPlanned = Plan.has_value();
  if (IsPlanned)
    Advisor = std::make_unique<PlannedInlineAdvisor>(
        M, MAM, std::move(Model), std::move(GetDefaultAdvice),
        std::move(*Plan));
  else
    Advisor = std::make_unique<InlineFeatureAdvisor>(
        M, MAM, std::move(Model), std::move(GetDefaultAdvice));
  // A plan lists what differs from the policy's own decisions, and another
  // process knows best what it was trained on.
  if (useTrainedRanges(/*Default=*/!IsPlanned) && !HasChannel)
    Advisor->setTrainedRanges(embeddedRanges());
  return Advisor;
}
