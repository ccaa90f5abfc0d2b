// Stubs for what Debian's LLVM refers to and a compile or a link does not need.
#include "support/LLVMVersion.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SMTAPI.h"

using namespace llvm;

// Debian's clang and LLVM libraries were built with Polly as an extension and
// ask it for its passes. The polyhedral optimizer is off by default and in a
// separate package, so this stub registers no passes.
PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly (not linked)", LLVM_VERSION_STRING,
          [](PassBuilder &) {}};
}

// Z3 is only used by an option of the static analyzer. It is a shared library
// of 28 MB, and loading it would slow down every start of the compiler. These
// are the functions of the LLVM file that uses it.
SMTSolverRef llvm::CreateZ3Solver() {
  report_fatal_error("this clang is not linked with Z3",
                     /*gen_crash_diag=*/false);
}
void SMTSort::dump() const {}
void SMTExpr::dump() const {}
void SMTSolver::dump() const {}
void SMTSolverStatistics::dump() const {}
