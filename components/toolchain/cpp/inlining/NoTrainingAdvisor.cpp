// For a release plugin and the release linker, which do not train.
#include "inlining/InlineAdvisors.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace llvm;

std::unique_ptr<InlineAdvisor>
mlgo::createInlineTrainingAdvisor(Module &M, ModuleAnalysisManager &,
                                  DefaultAdvice) {
  M.getContext().emitError("-enable-ml-inliner=development needs a training "
                           "plugin: mlgo toolchain --mode training "
                           "--strategy plugin");
  return nullptr;
}
