// The linker of the release toolchain: lld for ELF with the same advisors and
// policies as the release clang, for ThinLTO and full LTO.
#include "inlining/InlineRegistration.h"
#include "lld/Common/Driver.h"
#include "lld/Common/ErrorHandler.h"
#include "program/KeepSmaller.h"
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
            mlgo::registerSizePasses(Builder, /*InLinker=*/true);
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
  std::string Output = "a.out";
  for (llvm::StringRef Argument : Texts)
    for (llvm::StringRef Option :
         {"lto-obj-path", "save-temps", "opt-remarks-filename", "obj-path="})
      if (Argument.starts_with("-") && Argument.contains(Option))
        return mlgo::warnOfNoVariants(Argument + " writes a file of one");
  for (auto [I, Text] : llvm::enumerate(Texts)) {
    llvm::StringRef Argument = Text;
    if (Argument == "-o" || Argument == "--output" || Argument == "-output") {
      if (I + 1 < Texts.size())
        Output = Texts[I + 1];
    } else if (Argument.consume_front("--output=") ||
               (Argument.consume_front("-o") && !Argument.empty())) {
      Output = Argument.str();
    }
  }
  // A child has only the thread that forks.
  if (mlgo::expectVariants(std::move(Output), /*IsProgram=*/true,
                           std::move(*Variants)))
    Arguments.push_back("--threads=1");
}

/// LLVM's keys of ThinLTO's cache have its version and its options, among them
/// this one.
static llvm::cl::opt<std::string>
    LinkerDigest("mlgo-linker-digest", llvm::cl::Hidden,
                 llvm::cl::desc("Keeps apart what linkers with other policies "
                                "and passes put into ThinLTO's cache"));

/// Gives lld the digest of this program and of the plan, of which LLVM's key
/// has the path only, if \p Arguments have a cache.
static void digestLinker(llvm::SmallVectorImpl<const char *> &Arguments) {
  const std::vector<std::string> Texts = mlgo::expandResponseFiles(Arguments);
  if (llvm::none_of(Texts, [](llvm::StringRef Argument) {
        return Argument.contains("thinlto-cache-dir");
      }))
    return;
  uint64_t Plan = 0;
  for (llvm::StringRef Argument : Texts)
    if (auto [Name, Path] = Argument.split("mlgo-inline-plan="); !Path.empty())
      if (auto File = llvm::MemoryBuffer::getFile(Path))
        Plan = llvm::xxh3_64bits((*File)->getBuffer());
  auto Linker = llvm::MemoryBuffer::getFile(llvm::sys::fs::getMainExecutable(
      Arguments.front(), reinterpret_cast<void *>(digestLinker)));
  if (!Linker)
    return;
  static const std::string Option =
      "-mlgo-linker-digest=" +
      llvm::utohexstr(llvm::xxh3_64bits((*Linker)->getBuffer())) +
      llvm::utohexstr(Plan);
  Arguments.append({"-mllvm", Option.c_str()});
}

/// Adds the policy for code that is compiled for size, unless \p Arguments
/// choose an advisor, a plan or variants.
static void addPolicy(llvm::SmallVectorImpl<const char *> &Arguments) {
  if (!mlgo::usePolicyByDefault ||
      llvm::any_of(mlgo::expandResponseFiles(Arguments),
                   [](llvm::StringRef Argument) {
                     return Argument.contains("enable-ml-inliner") ||
                            Argument.contains("mlgo-inline-plan") ||
                            Argument.contains("inliner-interactive-channel") ||
                            Argument.contains("mlgo-keep-smaller") ||
                            Argument.contains("mlgo-variants");
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
