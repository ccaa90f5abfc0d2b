// A pass plugin that brings our inline advisors into an unmodified clang:
//
//   clang -fplugin=mlgo-inliner.so -fpass-plugin=mlgo-inliner.so ...
//
// -fpass-plugin registers the advisor. -fplugin loads the plugin before -mllvm
// options are parsed, and is needed only for our own ones. -enable-ml-inliner
// selects the advisor as in our clangs; without it LLVM's heuristic decides.
// ld.lld takes --load-pass-plugin=.
#include "inlining/InlineAdvisors.h"
#include "inlining/InlineRegistration.h"
#include "support/LLVMVersion.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace llvm;
using namespace mlgo;

/// Ends a compiler of another LLVM version. Called before anything else in the
/// plugin, because the layout of LLVM's classes differs between versions.
__attribute__((constructor(101))) static void checkVersion() {
  auto *GetVersion =
      reinterpret_cast<void (*)(unsigned *, unsigned *, unsigned *)>(
          dlsym(RTLD_DEFAULT, "LLVMGetVersion"));
  unsigned Major = LLVM_VERSION_MAJOR, Minor, Patch;
  if (GetVersion)
    GetVersion(&Major, &Minor, &Patch);
  if (Major == LLVM_VERSION_MAJOR)
    return;
  std::fprintf(stderr,
               "error: this inlining plugin was built for LLVM %d, but the "
               "compiler is LLVM %u; build one for it with: mlgo toolchain "
               "--strategy plugin --llvm-major %u\n",
               LLVM_VERSION_MAJOR, Major, Major);
  std::_Exit(1);
}

std::unique_ptr<InlineAdvisor>
mlgo::createLLVMReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                               DefaultAdvice GetDefaultAdvice) {
  return llvm::getReleaseModeAdvisor(M, MAM, std::move(GetDefaultAdvice));
}

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-inliner", LLVM_VERSION_STRING,
          registerInlineAdvisor};
}
