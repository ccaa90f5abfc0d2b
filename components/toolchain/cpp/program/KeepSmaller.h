//===- KeepSmaller.h - The smallest of several variants ---------*- C++ -*-===//
//
// Whether the policy makes an object or a program smaller than the heuristic is
// known for sure only when both are compiled. With -mllvm -mlgo-keep-smaller a
// process forks after the passes that the variants share. Each child completes
// the compile (in lld: the link) as one variant, one after the other, the
// process itself is the last and the first variant, and the smallest file is
// kept. By default the variants are the heuristic, the policy and, in the link
// of a program with a plan, the plan; -mlgo-variants=LIST names others
// (Variants.h).
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_KEEP_SMALLER_H
#define MLGO_KEEP_SMALLER_H

#include "program/Variants.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgo {

/// Returns the variants that \p Arguments, of clang -cc1 or of lld, ask for;
/// none if they ask for none, with a warning if they name a file of choices.
/// Fails if -mlgo-variants cannot be understood, or names a plan that there is
/// not for a program.
llvm::Expected<std::vector<Variant>>
requestedVariants(llvm::ArrayRef<std::string> Arguments, bool IsProgram);

/// Announces that this process writes \p Output, an object, and compiles it as
/// each of \p Variants, the first of them itself. Without this call or the next
/// one forkVariants does nothing. Returns false, with a warning, if \p Output
/// exists and is no regular file.
bool expectVariants(std::string Output, std::vector<Variant> Variants);

/// Announces the same of a linker, which knows its output when it compiles the
/// program.
void expectProgramVariants(std::vector<Variant> Variants);

/// Names the program of expectProgramVariants before its passes are built. Only
/// one variant is compiled, with a warning, if there is an \p Obstacle or
/// \p Output exists and is no regular file.
void nameProgram(std::string Output, llvm::StringRef Obstacle);

/// Returns whether variants are expected: the pipeline, which is built before
/// the fork, then needs the passes of all variants.
bool expectsVariants();

/// Warns that variants were asked for and are not compiled, because of
/// \p Reason.
void warnOfNoVariants(const llvm::Twine &Reason);

/// Called between the passes that all variants share and those in which they
/// differ, before the folding of equal functions and, \p IsFolded, after it.
/// Returns once in each variant.
void forkVariants(llvm::Module &M, bool IsFolded);

/// Called when the file is written (\p Success) or cannot be written. Does not
/// return in a child; in the process itself it moves the smallest file to its
/// place and returns \p Success.
bool finishVariants(bool Success);

/// Registers an advisor that decides by the variant. Only release toolchains
/// have one (ReleaseDefaults.cpp).
void registerVariantAdvisor(llvm::PassBuilder &Builder) __attribute__((weak));

} // namespace mlgo

#endif
