// The linker of the release toolchain: lld for ELF with the same advisors and
// policies as the release clang, for ThinLTO and full LTO.
#include "inlining/InlineRegistration.h"
#include "lld/Common/Driver.h"
#include "lld/Common/ErrorHandler.h"
#include "program/KeepSmaller.h"
#include "program/Resolution.h"
#include "program/SizePipeline.h"
#include "support/LLVMOptions.h"
#include "support/LLVMVersion.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/xxhash.h"

LLD_HAS_DRIVER(elf)

// The only extension of LTOBackend.cpp (CMakeLists.txt): every pipeline of LTO,
// ours too, asks it for its passes. The advisor is registered, because LLVM's
// pipeline of full LTO ignores -enable-ml-inliner.
llvm::PassPluginLibraryInfo getMlgoPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo", LLVM_VERSION_STRING,
          [](llvm::PassBuilder &Builder) {
            mlgo::registerSizePasses(Builder, mlgo::linkStage());
            if (mlgo::registerVariantAdvisor)
              mlgo::registerVariantAdvisor(Builder);
          }};
}

/// Prepares for -mlgo-keep-smaller, if \p Arguments have it. Exits if they ask
/// for variants that there are not.
static void prepareVariants(llvm::SmallVectorImpl<const char *> &Arguments) {
  const std::vector<std::string> Texts = mlgo::expandResponseFiles(Arguments);
  auto Variants = mlgo::requestedVariants(Texts, /*IsProgram=*/true);
  if (!Variants) {
    llvm::WithColor::error(llvm::errs(), "ld.lld")
        << llvm::toString(Variants.takeError()) << "\n";
    exit(1);
  }
  if (Variants->empty())
    return;
  mlgo::expectProgramVariants(std::move(*Variants));
  // A child has only the thread that forks.
  Arguments.push_back("--threads=1");
}

/// LLVM's keys of ThinLTO's cache have its version and the options of -mllvm,
/// among them this one.
static llvm::cl::opt<std::string>
    LinkerDigest("mlgo-linker-digest", llvm::cl::Hidden,
                 llvm::cl::desc("Keeps apart what linkers with other policies "
                                "and passes put into ThinLTO's cache"));

/// Gives lld a digest, if \p Arguments have a cache, of what changes the
/// objects of its backends and is not in LLVM's key: this program, the plan, of
/// which the key has the path only, and options of LLVM and passes that
/// -plugin-opt and --load-pass-plugin name.
static void digestLinker(llvm::SmallVectorImpl<const char *> &Arguments) {
  const std::vector<std::string> Texts = mlgo::expandResponseFiles(Arguments);
  if (llvm::none_of(Texts, [](llvm::StringRef Argument) {
        return Argument.contains("thinlto-cache-dir");
      }))
    return;
  auto Program = llvm::sys::fs::getMainExecutable(
      Arguments.front(), reinterpret_cast<void *>(digestLinker));
  std::string Digests;
  auto AddFile = [&](llvm::StringRef Path) {
    if (auto File = llvm::MemoryBuffer::getFile(Path))
      Digests += llvm::utohexstr(llvm::xxh3_64bits((*File)->getBuffer())) + " ";
  };
  AddFile(Program);
  for (auto [I, Text] : llvm::enumerate(Texts)) {
    llvm::StringRef Argument = Text;
    if (auto [Name, Path] = Argument.split("mlgo-inline-plan="); !Path.empty())
      AddFile(Path);
    if (auto [Name, Path] = Argument.split("load-pass-plugin="); !Path.empty())
      AddFile(Path);
    if (Argument.ends_with("-load-pass-plugin") && I + 1 < Texts.size())
      AddFile(Texts[I + 1]);
    if (Argument.contains("plugin-opt=-"))
      Digests += Argument.str() + " ";
  }
  static const std::string Option =
      "-mlgo-linker-digest=" + llvm::utohexstr(llvm::xxh3_64bits(Digests));
  Arguments.append({"-mllvm", Option.c_str()});
}

/// Adds the policy for modules of ThinLTO that are compiled for size, unless
/// \p Arguments choose an advisor or a plan.
static void addPolicy(llvm::SmallVectorImpl<const char *> &Arguments) {
  if (!mlgo::usePolicyByDefault ||
      llvm::any_of(mlgo::expandResponseFiles(Arguments),
                   [](llvm::StringRef Argument) {
                     return Argument.contains("enable-ml-inliner") ||
                            Argument.contains("mlgo-inline-plan") ||
                            Argument.contains("inliner-interactive-channel");
                   }))
    return;
  mlgo::usePolicyByDefault();
  Arguments.append({"-mllvm", "-enable-ml-inliner=release"});
}

int main(int Argc, char **Argv) {
  llvm::InitLLVM Init(Argc, Argv);
  llvm::SmallVector<const char *, 256> Arguments(Argv, Argv + Argc);
  addPolicy(Arguments);
  prepareVariants(Arguments);
  digestLinker(Arguments);
  lld::Result Result = lld::lldMain(Arguments, llvm::outs(), llvm::errs(),
                                    {{lld::Gnu, &lld::elf::link}});
  mlgo::finishVariants(Result.retCode == 0);
  // Destructors of a large link take long.
  if (!Result.canRunAgain)
    lld::exitLld(Result.retCode);
  return Result.retCode;
}
