//===- FunctionScores.h - What a compile comes to, by function ---*- C++ -*-===//
//
// A training log carries each function's score next to all of its decisions, of
// 3.5 KB each. Who knows the decisions already and asks what a few of them are
// worth reads the scores alone.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FUNCTION_SCORES_H
#define MLGO_FUNCTION_SCORES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace mlgo {

/// The scores of a module's functions.
///
/// File format (components/compiler/function_scores.py reads it): a line of
/// JSON {"version": 1, "functions": N}; float32[N], little-endian; N names,
/// each ended by NUL.
class FunctionScores {
public:
  /// Each function once.
  void add(llvm::StringRef Function, float Score);

  llvm::Error write(const std::string &Path) const;

private:
  std::vector<float> Scores;
  std::string Names;
};

} // namespace mlgo

#endif
