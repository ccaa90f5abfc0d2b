#include "inlining/InlineFeatureAdvisor.h"

#include "inlining/features/DirectCallGraph.h"
#include "program/SizePipeline.h"
#include "support/LLVMOptions.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace mlgo;

/// LLVM's name of the pass, for -Rpass=.
static constexpr char RemarkPass[] = "inline-ml";

InlineFeatureAdvisor::InlineFeatureAdvisor(
    Module &M, ModuleAnalysisManager &MAM,
    std::unique_ptr<MLModelRunner> Runner,
    std::function<bool(CallBase &)> GetDefaultAdvice)
    : InlineAdvisor(
          M, MAM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager()),
      ModelRunner(std::move(Runner)),
      GetDefaultAdvice(std::move(GetDefaultAdvice)),
      SizeIncreaseThreshold(
          llvmOption<float>("ml-advisor-size-increase-threshold")),
      Graph(MAM.getResult<LazyCallGraphAnalysis>(M)) {
  FAM.registerPass([] { return FunctionPropertiesAnalysis(); });
  FAM.registerPass([] { return CallsiteCostsAnalysis(); });
  ModelRunner->switchContext("");
  levelFunctions();
  for (Function &F : M)
    if (!F.isDeclaration())
      InitialSize += properties(F).Instructions;
  CurrentSize = InitialSize;
  for (const auto &[N, Level] : Levels)
    EdgeCount += properties(N->getFunction()).DirectCalls;
  NodeCount = Levels.size();
}

// A function is one level above the highest function that it calls, not
// counting calls within a cycle.
void InlineFeatureAdvisor::levelFunctions() {
  DirectCallGraph Calls(M);
  for (auto Cycle = scc_begin(&Calls); !Cycle.isAtEnd(); ++Cycle) {
    unsigned Level = 0;
    for (const DirectCallGraph::Node *Member : *Cycle)
      for (const DirectCallGraph::Node *Callee : Member->callees())
        if (auto CalleeLevel = Levels.find(&Graph.get(*Callee->F));
            CalleeLevel != Levels.end())
          Level = std::max(Level, CalleeLevel->second + 1);
    for (const DirectCallGraph::Node *Member : *Cycle)
      if (Member->F)
        Levels[&Graph.get(*Member->F)] = Level;
  }
}

const FunctionProperties &InlineFeatureAdvisor::properties(Function &F) {
  std::unique_ptr<FunctionProperties> &InPass = Properties[&F];
  if (!InPass) {
    FunctionPropertiesAnalysis::Result &Cached =
        FAM.getResult<FunctionPropertiesAnalysis>(F);
    if (!Cached.UsesAreCounted) {
      Cached.Properties.Uses = FunctionProperties::usesOf(F);
      Cached.UsesAreCounted = true;
    }
    InPass = std::make_unique<FunctionProperties>(Cached.Properties);
  }
  return *InPass;
}

// Function passes have run since the last entry. They changed functions of the
// last SCC, and may have split it or created functions (CoroSplit), which are
// neighbors of the existing ones. Update the counts of nodes and edges.
void InlineFeatureAdvisor::onPassEntry(LazyCallGraph::SCC *Current) {
  if (!Current || ForceStop)
    return;
  Properties.clear();
  while (!NodesInLastSCC.empty()) {
    const Node *N = *NodesInLastSCC.begin();
    NodesInLastSCC.erase(N);
    EdgeCount += properties(N->getFunction()).DirectCalls;
    const unsigned Level = Levels.lookup(N);
    for (const LazyCallGraph::Edge &E : **N)
      if (Levels.try_emplace(&E.getNode(), Level).second) {
        ++NodeCount;
        NodesInLastSCC.insert(&E.getNode());
      }
  }
  EdgeCount -= EdgesOfLastSCC;
  EdgesOfLastSCC = 0;
  for (const Node &N : *Current)
    NodesInLastSCC.insert(&N);
}

