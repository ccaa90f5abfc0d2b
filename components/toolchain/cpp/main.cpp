// The entry point that LLVM's build generates for clang; clang_main is defined
// in clang/tools/driver/driver.cpp.
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LLVMDriver.h"

int clang_main(int Argc, char **Argv, const llvm::ToolContext &Context);

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  return clang_main(Argc, Argv, {Argv[0], nullptr, false});
}
