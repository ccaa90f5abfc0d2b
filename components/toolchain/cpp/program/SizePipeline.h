//===- SizePipeline.h - Passes that make programs small ---------*- C++ -*-===//
//
// LLVM's pipelines of full LTO inline twice, before the link and at the link,
// and optimize at -O2, whatever level the files were compiled for. For code
// that is compiled with -Oz or -Os and linked by our lld there is one pipeline
// instead: no passes before the link, equal functions folded, then the passes
// of -Oz (or -Os) on the whole program. Folding alone also runs in the compile
// of an object and in ThinLTO's backends.
//
// Functions that are equal before the inliner runs (instances of templates
// above all) are then one function with all of their calls. The inliner sees
// what a call is worth, and does not make copies different that a linker with
// --icf would have folded.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_SIZE_PIPELINE_H
#define MLGO_SIZE_PIPELINE_H

#include "program/Fold.h"
#include "llvm/IR/PassManager.h"
#include "llvm/LTO/LTOBackend.h"
#include "llvm/Passes/OptimizationLevel.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgo {

/// Returns the level that most functions of \p M were compiled for; none if it
/// is not a level for size, or if the module defines no function. Functions
/// carry their level as attributes: minsize for -Oz, optsize for -Os.
std::optional<llvm::OptimizationLevel> sizeLevel(const llvm::Module &M);

/// Returns whether -mlgo-whole-program is on: the compile of a file for full
/// LTO leaves its passes to the link.
bool compilesWholePrograms();

/// Adds a pass to the compile of a file whose passes are left to the link. An
/// inline function that is only called, in every file, is not exported then,
/// as if the compile had inlined and dropped it: lld exports the linkonce_odr
/// functions whose addresses are significant.
void registerInlineExportPass(llvm::PassBuilder &Builder);

/// Returns the level by whose pipeline our lld compiles the linked module \p M;
/// none if LLVM's pipeline of LTO compiles it: it was not compiled for size,
/// has a profile and -mlgo-whole-program is not given, or needs what ours
/// lacks, a profile of the link or type tests (-fwhole-program-vtables,
/// -fsanitize=cfi).
std::optional<llvm::OptimizationLevel>
programLevel(const llvm::Module &M, const llvm::lto::Config &Conf);

/// LLVM's name of the module of full LTO.
inline constexpr char LinkedModuleName[] = "ld-temp.o";

/// Returns whether \p M is a whole program: the module of full LTO in a linker,
/// or what a clang compiles with -mlgo-program or under the name of such a
/// module, to the object that our lld makes of it.
bool isProgram(const llvm::Module &M) __attribute__((weak));

/// Returns whether this process compiles a program that has been through the
/// inliner, and goes through it for the second time.
bool isSecondRound() __attribute__((weak));

/// Makes this process compile a whole program, unless -mlgo-program is given.
void compileAsProgram();

/// Adds our passes to the pipelines that \p Builder builds: equal functions are
/// folded after the first simplification and before the inliner, by default in
/// programs and, in a linker, in the backends of ThinLTO. A program goes
/// through the passes of its level twice, and has its own options of code
/// generation, except those that the user gave.
void registerSizePasses(llvm::PassBuilder &Builder,
                        LinkStage Stage = LinkStage::Compile);

/// What LLVM's LTOBackend.cpp knows where it builds the pipeline of full LTO.
/// LinkHook.h inserts it there.
struct LinkedProgram {
  llvm::Module &M;
  llvm::TargetMachine *TM;
  const llvm::lto::Config &Conf;
  llvm::PassInstrumentationCallbacks *PIC;
  void (*RegisterPlugins)(llvm::ArrayRef<std::string>, llvm::PassBuilder &);
};

/// Returns the passes that compile a linked program: ours if it has a
/// programLevel, else \p LLVMPipeline.
llvm::ModulePassManager operator|(llvm::ModulePassManager LLVMPipeline,
                                  const LinkedProgram &Program);

} // namespace mlgo

namespace llvm::lto {
/// LLVM's backend of full LTO; LinkedModule.cpp defines the one that lld calls.
Error llvmBackend(const Config &C, AddStreamFn AddStream, unsigned Parallelism,
                  Module &M, ModuleSummaryIndex &Index);
} // namespace llvm::lto

#endif