void InlineFeatureAdvisor::onPassExit(LazyCallGraph::SCC *Current) {
  Properties.clear();
  if (!Current || ForceStop)
    return;
  for (const Node &N : *Current)
    NodesInLastSCC.insert(&N);
  EdgesOfLastSCC = 0;
  for (const Node *N : NodesInLastSCC)
    EdgesOfLastSCC += properties(N->getFunction()).DirectCalls;
}

bool InlineFeatureAdvisor::isReachable(CallBase &Call) {
  Function &Caller = *Call.getCaller();
  return properties(Caller).AllReachable ||
         reachableBlocks(Caller).contains(Call.getParent());
}

CallsiteCostsAnalysis::Result &
InlineFeatureAdvisor::calleeCosts(CallBase &Call) {
  Function &Callee = *Call.getCalledFunction();
  CallsiteCostsAnalysis::Result &Cached =
      FAM.getResult<CallsiteCostsAnalysis>(Callee);
  if (!Cached.Valid)
    Cached = CallsiteCostsAnalysis::Result(Callee);
  return Cached;
}

InlineAdvisor::MandatoryInliningKind
InlineFeatureAdvisor::mandatoryKind(CallBase &Call, CallsiteCosts &Costs) {
  if (!Costs.Mandatory) {
    Function &Callee = *Call.getCalledFunction();
    auto Libraries = [&](Function &F) -> const TargetLibraryInfo & {
      return FAM.getResult<TargetLibraryAnalysis>(F);
    };
    Costs.Mandatory = getAttributeBasedInliningDecision(
        Call, &Callee, FAM.getResult<TargetIRAnalysis>(Callee), Libraries);
  }
  const std::optional<InlineResult> &Result = *Costs.Mandatory;
  if (!Result)
    return MandatoryInliningKind::NotMandatory;
  return Result->isSuccess() ? MandatoryInliningKind::Always
                             : MandatoryInliningKind::Never;
}

bool InlineFeatureAdvisor::canBeInlined(CallBase &Call, CallsiteCosts &Costs,
                                        bool Mandatory) {
  Function &Callee = *Call.getCalledFunction();
  TargetTransformInfo &Target = FAM.getResult<TargetIRAnalysis>(Callee);
  auto Assumptions = [&](Function &F) -> AssumptionCache & {
    return FAM.getResult<AssumptionAnalysis>(F);
  };
  if (!Costs.Features)
    Costs.Features = getInliningCostFeatures(Call, Target, Assumptions);
  if (Mandatory || !*Costs.Features)
    return Costs.Features->has_value();
  if (!Costs.Estimate) {
    Costs.Estimate = calleeCosts(Call).estimate(Call, **Costs.Features, Target);
    if (!*Costs.Estimate)
      Costs.Estimate = getInliningCostEstimate(Call, Target, Assumptions);
  }
  return Costs.Estimate->has_value();
}

void InlineFeatureAdvisor::setFeatures(CallBase &Call,
                                       const CallsiteCosts &Costs) {
  Function &Caller = *Call.getCaller();
  Function &Callee = *Call.getCalledFunction();
  const FunctionProperties &CallerProperties = properties(Caller);
  const FunctionProperties &CalleeProperties = properties(Callee);
  const Node *CallerNode = Graph.lookup(Caller);
  auto Set = [&](FeatureIndex Feature, int64_t Value) {
    *ModelRunner->getTensor<int64_t>(Feature) = Value;
  };
  Set(FeatureIndex::callee_basic_block_count, CalleeProperties.Blocks);
  Set(FeatureIndex::callee_conditionally_executed_blocks,
      CalleeProperties.ConditionalBlocks);
  Set(FeatureIndex::callee_users, CalleeProperties.Uses);
  Set(FeatureIndex::is_callee_avail_external,
      Callee.hasAvailableExternallyLinkage());
  Set(FeatureIndex::caller_basic_block_count, CallerProperties.Blocks);
  Set(FeatureIndex::caller_conditionally_executed_blocks,
      CallerProperties.ConditionalBlocks);
  Set(FeatureIndex::caller_users, CallerProperties.Uses);
  Set(FeatureIndex::is_caller_avail_external,
      Caller.hasAvailableExternallyLinkage());
  Set(FeatureIndex::callsite_height,
      CallerNode ? Levels.lookup(CallerNode) : 0);
  Set(FeatureIndex::nr_ctant_params,
      count_if(Call.args(), [](const Use &U) { return isa<Constant>(U); }));
  Set(FeatureIndex::node_count, NodeCount);
  Set(FeatureIndex::edge_count, EdgeCount);
  Set(FeatureIndex::cost_estimate, **Costs.Estimate);
  for (size_t I = 0; I < (*Costs.Features)->size(); ++I)
    Set(inlineCostFeatureToMlFeature(static_cast<InlineCostFeatureIndex>(I)),
        (**Costs.Features)[I]);
  mlgo::setExtendedFeatures(Call, CallerProperties, CalleeProperties, History,
                            [&](mlgo::ExtendedFeature Feature, int64_t Value) {
                              *ModelRunner->getTensor<int64_t>(
                                  indexOf(Feature)) = Value;
                            });
  if (EmbeddingDimension) {
    embed(CalleeProperties.Entities,
          ModelRunner->getTensor<float>(CalleeEmbedding));
    embed(CallerProperties.Entities,
          ModelRunner->getTensor<float>(CallerEmbedding));
  }
}

