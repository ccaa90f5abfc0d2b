//===- FlipMeasurement.h - Scores of flipped decisions ----------*- C++ -*-===//
//
// A decision of the register allocator changes nothing outside of its function.
// So measuring the effect of another decision does not require compiling
// anything else again: the process forks at the decision; the child takes the
// other decision, continues to the function's score and exits. The parent
// continues with the base's decision.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FLIP_MEASUREMENT_H
#define MLGO_FLIP_MEASUREMENT_H

#include "decisions/ForcedDecisions.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlgo {

/// Measures the flips in the file FILE of -mlgo-measure-flips, each separately.
/// FILE has the format of forced decisions, but may contain a decision several
/// times, with different actions. The scores are written to FILE.scores: a line
/// of JSON {"version": 1, "decisions": N}; float32[N], little-endian, in the
/// order of FILE, NaN for decisions that the compile did not reach.
class FlipMeasurement {
public:
  /// Returns null without the option. Aborts the compile if the file cannot be
  /// read.
  static std::unique_ptr<FlipMeasurement> load(llvm::StringRef Problem);

  ~FlipMeasurement();

  /// Forks for each flip of the current decision. Must be called at each
  /// decision of \p Function, in order. Returns the action to take in a child,
  /// nothing in the parent.
  std::optional<int64_t> atDecision(llvm::StringRef Function);

  /// Returns whether this process is a child, which exits at the end of its
  /// function.
  bool isFlipped() const { return Current >= 0; }

  /// Records the score of the child's flip and exits the child.
  [[noreturn]] void finish(float Score);

  /// Writes FILE.scores. Called by the parent after the last function.
  llvm::Error write() const;

private:
  struct Flip {
    int32_t Action;
    size_t Row;
  };

  explicit FlipMeasurement(std::string Path) : Path(std::move(Path)) {}

  const std::string Path;
  llvm::StringMap<llvm::DenseMap<int32_t, std::vector<Flip>>> Flips;
  llvm::StringMap<int32_t> Ordinals;
  llvm::MutableArrayRef<float> Scores; ///< In memory shared with the children.
  int64_t Current = -1;                ///< The child's row.
};

} // namespace mlgo

#endif
