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

#include "program/SizePipeline.h"
#include "llvm/IR/Module.h"

#include <string>

namespace mlgo {

/// Keeps the passes of the linked module \p M from calling and knowing library
/// functions that, by lld's symbol table, \p M or other bitcode defines, no
/// input defines, only an archive's bitcode defines, or --wrap, --defsym or a
/// linker script replaces.
void restrictLibraryCalls(llvm::Module &M);

/// Lets passes drop the functions of the linked module \p M that their files
/// keep for the names of their sections, if this link drops unreferenced
/// sections (--gc-sections), no linker script places sections, and nothing
/// refers to the section by __start_ or __stop_. LTO's object has one section
/// of a name for all files, of which --gc-sections would keep all functions for
/// a reference to one.
void releaseNamedSections(llvm::Module &M);

/// What lld writes next to LTO's object.
struct LinkOutput {
  std::string Path;
  /// Why the output cannot be written several times; empty if it can.
  std::string Obstacle;
};

/// Returns what this link writes. Only valid during LTO, when lld has read all
/// of its options and linker scripts.
LinkOutput linkOutput();

/// Returns what this link makes. Only valid during LTO.
LinkStage linkStage();

} // namespace mlgo

#endif
