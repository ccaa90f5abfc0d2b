// The entry point that LLVM's build generates for clang; clang_main is defined
// in clang/tools/driver/driver.cpp.
#include "LLVMVersion.h"
#include "Outlining.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LLVMDriver.h"

#include <cstdio>
#include <cstring>

// Debian's clang libraries were built with Polly as an extension and ask it for
// its passes. The polyhedral optimizer is off by default and in a separate
// package. In its place a pass of ours is registered.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo", LLVM_VERSION_STRING,
          mlgo::registerOutlining};
}

int clang_main(int Argc, char **Argv, const llvm::ToolContext &Context);

/// What --version says after clang's own lines; a clang without a policy has
/// none.
extern "C" __attribute__((weak)) const char mlgoDescription[];

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  const bool ShowsVersion = Argc == 2 && std::strcmp(Argv[1], "--version") == 0;
  int Status = clang_main(Argc, Argv, {Argv[0], nullptr, false});
  if (ShowsVersion && Status == 0 && mlgoDescription)
    std::fputs(mlgoDescription, stdout);
  return Status;
}
