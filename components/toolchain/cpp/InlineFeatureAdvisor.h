// The base of our inline advisors: keeps the state of the module and makes the features of a decision.
//
// The features, their values and the order of the decisions are those of LLVM's MLInlineAdvisor, for which policies are
// made (a test compares them, decision by decision). It exists because LLVM's costs a tenth of the compile: two walks
// of the callee for each decision, and a dominator tree and loops of the caller after each inlining. This one remembers
// callees (CallsiteCosts.h) and counts with a plain walk (FunctionFacts.h).
#ifndef MLGO_INLINE_FEATURE_ADVISOR_H
#define MLGO_INLINE_FEATURE_ADVISOR_H

#include "CallsiteCosts.h"
#include "ExtendedFeatures.h"
#include "FunctionFacts.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/IR/DiagnosticInfo.h"

class InlineFeatureAdvisor : public llvm::InlineAdvisor {
public:
  InlineFeatureAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM, std::unique_ptr<llvm::MLModelRunner> Runner,
                       std::function<bool(llvm::CallBase &)> GetDefaultAdvice);

  void onPassEntry(llvm::LazyCallGraph::SCC *Current) override;
  void onPassExit(llvm::LazyCallGraph::SCC *Current) override;

  const llvm::MLModelRunner &modelRunner() const { return *ModelRunner; }

protected:
  class TrackedAdvice;

  /// Decides on a call whose features the model runner holds. Mandatory inlining is no decision and does not come here.
  virtual std::unique_ptr<llvm::InlineAdvice> decide(llvm::CallBase &Call, llvm::OptimizationRemarkEmitter &ORE);

  std::unique_ptr<llvm::InlineAdvice> getAdviceImpl(llvm::CallBase &Call) override;
  std::unique_ptr<llvm::InlineAdvice> getMandatoryAdvice(llvm::CallBase &Call, bool Advice) override;

  const std::unique_ptr<llvm::MLModelRunner> ModelRunner;
  const std::function<bool(llvm::CallBase &)> GetDefaultAdvice;
  mlgo::DecisionHistory History;

private:
  using Node = llvm::LazyCallGraph::Node;

  void levelFunctions();
  const FunctionFacts &facts(llvm::Function &F);
  bool isReachable(llvm::CallBase &Call);
  CallsiteCostsAnalysis::Result &callee(llvm::CallBase &Call);
  MandatoryInliningKind mandatoryKind(llvm::CallBase &Call, CallsiteCosts &Known);
  bool canBeInlined(llvm::CallBase &Call, CallsiteCosts &Known, bool Mandatory);
  void setFeatures(llvm::CallBase &Call, const CallsiteCosts &Known);
  void inlined(const TrackedAdvice &Advice, bool CalleeWasDeleted);

  const float SizeIncreaseThreshold; // factor
  llvm::LazyCallGraph &Graph;
  llvm::DenseMap<const Node *, unsigned> Levels;      // of every node, longest chain of calls below it
  llvm::SmallPtrSet<const Node *, 4> NodesInLastSCC;  // that the last pass worked on and that are still there
  llvm::DenseMap<const llvm::Function *, std::unique_ptr<FunctionFacts>> Facts; // of this pass
  int64_t NodeCount = 0, EdgeCount = 0, EdgesOfLastSCC = 0;
  int32_t InitialSize = 0, CurrentSize = 0; // instructions in the module
  bool Stopped = false;                     // it has grown beyond bounds: nothing more is inlined or tracked
};

/// Tells its advisor what became of it.
class InlineFeatureAdvisor::TrackedAdvice : public llvm::InlineAdvice {
public:
  TrackedAdvice(InlineFeatureAdvisor *Advisor, llvm::CallBase &Call, llvm::OptimizationRemarkEmitter &ORE,
                bool Recommended);

protected:
  void recordInliningImpl() override;
  void recordInliningWithCalleeDeletedImpl() override;
  void recordUnsuccessfulInliningImpl(const llvm::InlineResult &Result) override;
  void recordUnattemptedInliningImpl() override;

  InlineFeatureAdvisor &owner() const { return *static_cast<InlineFeatureAdvisor *>(Advisor); }

private:
  friend InlineFeatureAdvisor;
  template <typename Remark> void remark(llvm::StringRef Name);

  int64_t CallerSize = 0, CalleeSize = 0, DirectCalls = 0; // before
  std::optional<FactsAfterInlining> FactsAfter;            // if it is recommended
};

#endif
