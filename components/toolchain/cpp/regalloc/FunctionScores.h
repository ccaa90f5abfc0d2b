//===- FunctionScores.h - Scores of a module's functions --------*- C++ -*-===//
//
// A training log has each function's score along with all of its decisions, of
// 3.5 KB each. A measurement of a few changed decisions knows the decisions
// already and needs only the scores.
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
/// File format (components/core/compiler/logs/function_scores.py reads it): a
/// line of JSON {"version": 1, "functions": N}; float32[N], little-endian; N
/// names, each terminated by NUL.
class FunctionScores {
public:
  /// Adds the score of a function. Must be called once per function.
  void add(llvm::StringRef Function, float Score);

  llvm::Error write(const std::string &Path) const;

private:
  std::vector<float> Scores;
  std::string Names;
};

} // namespace mlgo

#endif
