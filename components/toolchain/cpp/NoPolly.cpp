// Debian's clang libraries were built with Polly as an extension and ask it for its passes. The polyhedral optimizer is
// off unless asked for and is a package of its own, so here it has none to register.
#include "llvm/Config/llvm-config.h"
#include "llvm/Passes/PassPlugin.h"

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly (not linked)", LLVM_VERSION_STRING, [](llvm::PassBuilder &) {}};
}
