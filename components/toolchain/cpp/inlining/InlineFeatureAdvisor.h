// Base class of our inline advisors: tracks the state of the module and
// computes the features of a decision.
//
// The features, their values and the order of the decisions are those of LLVM's
// MLInlineAdvisor, for which policies are trained (a test compares them
// decision by decision). This class exists because LLVM's takes a tenth of the
// compile time: it walks the callee twice for each decision, and computes a
// dominator tree and the loops of the caller after each inlining. This one
// caches the costs of callees (CallsiteCosts.h) and counts with a plain walk
// (FunctionProperties.h).
#ifndef MLGO_INLINE_FEATURE_ADVISOR_H
#define MLGO_INLINE_FEATURE_ADVISOR_H

#include "decisions/ForcedDecisions.h"
#include "inlining/features/CallsiteCosts.h"
#include "inlining/features/ExtendedFeatures.h"
#include "inlining/features/FunctionProperties.h"
#include "inlining/features/TrainedRanges.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/IR/DiagnosticInfo.h"

namespace mlgo {

/// Inlines by the decisions of a model runner, with LLVM's and the extended
/// features.
class InlineFeatureAdvisor : public llvm::InlineAdvisor {
public:
  InlineFeatureAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                       std::unique_ptr<llvm::MLModelRunner> Runner,
                       std::function<bool(llvm::CallBase &)> GetDefaultAdvice);

  void onPassEntry(llvm::LazyCallGraph::SCC *Current) override;
  void onPassExit(llvm::LazyCallGraph::SCC *Current) override;

  const llvm::MLModelRunner &modelRunner() const { return *ModelRunner; }

  /// Takes the heuristic's decisions outside of \p Trained.
  void setTrainedRanges(TrainedRanges Trained) { Ranges = std::move(Trained); }

protected:
  class TrackedAdvice;

  /// Decides on a call whose features the model runner holds. Not called for
  /// mandatory inlining, which is not a decision.
  virtual std::unique_ptr<llvm::InlineAdvice>
  decide(llvm::CallBase &Call, llvm::OptimizationRemarkEmitter &ORE);

  /// Returns the next forced decision about the call, if any. In a program,
  /// which goes through the inliner again, a call that is forced to stay where
  /// the heuristic would inline it is marked, and stays.
  std::optional<bool> takeForced(ForcedDecisions &Forced, llvm::CallBase &Call);

  /// Returns whether the call, whose features the model runner holds, is
  /// outside of the trained ranges, and emits a remark if it is.
  bool isOutsideRanges(llvm::CallBase &Call,
                       llvm::OptimizationRemarkEmitter &ORE);

  std::unique_ptr<llvm::InlineAdvice>
  getAdviceImpl(llvm::CallBase &Call) override;
  std::unique_ptr<llvm::InlineAdvice> getMandatoryAdvice(llvm::CallBase &Call,
                                                         bool Advice) override;

  const std::unique_ptr<llvm::MLModelRunner> ModelRunner;
  const std::function<bool(llvm::CallBase &)> GetDefaultAdvice;
  DecisionHistory History;

private:
  using Node = llvm::LazyCallGraph::Node;

  void levelFunctions();
  const FunctionProperties &properties(llvm::Function &F);
  bool isReachable(llvm::CallBase &Call);
  CallsiteCostsAnalysis::Result &calleeCosts(llvm::CallBase &Call);
  MandatoryInliningKind mandatoryKind(llvm::CallBase &Call,
                                      CallsiteCosts &Costs);
  bool canBeInlined(llvm::CallBase &Call, CallsiteCosts &Costs, bool Mandatory);
  void setFeatures(llvm::CallBase &Call, const CallsiteCosts &Costs);
  void updateAfterInlining(const TrackedAdvice &Advice, bool CalleeWasDeleted);

  TrainedRanges Ranges;
  const float SizeIncreaseThreshold; ///< As a factor of InitialSize.
  llvm::LazyCallGraph &Graph;
  /// For every node, the length of the longest chain of calls below it.
  llvm::DenseMap<const Node *, unsigned> Levels;
  /// Nodes that the last pass processed and that still exist.
  llvm::SmallPtrSet<const Node *, 4> NodesInLastSCC;
  /// Properties in the current pass.
  llvm::DenseMap<const llvm::Function *, std::unique_ptr<FunctionProperties>>
      Properties;
  int64_t NodeCount = 0, EdgeCount = 0, EdgesOfLastSCC = 0;
  /// Instructions in the module.
  int32_t InitialSize = 0, CurrentSize = 0;
  /// Whether the module has grown beyond the threshold: only mandatory inlining
  /// continues, and nothing is tracked any more.
  bool ForceStop = false;
};

/// Advice that reports its outcome to the advisor.
class InlineFeatureAdvisor::TrackedAdvice : public llvm::InlineAdvice {
public:
  TrackedAdvice(InlineFeatureAdvisor *Advisor, llvm::CallBase &Call,
                llvm::OptimizationRemarkEmitter &ORE, bool Recommended);

protected:
  void recordInliningImpl() override;
  void recordInliningWithCalleeDeletedImpl() override;
  void
  recordUnsuccessfulInliningImpl(const llvm::InlineResult &Result) override;
  void recordUnattemptedInliningImpl() override;

  InlineFeatureAdvisor &owner() const {
    return *static_cast<InlineFeatureAdvisor *>(Advisor);
  }

private:
  friend InlineFeatureAdvisor;
  template <typename Remark> void remark(llvm::StringRef Name);

  /// Before inlining.
  int64_t CallerSize = 0, CalleeSize = 0, DirectCalls = 0;
  /// Set if inlining is recommended.
  std::optional<FunctionPropertiesUpdater> Updater;
};

} // namespace mlgo

#endif
