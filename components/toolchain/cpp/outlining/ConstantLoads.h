// Loads of small constants, by what they cost with their unwind directives.
#ifndef MLGO_CONSTANT_LOADS_H
#define MLGO_CONSTANT_LOADS_H

namespace llvm {
class MachineModuleInfo;
class Module;
} // namespace llvm

namespace mlgo {

/// Replaces loads of constants by push and pop in the x86-64 functions of \p M
/// that have unwind entries. LLVM chooses push and pop with minsize: two bytes
/// less than a move, but without a frame pointer each of the two has a
/// directive, which takes three bytes of the unwind entry or more. Returns
/// whether it has changed a function.
bool replacePushedConstants(const llvm::Module &M,
                            const llvm::MachineModuleInfo &MMI);

} // namespace mlgo

#endif
