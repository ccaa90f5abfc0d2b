// Creates our inline advisors. A clang that is linked with them calls these
// functions in place of LLVM's (InlineTrainingEntry.cpp,
// InlineReleaseEntry.cpp), a plugin and the linker through
// PluginInlineAdvisorAnalysis (InlineRegistration.cpp).
#ifndef MLGO_INLINE_ADVISORS_H
#define MLGO_INLINE_ADVISORS_H

#include "llvm/Analysis/InlineAdvisor.h"

namespace mlgo {

using DefaultAdvice = std::function<bool(llvm::CallBase &)>;

/// Returns an advisor that decides by LLVM's heuristic.
std::unique_ptr<llvm::InlineAdvisor>
createHeuristicAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                       DefaultAdvice GetDefaultAdvice);

/// Returns the advisor of -enable-ml-inliner=development: it logs decisions and
/// takes them from the policy that the command line names. Of a program, which
/// goes through the inliner twice, it logs and forces the decisions of both
/// times without a policy, and of the first with one. Returns null after it has
/// reported an error.
std::unique_ptr<llvm::InlineAdvisor>
createInlineTrainingAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                            DefaultAdvice GetDefaultAdvice);

/// Returns the advisor of -enable-ml-inliner=release: it decides by the
/// embedded policy.
std::unique_ptr<llvm::InlineAdvisor>
createInlineReleaseAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                           DefaultAdvice GetDefaultAdvice);

/// Returns LLVM's own advisor for -enable-ml-inliner=release. Null if LLVM has
/// no model and takes decisions from no other process.
std::unique_ptr<llvm::InlineAdvisor>
createLLVMReleaseAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                         DefaultAdvice GetDefaultAdvice);

} // namespace mlgo

#endif
