// Which functions of a module identical code folding makes one.
#ifndef MLGO_EQUAL_CODE_H
#define MLGO_EQUAL_CODE_H

#include "llvm/ADT/DenseSet.h"

namespace llvm {
class MachineFunction;
class MachineModuleInfo;
class Module;
} // namespace llvm

namespace mlgo {

/// Returns the functions of \p M that a linker's identical code folding (ICF)
/// replaces by an earlier one. As there, functions that call each other are
/// equal if they are equal but for these calls. Names of labels, which only
/// assembly has, and debug data have no influence.
llvm::DenseSet<const llvm::MachineFunction *>
findDuplicates(const llvm::Module &M, const llvm::MachineModuleInfo &MMI);

} // namespace mlgo

#endif
