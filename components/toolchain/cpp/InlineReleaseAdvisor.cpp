// The inline advisor of the release clang: decides by the policy that is compiled in.
//
// It provides llvm::getReleaseModeAdvisor, which -enable-ml-inliner=release asks for. LLVM's own, in MLInlineAdvisor.cpp,
// is compiled under another name (see CMakeLists.txt) and still serves -inliner-interactive-channel-base, by which
// another process decides.
#include "InlineFeatureAdvisor.h"
#include "InlinerSizeModel.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;

namespace llvm {
std::unique_ptr<InlineAdvisor> getLLVMReleaseModeAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                                         std::function<bool(CallBase &)> GetDefaultAdvice);
}

static bool isGiven(StringRef Option) { return cl::getRegisteredOptions().lookup(Option)->getNumOccurrences() > 0; }

std::unique_ptr<InlineAdvisor> llvm::getReleaseModeAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                                           std::function<bool(CallBase &)> GetDefaultAdvice) {
  if (isGiven("inliner-interactive-channel-base"))
    return getLLVMReleaseModeAdvisor(M, MAM, std::move(GetDefaultAdvice));
  for (StringRef Option : {"ml-inliner-skip-policy", "ml-inliner-model-selector", "ml-advisor-keep-fpi-cache"})
    if (isGiven(Option))
      M.getContext().emitError("-" + Option + " is not supported by the inline advisor of this clang");
  auto Model = std::make_unique<ReleaseModeModelRunner<InlinerSizeModel>>(M.getContext(), FeatureMap, DecisionName);
  return std::make_unique<InlineFeatureAdvisor>(M, MAM, std::move(Model), std::move(GetDefaultAdvice));
}