std::unique_ptr<InlineAdvice>
InlineFeatureAdvisor::getAdviceImpl(CallBase &Call) {
  OptimizationRemarkEmitter &ORE = getCallerORE(Call);
  // Advice that changes nothing is not tracked.
  auto Untracked = [&](bool Advice) {
    return std::make_unique<InlineAdvice>(this, Call, ORE, Advice);
  };
  if (!isReachable(Call))
    return Untracked(false);
  CallsiteCosts &Costs = calleeCosts(Call).of(Call);
  const MandatoryInliningKind Kind = mandatoryKind(Call, Costs);
  if (Kind == MandatoryInliningKind::Never ||
      Call.getCaller() == Call.getCalledFunction())
    return Untracked(false);
  const bool Mandatory = Kind == MandatoryInliningKind::Always;
  if (ForceStop) {
    ORE.emit([&] {
      return OptimizationRemarkMissed(RemarkPass, "ForceStop", &Call)
             << "not inlined: the module has grown beyond "
                "-ml-advisor-size-increase-threshold";
    });
    return Untracked(Mandatory);
  }
  if (!canBeInlined(Call, Costs, Mandatory))
    return Untracked(false);
  if (Mandatory)
    return std::make_unique<TrackedAdvice>(this, Call, ORE, true);
  setFeatures(Call, Costs);
  std::unique_ptr<InlineAdvice> Advice = decide(Call, ORE);
  History.add(*Call.getCalledFunction(), Advice->isInliningRecommended());
  return Advice;
}

std::unique_ptr<InlineAdvice>
InlineFeatureAdvisor::getMandatoryAdvice(CallBase &Call, bool Advice) {
  OptimizationRemarkEmitter &ORE = getCallerORE(Call);
  if (!Advice || ForceStop)
    return std::make_unique<InlineAdvice>(this, Call, ORE, Advice);
  if (!isReachable(Call))
    return std::make_unique<InlineAdvice>(this, Call, ORE, false);
  return std::make_unique<TrackedAdvice>(this, Call, ORE, true);
}

bool InlineFeatureAdvisor::isOutsideRanges(CallBase &Call,
                                           OptimizationRemarkEmitter &ORE) {
  const StringRef Reason = Ranges.outside(Call, *ModelRunner);
  if (Reason.empty())
    return false;
  ORE.emit([&] {
    return OptimizationRemarkAnalysis(RemarkPass, "OutsideTrainedRanges", &Call)
           << "the heuristic decides: " << ore::NV("Reason", Reason)
           << " outside of what the policy was trained on";
  });
  return true;
}

std::optional<bool> InlineFeatureAdvisor::takeForced(ForcedDecisions &Forced,
                                                     CallBase &Call) {
  const std::optional<int64_t> Action = Forced.next(
      Call.getCaller()->getName(), Call.getCalledFunction()->getName());
  if (!Action)
    return std::nullopt;
  if (*Action == 0 && isProgram && isProgram(M) && !isSecondRound() &&
      GetDefaultAdvice(Call))
    Call.setIsNoInline();
  return *Action != 0;
}

