"""The warmstart step: a policy that imitates LLVM's heuristic."""
