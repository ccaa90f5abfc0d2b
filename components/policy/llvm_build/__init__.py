"""Policies as an LLVM that users build themselves takes them: headers, objects, SavedModels, MLIR in TOSA."""
