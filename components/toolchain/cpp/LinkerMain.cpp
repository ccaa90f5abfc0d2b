// The linker of the release toolchain: lld for ELF with the same advisors and
// policies as the release clang, for ThinLTO and full LTO.
#include "InlineRegistration.h"
#include "LLVMVersion.h"
#include "Outlining.h"
#include "lld/Common/Driver.h"
#include "lld/Common/ErrorHandler.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/InitLLVM.h"

LLD_HAS_DRIVER(elf)

// Debian's LLVM was built with Polly as an extension: every pipeline of LTO
// asks it for its passes. In its place our advisor is registered, because
// LLVM's pipeline of full LTO ignores -enable-ml-inliner, and the outliner.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo", LLVM_VERSION_STRING,
          [](llvm::PassBuilder &Builder) {
#ifdef MLGO_POLICY_INLINING
            mlgo::registerInlineAdvisor(Builder);
#endif
            mlgo::registerOutlining(Builder);
          }};
}

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  llvm::SmallVector<const char *, 256> Arguments(Argv, Argv + Argc);
  lld::Result Ended = lld::lldMain(Arguments, llvm::outs(), llvm::errs(),
                                   {{lld::Gnu, &lld::elf::link}});
  // Destructors of a large link take long.
  if (!Ended.canRunAgain)
    lld::exitLld(Ended.retCode);
  return Ended.retCode;
}
