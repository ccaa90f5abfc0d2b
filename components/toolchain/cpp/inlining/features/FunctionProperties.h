// The properties of a function that the inlining features need, computed
// without the analyses that LLVM's other function properties need.
#ifndef MLGO_FUNCTION_PROPERTIES_H
#define MLGO_FUNCTION_PROPERTIES_H

#include "ir2vec/IR2VecEmbedding.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

namespace mlgo {

/// The five properties of LLVM's FunctionPropertiesInfo that are features of an
/// inlining decision, with equal values, and those that only our own features
/// need. Everything but `Uses` is counted in reachable blocks only.
struct FunctionProperties {
  /// Blocks that can be reached from the entry.
  int64_t Blocks = 0;
  /// Targets of conditional branches and switches, counted once per branch.
  int64_t ConditionalBlocks = 0;
  /// Calls of functions that the module defines.
  int64_t DirectCalls = 0;
  /// Instructions, without debug information and pseudo probes.
  int64_t Instructions = 0;
  /// Indirect calls, and calls of functions that the module does not define,
  /// without intrinsics.
  int64_t OtherCalls = 0;
  /// Calls with a landing pad.
  int64_t Invokes = 0;
  /// Loads and stores.
  int64_t MemoryAccesses = 0;
  /// Stack objects.
  int64_t Allocas = 0;
  /// The function's embedding, before it is multiplied with the vocabulary.
  EntityCounts Entities;
  /// Uses of the function, plus one if it can be called from outside of the
  /// module.
  int64_t Uses = 0;
  /// Whether all blocks are reachable.
  bool AllReachable = true;

  static FunctionProperties of(const llvm::Function &F);
  static int64_t usesOf(const llvm::Function &F);
};

using BlockSet = llvm::SmallPtrSet<const llvm::BasicBlock *, 32>;
BlockSet reachableBlocks(const llvm::Function &F);

/// Caches the properties of a function until it changes. Like LLVM's analysis
/// it is not invalidated by new or removed uses, so `Uses` is as old as the
/// function's last change. This must stay so: features must have the values
/// that policies were trained on.
class FunctionPropertiesAnalysis
    : public llvm::AnalysisInfoMixin<FunctionPropertiesAnalysis> {
public:
  struct Result {
    FunctionProperties Properties;
    /// False once the inliner changed the function, before the pass manager
    /// invalidates the analysis.
    bool UsesAreCounted = true;
  };
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) {
    return {FunctionProperties::of(F)};
  }

private:
  friend llvm::AnalysisInfoMixin<FunctionPropertiesAnalysis>;
  static llvm::AnalysisKey Key;
};

/// Computes the properties of a caller after a call in it was inlined, by
/// visiting only the blocks that this changes: thousands of calls may be
/// inlined into a caller with thousands of blocks. Construct it before inlining
/// and call get() afterwards.
class FunctionPropertiesUpdater {
public:
  FunctionPropertiesUpdater(const FunctionProperties &Before,
                            const llvm::CallBase &Call);
  FunctionProperties get() const;

private:
  /// Adds \p From and the blocks that can be reached from it to \p Blocks. Does
  /// not go beyond the blocks in `Beyond`, except for `UnwindBlock`.
  void addReachable(const llvm::BasicBlock *From, BlockSet &Blocks) const;

  /// Returns whether the inlined code returns. If not, the rest of the call's
  /// block has become an unreachable block.
  bool inlineeReturns(const BlockSet &Reached) const;

  const llvm::BasicBlock *const CallBlock;
  /// Unwind destination of an invoke; inlining may split it.
  const llvm::BasicBlock *UnwindBlock = nullptr;
  /// Terminator of the block of a plain call; only compared, not dereferenced.
  const llvm::Instruction *AfterCall = nullptr;
  /// Normal destination of an invoke.
  const llvm::BasicBlock *NormalDest = nullptr;
  /// Blocks at which the inlined code ends, and others that it changes.
  BlockSet Beyond;
  /// Properties of the caller without CallBlock, the entry and Beyond.
  FunctionProperties Rest;
};

} // namespace mlgo

#endif
