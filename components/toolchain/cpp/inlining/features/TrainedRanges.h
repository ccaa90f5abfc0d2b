// Where a policy does not know: outside of the ranges of features that it was
// trained in, LLVM's heuristic decides.
//
// A policy artifact has the ranges (policy.json, "trained_ranges"). A network
// extrapolates at random, and one decision about a function with thousands of
// uses is thousands of decisions. A policy that was trained on code with unwind
// tables counts their bytes as saved by inlining, and no feature tells that a
// function has none.
#ifndef MLGO_TRAINED_RANGES_H
#define MLGO_TRAINED_RANGES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <vector>

namespace mlgo {

class TrainedRanges {
public:
  /// Adds the smallest and the largest value of \p Feature. The ranges of
  /// features that this compiler does not have are ignored.
  void add(llvm::StringRef Feature, int64_t Smallest, int64_t Largest);

  /// Says that every function of the training modules had an unwind table.
  void requireUnwindTables() { NeedUnwindTables = true; }

  /// Says that every function of the training modules was compiled for size.
  void requireSizeLevel() { NeedSizeLevel = true; }

  /// Reads "trained_ranges" and "unwind_tables" of a policy's description.
  static llvm::Expected<TrainedRanges>
  parse(const llvm::json::Object &Description);

  /// Returns why \p Call, whose features \p Features holds, is outside: the
  /// name of a feature, "unwind tables", or "optimization level" for a caller
  /// that is not compiled for size. Empty if it is inside.
  llvm::StringRef outside(const llvm::CallBase &Call,
                          llvm::MLModelRunner &Features) const;

private:
  struct Range {
    size_t Feature;
    int64_t Smallest, Largest;
  };
  std::vector<Range> Ranges;
  bool NeedUnwindTables = false, NeedSizeLevel = false;
};

/// Returns the value of -mlgo-ranges, or \p Default without the option.
bool useTrainedRanges(bool Default);

} // namespace mlgo

#endif
