// Which function of a module calls which, as llvm::CallGraph would say, in a form that is made in no time.
#ifndef MLGO_DIRECT_CALL_GRAPH_H
#define MLGO_DIRECT_CALL_GRAPH_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/GraphTraits.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/AbstractCallSite.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"

#include <deque>

/// Nodes of the functions that the module defines, and one that has an edge to each of them that can be called from
/// elsewhere. An edge stands for a call; those for functions that a callee is known to call back (pthread_create) come
/// behind, for cycles go through them too.
class DirectCallGraph {
public:
  struct Node {
    llvm::Function *F = nullptr; // null in the node that stands for elsewhere
    llvm::SmallVector<Node *, 8> Edges;
    size_t NumCalls = 0;

    llvm::ArrayRef<Node *> callees() const { return llvm::ArrayRef(Edges).take_front(NumCalls); }
  };

  explicit DirectCallGraph(llvm::Module &M) {
    llvm::DenseMap<const llvm::Function *, Node *> NodeOf;
    for (llvm::Function &F : M)
      if (!F.isDeclaration()) {
        Node &N = Nodes.emplace_back();
        N.F = &F;
        NodeOf[&F] = &N;
        // As llvm::CallGraph has it, by which dead local functions are no part of the graph that is walked.
        if (!F.hasLocalLinkage() || F.hasAddressTaken(nullptr, /*IgnoreCallbackUses=*/true,
                                                      /*IgnoreAssumeLikeCalls=*/true, /*IgnoreLLVMUsed=*/false))
          Elsewhere.Edges.push_back(&N);
      }
    for (Node &N : Nodes) {
      llvm::SmallVector<Node *, 4> CalledBack;
      for (llvm::Instruction &I : instructions(*N.F))
        if (auto *Call = llvm::dyn_cast<llvm::CallBase>(&I)) {
          if (Node *Callee = NodeOf.lookup(Call->getCalledFunction()))
            N.Edges.push_back(Callee);
          llvm::forEachCallbackFunction(*Call, [&](llvm::Function *F) {
            if (Node *Callee = NodeOf.lookup(F))
              CalledBack.push_back(Callee);
          });
        }
      N.NumCalls = N.Edges.size();
      N.Edges.append(CalledBack);
    }
  }

  Node Elsewhere;

private:
  std::deque<Node> Nodes; // does not move them when it grows
};

template <> struct llvm::GraphTraits<DirectCallGraph *> {
  using NodeRef = DirectCallGraph::Node *;
  using ChildIteratorType = NodeRef *;
  static NodeRef getEntryNode(DirectCallGraph *Graph) { return &Graph->Elsewhere; }
  static ChildIteratorType child_begin(NodeRef N) { return N->Edges.begin(); }
  static ChildIteratorType child_end(NodeRef N) { return N->Edges.end(); }
};

#endif
