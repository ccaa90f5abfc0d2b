// The machine outliner at -Oz, with costs in bytes.
#ifndef MLGO_OUTLINING_H
#define MLGO_OUTLINING_H

namespace llvm {
class Module;
class PassBuilder;
class TargetMachine;
} // namespace llvm

namespace mlgo {

/// Makes a compile of one module that \p Builder's pipeline gets request the
/// machine outliner, if -mlgo-outline applies to the module.
///
/// LLVM adds the outliner to the passes of a target only if the target asks for
/// it or if -enable-machine-outliner is given. A pipeline does not know the
/// code generator that compiles its module, so the request gives that option:
/// for processes that compile one module, as clang does.
void registerOutlining(llvm::PassBuilder &Builder);

/// Requests the machine outliner of \p Target, which is about to compile \p M
/// and nothing else, if -mlgo-outline applies to \p M. Links compile several
/// modules, also at the same time.
void requestOutlining(llvm::TargetMachine &Target, const llvm::Module &M);

} // namespace mlgo

#endif
