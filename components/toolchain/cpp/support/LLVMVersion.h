// The differences between the LLVM versions that our inline advisors are built
// with (19 and 22).
#ifndef MLGO_LLVM_VERSION_H
#define MLGO_LLVM_VERSION_H

#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Config/llvm-config.h"

#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

namespace mlgo {

/// Returns what the cost of the last call of a local function is reduced by.
/// Targets choose it since LLVM 20.
inline int lastCallToStaticBonus(const llvm::TargetTransformInfo &Target) {
#if LLVM_VERSION_MAJOR >= 20
  return Target.getInliningLastCallToStaticBonus();
#else
  (void)Target;
  return llvm::InlineConstants::LastCallToStaticBonus;
#endif
}

} // namespace mlgo

#endif
