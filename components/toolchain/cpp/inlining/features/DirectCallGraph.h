// Graph of the direct calls in a module, equivalent to llvm::CallGraph but much
// cheaper to build.
#ifndef MLGO_DIRECT_CALL_GRAPH_H
#define MLGO_DIRECT_CALL_GRAPH_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/GraphTraits.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/AbstractCallSite.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"

#include <deque>

namespace mlgo {

/// Nodes for the functions that the module defines, and one node with an edge
/// to each function that can be called from outside of the module. Edges are
/// calls, followed by functions that a callee is known to call back
/// (pthread_create), because cycles can go through them, too.
class DirectCallGraph {
public:
  struct Node {
    llvm::Function *F = nullptr; ///< Null in the node `Elsewhere`.
    llvm::SmallVector<Node *, 8> Edges;
    size_t NumCalls = 0;

    llvm::ArrayRef<Node *> callees() const {
      return llvm::ArrayRef(Edges).take_front(NumCalls);
    }
  };

  explicit DirectCallGraph(llvm::Module &M) {
    llvm::DenseMap<const llvm::Function *, Node *> NodeOf;
    for (llvm::Function &F : M)
      if (!F.isDeclaration()) {
        Node &N = Nodes.emplace_back();
        N.F = &F;
        NodeOf[&F] = &N;
        // As in llvm::CallGraph: dead local functions are not reachable from
        // the entry node and thus not visited.
        if (!F.hasLocalLinkage() ||
            F.hasAddressTaken(nullptr, /*IgnoreCallbackUses=*/true,
                              /*IgnoreAssumeLikeCalls=*/true,
                              /*IgnoreLLVMUsed=*/false))
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

  /// Represents callers outside of the module.
  Node Elsewhere;

private:
  /// A deque, because edges point to nodes, which must not move when it grows.
  std::deque<Node> Nodes;
};

} // namespace mlgo

template <> struct llvm::GraphTraits<mlgo::DirectCallGraph *> {
  using NodeRef = mlgo::DirectCallGraph::Node *;
  using ChildIteratorType = NodeRef *;
  static NodeRef getEntryNode(mlgo::DirectCallGraph *Graph) {
    return &Graph->Elsewhere;
  }
  static ChildIteratorType child_begin(NodeRef N) { return N->Edges.begin(); }
  static ChildIteratorType child_end(NodeRef N) { return N->Edges.end(); }
};

#endif
