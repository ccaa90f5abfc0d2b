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

#include "llvm/IR/PassManager.h"
#include "llvm/LTO/LTOBackend.h"
#include "llvm/Passes/OptimizationLevel.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgo {

/// Returns the level that most functions of \p M were compiled for; none if it
/// is not a level for size, or if the module defines no function. Functions
/// carry their level as attributes: minsize for -Oz, optsize for -Os.
std::optional<llvm::OptimizationLevel> sizeLevel(const llvm::Module &M);

/// Returns whether the compile of a file leaves all passes to the link of full
/// LTO. \p Arguments are LLVM's options, which are not parsed yet.
bool leavesPassesToLinker(llvm::ArrayRef<std::string> Arguments);

/// Returns whether \p Arguments, LLVM's options, say that a module is a linked
/// program: -mlgo-program, for a clang that compiles a program's bitcode to the
/// object that our lld makes of it.
bool isProgram(llvm::ArrayRef<std::string> Arguments);

/// Returns whether \p M is a whole program: the module of full LTO in a linker,
/// or what -mlgo-program says is one.
bool isProgram(const llvm::Module &M);

/// Adds our passes to the pipelines that \p Builder builds: equal functions are
/// folded after the first simplification and before the inliner, and a program
/// goes through the passes of its level twice.
void registerSizePasses(llvm::PassBuilder &Builder, bool IsProgram);

/// Sets the options of code generation for a program, except those that the
/// user gave.
void setProgramOptions();

/// What LLVM's LTOBackend.cpp knows where it builds the pipeline of full LTO.
/// LinkHook.h inserts it there.
struct LinkedProgram {
  llvm::Module &M;
  llvm::TargetMachine *TM;
  const llvm::lto::Config &Conf;
  bool HasProfile;
  llvm::PassInstrumentationCallbacks *PIC;
  void (*RegisterPlugins)(llvm::ArrayRef<std::string>, llvm::PassBuilder &);
};

/// Returns the passes that compile a linked program: ours if it was compiled
/// for size, else \p LLVMPipeline. Also LLVM's are used for what ours lacks: a
/// profile, and type tests (-fwhole-program-vtables, -fsanitize=cfi).
llvm::ModulePassManager operator|(llvm::ModulePassManager LLVMPipeline,
                                  const LinkedProgram &Program);

} // namespace mlgo

namespace llvm::lto {
/// LLVM's backend of full LTO; LinkedModule.cpp defines the one that lld calls.
Error llvmBackend(const Config &C, AddStreamFn AddStream, unsigned Parallelism,
                  Module &M, ModuleSummaryIndex &Index);
} // namespace llvm::lto

#endif
