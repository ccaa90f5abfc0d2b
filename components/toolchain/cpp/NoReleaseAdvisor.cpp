// For a training plugin, which embeds no policy: in release mode LLVM's own
// advisor takes decisions from another process.
#include "InlineAdvisors.h"

using namespace llvm;

std::unique_ptr<InlineAdvisor>
mlgo::createInlineReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                 DefaultAdvice GetDefaultAdvice) {
  return createLLVMReleaseAdvisor(M, MAM, std::move(GetDefaultAdvice));
}
