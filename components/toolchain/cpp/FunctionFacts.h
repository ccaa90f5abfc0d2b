// The properties of a function that the inlining features need, without the analyses that the others would need.
#ifndef MLGO_FUNCTION_FACTS_H
#define MLGO_FUNCTION_FACTS_H

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

/// The five of LLVM's FunctionPropertiesInfo that are features of an inlining decision, equal to them, and those that
/// only extended features need.
struct FunctionFacts {
  int64_t Blocks = 0;            // that can be reached from the entry; the next three count in those only
  int64_t ConditionalBlocks = 0; // targets of conditional branches and switches, counted once per branch
  int64_t DirectCalls = 0;       // of functions that the module defines
  int64_t Instructions = 0;      // but debug information and pseudo probes
  int64_t OtherCalls = 0;        // indirect ones, and of functions that the module does not define, but intrinsics
  int64_t Invokes = 0;           // calls with a landing pad
  int64_t MemoryAccesses = 0;    // loads and stores
  int64_t Allocas = 0;           // stack objects
  int64_t Uses = 0;              // of the function, and one more if it can be called from elsewhere
  bool AllReachable = true;      // are all blocks counted?

  static FunctionFacts of(const llvm::Function &F);
  static int64_t usesOf(const llvm::Function &F);
};

using BlockSet = llvm::SmallPtrSet<const llvm::BasicBlock *, 32>;
BlockSet reachableBlocks(const llvm::Function &F);

/// The facts of a function since it last changed. Like LLVM's own analysis it is not told of new or vanished uses, so
/// `Uses` is as old as the function's last change: features must be what a policy was trained on.
class FunctionFactsAnalysis : public llvm::AnalysisInfoMixin<FunctionFactsAnalysis> {
public:
  struct Result {
    FunctionFacts Facts;
    bool UsesAreCounted = true; // false once the inliner changed the function, before the pass manager hears of it
  };
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &) { return {FunctionFacts::of(F)}; }

private:
  friend llvm::AnalysisInfoMixin<FunctionFactsAnalysis>;
  static llvm::AnalysisKey Key;
};

/// The facts of a caller after a call in it was inlined, for the price of the blocks that this changes: a caller of
/// thousands of blocks may see thousands of inlinings. Made before, asked after.
class FactsAfterInlining {
public:
  FactsAfterInlining(const FunctionFacts &Before, const llvm::CallBase &Call);
  FunctionFacts get() const;

private:
  void addReachable(const llvm::BasicBlock *From, BlockSet &Found) const;
  bool comesBack(const BlockSet &Reached) const;

  const llvm::BasicBlock *const CallBlock;
  const llvm::BasicBlock *UnwindBlock = nullptr; // of an invoke; what is inlined may split it
  const llvm::Instruction *AfterCall = nullptr;  // what ends the call's block, of a plain call; only to compare with
  const llvm::BasicBlock *NormalDest = nullptr;  // of an invoke
  BlockSet Beyond;                               // where what is inlined ends
  FunctionFacts Rest;                            // the caller's without CallBlock, the entry and Beyond
};

#endif
