//===- Resolution.h - What lld resolved before LTO --------------*- C++ -*-===//
//
// Passes replace calls of library functions by calls of others: printf by puts,
// malloc and memset by calloc, a loop by memset. In the compile of a file the
// linker sees these calls and resolves them. The compile of a program's files
// runs no passes, so the calls are made after the resolution, when lld takes no
// bitcode from archives any more, and a function that no input needed is
// missing or another one than the program's own.
//
// Passes also assume that a function with the name of a library function does
// what the library's does, which the program's own need not.
//
// So a program's functions have LLVM's attribute "no-builtin-NAME" for each
// library function that the resolution does not have. All passes and code
// generation read it, in the linker and where the saved module is compiled.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_RESOLUTION_H
#define MLGO_RESOLUTION_H

#include "llvm/IR/Module.h"

namespace mlgo {

/// Returns the names of the library functions that the passes of the linked
/// module \p M must neither call nor know, by lld's symbol table: those that
/// \p M or other bitcode defines, that no input defines, that only an archive's
/// bitcode defines, and those that --wrap, --defsym or a linker script
/// replaces.
std::vector<std::string> unusableLibraryFunctions(const llvm::Module &M);

/// Keeps the passes of \p M from using its unusableLibraryFunctions.
void restrictLibraryCalls(llvm::Module &M);

/// What lld writes next to LTO's object.
struct LinkOutput {
  std::string Path;
  /// Why the output cannot be written several times; empty if it can.
  std::string Obstacle;
};

/// Returns what this link writes. Only valid during LTO, when lld has read all
/// of its options and linker scripts.
LinkOutput linkOutput();

} // namespace mlgo

#endif
