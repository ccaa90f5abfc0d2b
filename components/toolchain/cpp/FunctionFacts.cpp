#include "FunctionFacts.h"

#include "llvm/IR/CFG.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

AnalysisKey FunctionFactsAnalysis::Key;

// LLVM asks a dominator tree what can be reached. That is all it is asked here, and a walk tells it for much less.
BlockSet reachableBlocks(const Function &F) {
  BlockSet Reached;
  SmallVector<const BasicBlock *, 32> Open{&F.getEntryBlock()};
  Reached.insert(Open.front());
  while (!Open.empty())
    for (const BasicBlock *Successor : successors(Open.pop_back_val()))
      if (Reached.insert(Successor).second)
        Open.push_back(Successor);
  return Reached;
}

static void addBlock(const BasicBlock &Block, FunctionFacts &Facts) {
  ++Facts.Blocks;
  const Instruction *Terminator = Block.getTerminator();
  if (isa<SwitchInst>(Terminator) || (isa<BranchInst>(Terminator) && cast<BranchInst>(Terminator)->isConditional()))
    Facts.ConditionalBlocks += Terminator->getNumSuccessors();
  for (const Instruction &I : Block) {
    if (const auto *Call = dyn_cast<CallBase>(&I)) {
      if (I.isDebugOrPseudoInst())
        continue;
      const Function *Callee = Call->getCalledFunction();
      Facts.DirectCalls += Callee && !Callee->isDeclaration();
    }
    ++Facts.Instructions;
  }
}

FunctionFacts countFacts(const Function &F) {
  FunctionFacts Facts;
  for (const BasicBlock *Block : reachableBlocks(F))
    addBlock(*Block, Facts);
  Facts.Uses = !F.hasLocalLinkage() + F.getNumUses();
  return Facts;
}
