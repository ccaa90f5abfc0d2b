//===- FlipMeasurement.h - What flips of decisions come to -------*- C++ -*-===//
//
// A decision of the register allocator changes nothing outside of its function.
// So to know what another one would have come to, nothing else has to be
// compiled again: the process forks at the decision, the child takes the other
// one, goes on to the function's score and ends there. The parent goes on with
// the base's decision.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FLIP_MEASUREMENT_H
#define MLGO_FLIP_MEASUREMENT_H

#include "ForcedDecisions.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlgo {

/// Measures the flips in the file FILE of -mlgo-measure-flips, each alone. It
/// has the format of forced decisions, but a decision may be in it with several
/// actions. FILE.scores has their scores: a line of JSON {"version": 1,
/// "decisions": N}; float32[N], little-endian, in the order of FILE, NaN for
/// those that the compile never came to.
class FlipMeasurement {
public:
  /// Null without the option. A file that cannot be read ends the compile.
  static std::unique_ptr<FlipMeasurement> load(llvm::StringRef Problem);

  ~FlipMeasurement();

  /// Called at each decision of `Function`, in order: forks for each of its
  /// flips. Returns the action to take in a child, nothing in the parent.
  std::optional<int64_t> atDecision(llvm::StringRef Function);

  /// Whether this is a child, which ends with its function.
  bool isFlipped() const { return Current >= 0; }

  /// Ends the child.
  [[noreturn]] void finish(float Score);

  /// Called by the parent, behind the last function.
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
  llvm::MutableArrayRef<float> Scores; // shared with the children
  int64_t Current = -1;                // the child's row
};

} // namespace mlgo

#endif
