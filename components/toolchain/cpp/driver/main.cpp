// The entry point that LLVM's build generates for clang; clang_main is defined
// in clang/tools/driver/driver.cpp.
#include "program/KeepSmaller.h"
#include "support/LLVMOptions.h"
#include "support/ReleaseDefaults.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LLVMDriver.h"
#include "llvm/Support/Path.h"
#include "llvm/TargetParser/Triple.h"

#include <cstdio>
#include <cstring>
#include <vector>

int clang_main(int Argc, char **Argv, const llvm::ToolContext &Context);

/// What --version says after clang's own lines; a clang without a policy has
/// none.
extern "C" __attribute__((weak)) const char mlgoDescription[];

static char StartUnused[] = "--start-no-unused-arguments",
            EndUnused[] = "--end-no-unused-arguments";

/// Adds the policy to \p Result, the driver's arguments, where they compile for
/// size and neither choose an advisor nor refuse defaults. LLVM takes the
/// option only once. The option is for compiles: the driver refuses LLVM's own
/// options with -fembed-bitcode, and passes them on to the assembler and to the
/// linkers of offloaded code.
static void addPolicy(llvm::ArrayRef<std::string> Expanded,
                      std::vector<char *> &Result) {
  static char Compile[] = "-Xclang", LLVM[] = "-mllvm",
              Policy[] = "-enable-ml-inliner=release";
  const llvm::StringRef Name = llvm::sys::path::filename(Expanded.front());
  llvm::StringRef Level;
  bool HasLTO = false;
  for (size_t I = 1; I < Expanded.size(); ++I) {
    llvm::StringRef Argument = Expanded[I];
    if (Argument == "-Xlinker" || Argument == "-Xassembler" ||
        Argument == "-Xpreprocessor" || Argument == "-o") {
      ++I; // the next word is no option of clang's
      continue;
    }
    if (Argument == "--no-default-config" || Argument == "--driver-mode=cl" ||
        (Argument.contains("enable-ml-inliner") &&
         !Argument.starts_with("-Wl,")))
      return;
    if (Argument.consume_front("-O"))
      Level = Argument;
    else if (Argument == "-flto" ||
             (Argument.starts_with("-flto=") && Argument != "-flto=thin"))
      HasLTO = true;
    else if (Argument == "-flto=thin" || Argument == "-fno-lto")
      HasLTO = false;
  }
  // The compile of a file leaves its passes to the link of full LTO.
  if ((Level == "s" || Level == "z") && !HasLTO && !Name.contains("clang-cl"))
    Result.insert(Result.begin() + 1,
                  {StartUnused, Compile, LLVM, Compile, Policy, EndUnused});
}

/// Returns the arguments of the driver with a linker that knows LLVM's bitcode
/// where LTO for ELF needs one, and with the policy. Without a choice clang
/// runs GNU's linker, which asks for LLVMgold.so.
static std::vector<char *> withDefaults(llvm::ArrayRef<char *> Arguments) {
  static char Linker[] = "-fuse-ld=lld";
  std::vector<char *> Result = Arguments.vec();
  // Compiles, which the driver starts, have what it gives them.
  if (Arguments.size() > 1 && llvm::StringRef(Arguments[1]).starts_with("-cc1"))
    return Result;
  const std::vector<std::string> Expanded =
      mlgo::expandResponseFiles(Arguments);
  if (mlgo::registerVariantAdvisor)
    addPolicy(Expanded, Result);
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
    Result.insert(Result.begin() + 1, {StartUnused, Linker, EndUnused});
  return Result;
}

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  const bool ShowsVersion = Argc == 2 && std::strcmp(Argv[1], "--version") == 0;
  const llvm::ArrayRef<char *> CommandLine(Argv, Argc);
  std::vector<char *> Arguments = mlgo::hasReleaseDefaults()
                                      ? withDefaults(CommandLine)
                                      : CommandLine.vec();
  Argc = static_cast<int>(Arguments.size());
  Arguments.push_back(nullptr);
  int Status = clang_main(Argc, Arguments.data(), {Argv[0], nullptr, false});
  if (ShowsVersion && Status == 0 && mlgoDescription)
    std::fputs(mlgoDescription, stdout);
  return Status;
}