std::unique_ptr<InlineAdvice>
InlineFeatureAdvisor::decide(CallBase &Call, OptimizationRemarkEmitter &ORE) {
  const bool Inline = isOutsideRanges(Call, ORE)
                          ? GetDefaultAdvice(Call)
                          : ModelRunner->evaluate<int64_t>() != 0;
  return std::make_unique<TrackedAdvice>(this, Call, ORE, Inline);
}

void InlineFeatureAdvisor::updateAfterInlining(const TrackedAdvice &Advice,
                                               bool CalleeWasDeleted) {
  Function &Caller = *Advice.Caller;
  const FunctionProperties After = Advice.Updater->get();
  *Properties[&Caller] = After;
  if (auto *Cached = FAM.getCachedResult<FunctionPropertiesAnalysis>(Caller))
    *Cached = {After, /*UsesAreCounted=*/false};
  if (auto *Cached = FAM.getCachedResult<CallsiteCostsAnalysis>(Caller))
    Cached->Valid = false;
  int64_t DirectCalls = After.DirectCalls;
  int64_t Size = After.Instructions;
  if (CalleeWasDeleted) {
    --NodeCount;
    History.forget(*Advice.Callee);
    NodesInLastSCC.erase(Graph.lookup(*Advice.Callee));
  } else {
    DirectCalls += properties(*Advice.Callee).DirectCalls;
    Size += Advice.CalleeSize;
  }
  EdgeCount += DirectCalls - Advice.DirectCalls;
  CurrentSize += Size - (Advice.CallerSize + Advice.CalleeSize);
  ForceStop = CurrentSize > SizeIncreaseThreshold * InitialSize;
}

InlineFeatureAdvisor::TrackedAdvice::TrackedAdvice(
    InlineFeatureAdvisor *Advisor, CallBase &Call,
    OptimizationRemarkEmitter &ORE, bool Recommended)
    : InlineAdvice(Advisor, Call, ORE, Recommended) {
  const FunctionProperties &CallerProperties = Advisor->properties(*Caller);
  const FunctionProperties &CalleeProperties = Advisor->properties(*Callee);
  CallerSize = CallerProperties.Instructions;
  CalleeSize = CalleeProperties.Instructions;
  DirectCalls = CallerProperties.DirectCalls + CalleeProperties.DirectCalls;
  if (Recommended)
    Updater.emplace(CallerProperties, Call);
}

template <typename Remark>
void InlineFeatureAdvisor::TrackedAdvice::remark(StringRef Name) {
  ORE.emit([&] {
    Remark R(RemarkPass, Name, DLoc, Block);
    R << ore::NV("Callee", Callee->getName());
    for (size_t I = 0; I < NumScalarFeatures; ++I)
      R << ore::NV(inliningFeatures()[I].name(),
                   *owner().ModelRunner->getTensor<int64_t>(I));
    R << ore::NV("ShouldInline", isInliningRecommended());
    return R;
  });
}

void InlineFeatureAdvisor::TrackedAdvice::recordInliningImpl() {
  remark<OptimizationRemark>("InliningSuccess");
  owner().updateAfterInlining(*this, /*CalleeWasDeleted=*/false);
}

void InlineFeatureAdvisor::TrackedAdvice::
    recordInliningWithCalleeDeletedImpl() {
  remark<OptimizationRemark>("InliningSuccessWithCalleeDeleted");
  owner().updateAfterInlining(*this, /*CalleeWasDeleted=*/true);
}

void InlineFeatureAdvisor::TrackedAdvice::recordUnsuccessfulInliningImpl(
    const InlineResult &) {
  remark<OptimizationRemarkMissed>("InliningAttemptedAndUnsuccessful");
}

void InlineFeatureAdvisor::TrackedAdvice::recordUnattemptedInliningImpl() {
  remark<OptimizationRemarkMissed>("InliningNotAttempted");
}
