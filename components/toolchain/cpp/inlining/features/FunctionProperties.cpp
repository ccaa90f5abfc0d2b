#include "inlining/features/FunctionProperties.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;
using namespace mlgo;

AnalysisKey FunctionPropertiesAnalysis::Key;

// LLVM uses a dominator tree to find the reachable blocks. As nothing else is
// needed from it here, a walk is much cheaper.
BlockSet mlgo::reachableBlocks(const Function &F) {
  BlockSet Reached;
  SmallVector<const BasicBlock *, 32> Worklist{&F.getEntryBlock()};
  Reached.insert(Worklist.front());
  while (!Worklist.empty())
    for (const BasicBlock *Successor : successors(Worklist.pop_back_val()))
      if (Reached.insert(Successor).second)
        Worklist.push_back(Successor);
  return Reached;
}

static void add(const BasicBlock &Block, FunctionProperties &Properties,
                int64_t Sign = 1) {
  Properties.Blocks += Sign;
  const Instruction *Terminator = Block.getTerminator();
  if (isa<SwitchInst>(Terminator) ||
      (isa<BranchInst>(Terminator) &&
       cast<BranchInst>(Terminator)->isConditional()))
    Properties.ConditionalBlocks += Sign * Terminator->getNumSuccessors();
  for (const Instruction &I : Block) {
    if (const auto *Call = dyn_cast<CallBase>(&I)) {
      if (I.isDebugOrPseudoInst())
        continue;
      const Function *Callee = Call->getCalledFunction();
      if (Callee && !Callee->isDeclaration())
        Properties.DirectCalls += Sign;
      else if (!Callee || !Callee->isIntrinsic())
        Properties.OtherCalls += Sign;
      if (isa<InvokeInst>(Call))
        Properties.Invokes += Sign;
    } else if (isa<LoadInst, StoreInst>(I)) {
      Properties.MemoryAccesses += Sign;
    } else if (isa<AllocaInst>(I)) {
      Properties.Allocas += Sign;
    }
    Properties.Instructions += Sign;
    if (EmbeddingDimension)
      countEntities(I, Properties.Entities, Sign);
  }
}

int64_t FunctionProperties::usesOf(const Function &F) {
  return !F.hasLocalLinkage() + F.getNumUses();
}

FunctionProperties FunctionProperties::of(const Function &F) {
  FunctionProperties Properties;
  for (const BasicBlock *Block : reachableBlocks(F))
    add(*Block, Properties);
  Properties.Uses = usesOf(F);
  Properties.AllReachable = Properties.Blocks == static_cast<int64_t>(F.size());
  return Properties;
}

FunctionPropertiesUpdater::FunctionPropertiesUpdater(
    const FunctionProperties &Before, const CallBase &Call)
    : CallBlock(Call.getParent()), Rest(Before) {
  if (!Before.AllReachable)
    return;
  Beyond.insert(succ_begin(CallBlock), succ_end(CallBlock));
  if (const auto *Invoke = dyn_cast<InvokeInst>(&Call)) {
    NormalDest = Invoke->getNormalDest();
    UnwindBlock = Invoke->getUnwindDest();
    Beyond.insert(succ_begin(UnwindBlock), succ_end(UnwindBlock));
  } else {
    AfterCall = CallBlock->getTerminator();
  }
  // The result may become a constant, which is another entity.
  if (EmbeddingDimension)
    for (const User *U : Call.users())
      Beyond.insert(cast<Instruction>(U)->getParent());
  Beyond.erase(CallBlock);
  // Inlining moves allocas to the entry.
  const BasicBlock *Entry = &CallBlock->getParent()->getEntryBlock();
  for (const BasicBlock *Block : Beyond)
    add(*Block, Rest, -1);
  // Valid IR does not branch to the entry, but this is not the place to verify.
  if (!Beyond.contains(Entry))
    add(*Entry, Rest, -1);
  if (CallBlock != Entry)
    add(*CallBlock, Rest, -1);
}

void FunctionPropertiesUpdater::addReachable(const BasicBlock *From,
                                             BlockSet &Blocks) const {
  SmallVector<const BasicBlock *, 32> Worklist{From};
  Blocks.insert(From);
  while (!Worklist.empty())
    for (const BasicBlock *Successor : successors(Worklist.pop_back_val()))
      if (Blocks.insert(Successor).second &&
          (Successor == UnwindBlock || !Beyond.contains(Successor)))
        Worklist.push_back(Successor);
}

/// Returns whether \p Block can be reached from one of the blocks in
/// \p Reachable, by walking backwards.
static bool isReachableFrom(const BasicBlock *Block,
                            const BlockSet &Reachable) {
  BlockSet Seen;
  Seen.insert(Block);
  SmallVector<const BasicBlock *, 32> Worklist{Block};
  while (!Worklist.empty())
    for (const BasicBlock *Predecessor :
         predecessors(Worklist.pop_back_val())) {
      if (Reachable.contains(Predecessor))
        return true;
      if (Seen.insert(Predecessor).second)
        Worklist.push_back(Predecessor);
    }
  return false;
}

bool FunctionPropertiesUpdater::inlineeReturns(const BlockSet &Reached) const {
  if (NormalDest)
    return Reached.contains(NormalDest);
  return any_of(Reached, [this](const BasicBlock *Block) {
    return Block->getTerminator() == AfterCall;
  });
}

// Before inlining all blocks were reachable, by paths that may have gone
// through the block of the call. If the rest of that block and its successors
// are still reachable, all blocks are; otherwise everything is counted again.
FunctionProperties FunctionPropertiesUpdater::get() const {
  const Function &Caller = *CallBlock->getParent();
  if (!Rest.AllReachable)
    return FunctionProperties::of(Caller);
  BlockSet Changed;
  addReachable(CallBlock, Changed);
  if (!inlineeReturns(Changed))
    return FunctionProperties::of(Caller);
  Changed.insert(&Caller.getEntryBlock());
  for (const BasicBlock *Block : Beyond)
    if (!Changed.contains(Block)) {
      if (!isReachableFrom(Block, Changed))
        return FunctionProperties::of(Caller);
      if (Block == UnwindBlock)
        addReachable(Block, Changed);
      else
        Changed.insert(Block);
    }
  FunctionProperties Properties = Rest;
  for (const BasicBlock *Block : Changed)
    add(*Block, Properties);
  Properties.Uses = FunctionProperties::usesOf(Caller);
  return Properties;
}
