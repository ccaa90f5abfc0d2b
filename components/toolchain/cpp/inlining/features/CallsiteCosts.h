// Cache of the results of LLVM's inline cost analyses, per callee.
//
// The analyses walk the whole callee twice for each call, but they look at only
// a few properties of the call. Calls that agree in these properties have the
// same results, so a callee is walked once for all of them, until it changes.
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

namespace mlgo {

/// Everything that the analyses can see of a call besides its callee: the
/// attributes of caller and call, and for each argument whether it is constant
/// data and its base and offset if it is a pointer. Calls of the same callee
/// with equal keys have equal costs.
struct CallsiteKey {
  /// Returns the key of \p Call, or nothing if its costs depend on more than a
  /// key can hold.
  static std::optional<CallsiteKey> of(llvm::CallBase &Call,
                                       bool CalleeHasLargeAllocas);

  bool operator==(const CallsiteKey &Other) const {
    return CallerAttributes == Other.CallerAttributes && Words == Other.Words;
  }
  struct Hash {
    size_t operator()(const CallsiteKey &Key) const;
  };

  llvm::AttributeSet CallerAttributes;
  std::vector<uint64_t> Words;
};

/// Cached results of the analyses, each computed when it is first needed. The
/// inner optional is LLVM's: nothing if inlining is impossible.
struct CallsiteCosts {
  std::optional<std::optional<llvm::InlineResult>> Mandatory;
  std::optional<std::optional<int>> Estimate;
  std::optional<std::optional<llvm::InlineCostFeatures>> Features;
};

/// Caches the costs of a function's callsites until the function changes.
class CallsiteCostsAnalysis
    : public llvm::AnalysisInfoMixin<CallsiteCostsAnalysis> {
public:
  class Result {
  public:
    explicit Result(const llvm::Function &Callee);

    /// Returns the cached costs of calls with the key of \p Call. For a call
    /// without a key returns empty costs, which are valid until the next call
    /// of this function.
    CallsiteCosts &of(llvm::CallBase &Call);

    /// Returns the cost estimate if it can be computed from \p Features, which
    /// count its components one by one.
    std::optional<int> estimate(const llvm::CallBase &Call,
                                const llvm::InlineCostFeatures &Features,
                                const llvm::TargetTransformInfo &Target) const;

    /// False once the inliner changed the function, before the pass manager
    /// invalidates the analysis.
    bool Valid = true;

  private:
    /// Whether the target's cost model sees more of a call than a key holds.
    bool SeesMore = false;
    /// If true, LLVM checks whether the caller is recursive.
    bool HasLargeAllocas = false;
    /// Whether `estimate` is possible, unless the call prevents it.
    bool FeaturesTellCost = false;
    std::unordered_map<CallsiteKey, CallsiteCosts, CallsiteKey::Hash> Costs;
    std::unique_ptr<CallsiteCosts> Uncached;
  };
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) {
    return Result(F);
  }

private:
  friend llvm::AnalysisInfoMixin<CallsiteCostsAnalysis>;
  static llvm::AnalysisKey Key;
};

} // namespace mlgo

#endif
