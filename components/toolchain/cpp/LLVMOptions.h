// Access to LLVM's command-line options, which are static in its files.
#ifndef MLGO_LLVM_OPTIONS_H
#define MLGO_LLVM_OPTIONS_H

#include "llvm/Support/CommandLine.h"

namespace mlgo {

/// Returns LLVM's option of the type T with this name, without its dash.
template <typename T> llvm::cl::opt<T> &llvmOption(llvm::StringRef Name) {
  return *static_cast<llvm::cl::opt<T> *>(
      llvm::cl::getRegisteredOptions().lookup(Name));
}

/// Returns whether the command line has LLVM's option with this name.
inline bool isGiven(llvm::StringRef Name) {
  return llvm::cl::getRegisteredOptions().lookup(Name)->getNumOccurrences() > 0;
}

} // namespace mlgo

#endif
