// What LLVM's inline cost analyses say of a call, remembered per callee.
//
// They walk the whole callee, twice, for each call of it; but of the call they see only a little. Calls that agree in
// that get the same answers, so a callee is walked once for all of them, until it changes.
#ifndef MLGO_CALLSITE_COSTS_H
#define MLGO_CALLSITE_COSTS_H

#include "llvm/Analysis/InlineCost.h"
#include "llvm/IR/Attributes.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

/// All that the analyses can see of a call from outside of its callee: attributes of caller and call, and of each
/// argument what `CallsiteView` says. Two calls of one callee with equal views have equal costs.
struct CallsiteView {
  /// Nothing if the answers depend on more than a view can hold.
  static std::optional<CallsiteView> of(llvm::CallBase &Call, bool CalleeHasLargeAllocas);

  bool operator==(const CallsiteView &Other) const {
    return CallerAttributes == Other.CallerAttributes && Words == Other.Words;
  }
  struct Hash {
    size_t operator()(const CallsiteView &View) const;
  };

  llvm::AttributeSet CallerAttributes;
  std::vector<uint64_t> Words;
};

/// Each answer is asked for when it is first needed. The inner optional is LLVM's: nothing if inlining is impossible.
struct CallsiteCosts {
  std::optional<std::optional<llvm::InlineResult>> Mandatory;
  std::optional<std::optional<int>> Estimate;
  std::optional<std::optional<llvm::InlineCostFeatures>> Features;
};

/// The costs of a function's callsites since it last changed.
class CallsiteCostsAnalysis : public llvm::AnalysisInfoMixin<CallsiteCostsAnalysis> {
public:
  class Result {
  public:
    explicit Result(const llvm::Function &Callee);

    /// The remembered costs of calls like this one; of a call that is like no other, empty ones, valid until the next.
    CallsiteCosts &of(llvm::CallBase &Call);

    /// The cost estimate, where the features tell what it is: they count the same things one by one.
    std::optional<int> estimate(const llvm::CallBase &Call, const llvm::InlineCostFeatures &Features) const;

    bool Valid = true; // false once the inliner changed the function, before the pass manager hears of it

  private:
    bool SeesMore = false;         // the target's cost model looks at more of a call than a view holds
    bool HasLargeAllocas = false;  // so that LLVM looks whether the caller is recursive
    bool FeaturesTellCost = false; // if nothing about the call forbids
    std::unordered_map<CallsiteView, CallsiteCosts, CallsiteView::Hash> Costs;
    std::unique_ptr<CallsiteCosts> Unlike;
  };
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) { return Result(F); }

private:
  friend llvm::AnalysisInfoMixin<CallsiteCostsAnalysis>;
  static llvm::AnalysisKey Key;
};

#endif
