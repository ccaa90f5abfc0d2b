// The backend of full LTO that lld calls in place of LLVM's (LinkHook.h).
#include "program/KeepSmaller.h"
#include "program/Resolution.h"
#include "program/SizePipeline.h"
#include "support/LLVMOptions.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Module.h"
#include "llvm/LTO/LTOBackend.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;

/// Returns whether \p M has functions whose compile left the passes to the
/// link.
static bool hasPassesLeft(const Module &M) {
  return any_of(M, [](const Function &F) {
    return !F.isDeclarationForLinker() && F.hasOptSize();
  });
}

/// Compiles a program as LLVM's LTO backend does. A program that is compiled
/// by the pipeline of its level is first written as bitcode and read again: the
/// names that passes make unique, and the order of a value's uses, then do not
/// depend on how the modules were merged, and clang makes the same object of
/// that bitcode.
Error lto::backend(const Config &C, AddStreamFn AddStream, unsigned Parallelism,
                   Module &M, ModuleSummaryIndex &Index) {
  if (mlgo::compilesWholePrograms() && hasPassesLeft(M)) {
    mlgo::releaseNamedSections(M);
    mlgo::restrictLibraryCalls(M);
    // --save-temps=internalize has written the module; write what is compiled.
    if (C.PostInternalizeModuleHook)
      C.PostInternalizeModuleHook(0, M);
  }
  if (!mlgo::programLevel(M, C))
    return llvmBackend(C, std::move(AddStream), Parallelism, M, Index);
  const mlgo::ModuleOptions OfProgram; // ThinLTO's modules come afterwards.
  if (mlgo::expectsVariants()) {
    auto [Output, Obstacle] = mlgo::linkOutput();
    mlgo::nameProgram(std::move(Output), Obstacle);
  }
  SmallVector<char, 0> Bitcode;
  raw_svector_ostream Stream(Bitcode);
  WriteBitcodeToFile(M, Stream);
  // The linker keeps the module; its functions are most of its memory.
  for (Function &F : M)
    F.deleteBody();
  auto Read = parseBitcodeFile(
      MemoryBufferRef(StringRef(Bitcode.data(), Bitcode.size()),
                      mlgo::LinkedModuleName),
      M.getContext());
  if (!Read)
    return Read.takeError();
  SmallVector<char, 0>().swap(Bitcode);
  return llvmBackend(C, std::move(AddStream), Parallelism, **Read, Index);
}
