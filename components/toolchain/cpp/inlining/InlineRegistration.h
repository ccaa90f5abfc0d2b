// Registers our inline advisors with a pass pipeline of an unmodified LLVM.
//
// LLVM asks PluginInlineAdvisorAnalysis (llvm/Analysis/InlineAdvisor.h) before
// it considers its own advisors. There is no such hook for register allocation.
#ifndef MLGO_INLINE_REGISTRATION_H
#define MLGO_INLINE_REGISTRATION_H

#include "llvm/Passes/PassBuilder.h"

namespace mlgo {

/// Makes the pipelines of \p Builder ask our advisors. -enable-ml-inliner
/// selects one; without the option LLVM's heuristic decides.
void registerInlineAdvisor(llvm::PassBuilder &Builder);

/// Makes -enable-ml-inliner=release, which the user did not give, a default:
/// in whole programs, which the policy makes larger as often as smaller, LLVM's
/// heuristic decides. Only our linker has it.
void usePolicyByDefault() __attribute__((weak));

} // namespace mlgo

#endif
