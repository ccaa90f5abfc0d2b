// Access to LLVM's command-line options, which are static in its files.
#ifndef MLGO_LLVM_OPTIONS_H
#define MLGO_LLVM_OPTIONS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/StringSaver.h"

#include <string>
#include <vector>

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

/// Returns \p Arguments, of a program, with those in its response files.
inline std::vector<std::string>
expandResponseFiles(llvm::ArrayRef<const char *> Arguments) {
  llvm::SmallVector<const char *, 256> Expanded(Arguments.begin(),
                                                Arguments.end());
  llvm::BumpPtrAllocator Allocator;
  llvm::StringSaver Saver(Allocator);
  llvm::cl::ExpandResponseFiles(Saver, llvm::cl::TokenizeGNUCommandLine,
                                Expanded);
  return {Expanded.begin(), Expanded.end()};
}

} // namespace mlgo

#endif
