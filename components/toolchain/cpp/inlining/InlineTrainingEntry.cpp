// The function that LLVM's InlineAdvisor.cpp calls for
// -enable-ml-inliner=development.
#include "inlining/InlineAdvisors.h"

using namespace llvm;

std::unique_ptr<InlineAdvisor> llvm::getDevelopmentModeAdvisor(
    Module &M, ModuleAnalysisManager &MAM,
    std::function<bool(CallBase &)> GetDefaultAdvice) {
  return mlgo::createInlineTrainingAdvisor(M, MAM, std::move(GetDefaultAdvice));
}
