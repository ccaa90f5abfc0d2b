// The entry point that LLVM's build generates for clang; clang_main is defined
// in clang/tools/driver/driver.cpp.
#include "support/LLVMOptions.h"
#include "support/ReleaseDefaults.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LLVMDriver.h"
#include "llvm/TargetParser/Triple.h"

#include <cstdio>
#include <cstring>
#include <vector>

int clang_main(int Argc, char **Argv, const llvm::ToolContext &Context);

/// What --version says after clang's own lines; a clang without a policy has
/// none.
extern "C" __attribute__((weak)) const char mlgoDescription[];

/// Returns the arguments of the driver with a linker that knows LLVM's bitcode
/// where LTO for ELF needs one. Without a choice clang runs GNU's, which asks
/// for LLVMgold.so.
static std::vector<char *> withLTOLinker(llvm::ArrayRef<char *> Arguments) {
  static char Start[] = "--start-no-unused-arguments",
              Linker[] = "-fuse-ld=lld", End[] = "--end-no-unused-arguments";
  std::vector<char *> Result = Arguments.vec();
  // Compiles, which the driver starts, have no linker.
  if (Arguments.size() > 1 && llvm::StringRef(Arguments[1]).starts_with("-cc1"))
    return Result;
  const std::vector<std::string> Expanded =
      mlgo::expandResponseFiles(Arguments);
  bool HasLTO = false;
  std::string Target = LLVM_DEFAULT_TARGET_TRIPLE;
  for (size_t I = 1; I < Expanded.size(); ++I) {
    llvm::StringRef Argument = Expanded[I];
    if (Argument.starts_with("-cc1") || Argument.starts_with("-fuse-ld=") ||
        Argument.starts_with("--ld-path=") || Argument.starts_with("--config"))
      return Result;
    if (Argument == "-flto" || Argument.starts_with("-flto="))
      HasLTO = true;
    else if (Argument == "-fno-lto")
      HasLTO = false;
    else if (Argument.consume_front("--target="))
      Target = Argument.str();
    else if (Argument == "-target" && I + 1 < Expanded.size())
      Target = Expanded[I + 1];
  }
  if (HasLTO && llvm::Triple(Target).isOSBinFormatELF())
    Result.insert(Result.begin() + 1, {Start, Linker, End});
  return Result;
}

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  const bool ShowsVersion = Argc == 2 && std::strcmp(Argv[1], "--version") == 0;
  const llvm::ArrayRef<char *> CommandLine(Argv, Argc);
  std::vector<char *> Arguments = mlgo::hasReleaseDefaults()
                                      ? withLTOLinker(CommandLine)
                                      : CommandLine.vec();
  Argc = static_cast<int>(Arguments.size());
  Arguments.push_back(nullptr);
  int Status = clang_main(Argc, Arguments.data(), {Argv[0], nullptr, false});
  if (ShowsVersion && Status == 0 && mlgoDescription)
    std::fputs(mlgoDescription, stdout);
  return Status;
}
