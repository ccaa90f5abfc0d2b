// For a training plugin, which embeds no policy: in release mode LLVM's own
// advisor takes decisions from another process.
#include "inlining/InlineAdvisors.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace llvm;

std::unique_ptr<InlineAdvisor>
mlgo::createInlineReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                 DefaultAdvice GetDefaultAdvice) {
  std::unique_ptr<InlineAdvisor> Advisor =
      createLLVMReleaseAdvisor(M, MAM, std::move(GetDefaultAdvice));
  if (!Advisor)
    M.getContext().emitError("-enable-ml-inliner=release needs a release "
                             "plugin: mlgo toolchain --mode release "
                             "--strategy plugin");
  return Advisor;
}
