// Included before LLVM's MLRegAllocEvictAdvisor.cpp: LLVM's heuristic decides
// where a register has more candidates than the features have columns.
//
// LLVM writes the features of each candidate to a column, up to the 33rd, and
// beyond. Vector registers of PowerPC are 64, and an order of allocation has a
// register twice that a target hints at twice (AArch64 since LLVM 20).
#ifndef MLGO_EVICTION_HOOK_H
#define MLGO_EVICTION_HOOK_H

#include "AllocationOrder.h"
#include "MLRegAllocEvictAdvisor.h"
#include "llvm/Config/llvm-config.h"

#if LLVM_VERSION_MAJOR >= 20
#include "llvm/CodeGen/RegAllocEvictionAdvisor.h"
#else
#include "RegAllocEvictionAdvisor.h"
#endif

namespace mlgo {

/// Returns whether \p Order has more registers than the features have columns
/// for candidates.
inline bool exceedsFeatures(const llvm::AllocationOrder &Order) {
  int64_t Registers = 0;
  for (auto I = Order.begin(), E = Order.end(); I != E; ++I)
    if (++Registers > MaxInterferences)
      return true;
  return false;
}

} // namespace mlgo

// A statement of MLEvictAdvisor::tryFindEvictionCandidate, before it fills the
// columns.
#define getOrderLimit(Range, Order, Limit)                                     \
  getOrderLimit(Range, Order, Limit);                                          \
  if (mlgo::exceedsFeatures(Order))                                            \
  return getDefaultAdvisor().tryFindEvictionCandidate(Range, Order, Limit,     \
                                                      FixedRegisters)

#endif
