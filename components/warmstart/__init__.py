"""The warmstart step: trains a policy that imitates LLVM's heuristic."""
