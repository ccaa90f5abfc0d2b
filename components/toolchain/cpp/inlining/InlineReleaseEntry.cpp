// The function that LLVM's InlineAdvisor.cpp calls for
// -enable-ml-inliner=release. LLVM's own, in MLInlineAdvisor.cpp, is compiled
// under another name (see CMakeLists.txt).
#include "inlining/InlineAdvisors.h"

using namespace llvm;

namespace llvm {
std::unique_ptr<InlineAdvisor>
getLLVMReleaseModeAdvisor(Module &M, ModuleAnalysisManager &MAM,
                          std::function<bool(CallBase &)> GetDefaultAdvice);
}

std::unique_ptr<InlineAdvisor>
llvm::getReleaseModeAdvisor(Module &M, ModuleAnalysisManager &MAM,
                            std::function<bool(CallBase &)> GetDefaultAdvice) {
  return mlgo::createInlineReleaseAdvisor(M, MAM, std::move(GetDefaultAdvice));
}

std::unique_ptr<InlineAdvisor>
mlgo::createLLVMReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                               DefaultAdvice GetDefaultAdvice) {
  return getLLVMReleaseModeAdvisor(M, MAM, std::move(GetDefaultAdvice));
}
