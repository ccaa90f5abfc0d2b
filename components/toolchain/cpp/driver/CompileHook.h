// Included before clang's cc1_main.cpp, which our clangs compile again: a
// compile is prepared by CompileHook.cpp before it runs.
#ifndef MLGO_COMPILE_HOOK_H
#define MLGO_COMPILE_HOOK_H

#include "clang/Frontend/CompilerInstance.h"
#include "clang/FrontendTool/Utils.h"

namespace mlgo {

/// Registers our passes with the compile that \p Clang is about to run, and
/// leaves all passes of a whole program to the linker. Returns \p Clang.
clang::CompilerInstance *prepareCompile(clang::CompilerInstance *Clang);

/// Ends a compile that has succeeded or failed; see finishVariants.
bool finishCompile(bool Success);

} // namespace mlgo

using mlgo::finishCompile;

#define ExecuteCompilerInvocation(Clang)                                       \
  finishCompile(ExecuteCompilerInvocation(mlgo::prepareCompile(Clang)))

#endif
