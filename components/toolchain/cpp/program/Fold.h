//===- Fold.h - One function for those that are equal -----------*- C++ -*-===//
//
// LLVM's MergeFunctions, made safe to run before other passes. LLVM runs it
// last, if at all, and compares what decides about machine code: it takes
// functions for equal that differ in what passes conclude from them, such as
// the types of their stores.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FOLD_H
#define MLGO_FOLD_H

#include "llvm/IR/PassManager.h"

namespace mlgo {

/// Where passes run, which decides about the definitions that may be replaced.
enum class LinkStage {
  Compile, ///< A linker chooses among the copies of an inline function.
  Earlier, ///< The same: another link follows.
  Library, ///< Programs and other libraries replace what is exported.
  Program, ///< Nothing is replaced.
};

/// Makes one function of those of \p M that are equal. Direct calls reach the
/// one that stays; the others remain, as calls of it, where their addresses are
/// used. It is right for all callers: functions that differ in the types of
/// their accesses (TBAA) or in other alias metadata lose what is not true of
/// each, and functions that differ in anything else stay apart.
///
/// \p IsProgram says that \p M is all of a program's modules.
void foldEqualFunctions(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                        bool IsProgram, LinkStage Stage);

} // namespace mlgo

#endif
