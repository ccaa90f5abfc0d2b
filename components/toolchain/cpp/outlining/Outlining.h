// The machine outliner at -Oz, with costs in bytes.
#ifndef MLGO_OUTLINING_H
#define MLGO_OUTLINING_H

namespace llvm {
class PassBuilder;
}

namespace mlgo {

/// Requests the machine outliner for each module that -mlgo-outline applies to.
///
/// LLVM adds the outliner to the passes of a target only if the target asks for
/// it or if -enable-machine-outliner is given. The request gives that option at
/// the end of the first pipeline whose module has functions to outline from, so
/// that no other compile has the additional pass.
void registerOutlining(llvm::PassBuilder &Builder);

} // namespace mlgo

#endif
