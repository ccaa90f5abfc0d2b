// Access to LLVM's command-line options, which are static in its files.
#ifndef MLGO_LLVM_OPTIONS_H
#define MLGO_LLVM_OPTIONS_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/StringSaver.h"

#include <functional>
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

/// Options that our passes set for one module. Their values are restored when
/// the module is compiled: LLVM's options are global, and a link compiles
/// several modules.
class ModuleOptions {
public:
  ModuleOptions() : Outer(Current) { Current = this; }
  ModuleOptions(const ModuleOptions &) = delete;
  ModuleOptions &operator=(const ModuleOptions &) = delete;
  ~ModuleOptions() {
    for (const auto &Restore : llvm::reverse(Restores))
      Restore();
    Current = Outer;
  }

  /// Sets LLVM's option called \p Name to \p Value; without an object of this
  /// class, for all modules that the process compiles from now on.
  template <typename T> static void set(llvm::StringRef Name, T Value) {
    llvm::cl::opt<T> &Option = llvmOption<T>(Name);
    if (Current)
      Current->Restores.push_back(
          [&Option, Old = static_cast<T>(Option)] { Option.setValue(Old); });
    Option.setValue(Value);
  }

  /// Sets a flag that LLVM reads only if it was given.
  static void setAsGiven(llvm::StringRef Name) {
    if (isGiven(Name))
      return set(Name, true);
    llvm::cl::opt<bool> &Option = llvmOption<bool>(Name);
    if (Current)
      Current->Restores.push_back([&Option] { Option.reset(); });
    Option.addOccurrence(0, Name, "true");
  }

  /// Calls \p Restore when the options are restored.
  static void onRestore(std::function<void()> Restore) {
    if (Current)
      Current->Restores.push_back(std::move(Restore));
  }

private:
  /// Of the module that this thread compiles.
  static inline thread_local ModuleOptions *Current = nullptr;

  ModuleOptions *const Outer;
  std::vector<std::function<void()>> Restores;
};

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
