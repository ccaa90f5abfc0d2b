// Stubs for Z3, which Debian's LLVM refers to and a compile does not need.
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SMTAPI.h"

using namespace llvm;

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
