//===- ForcedDecisions.h - Decisions that a file prescribes ------*- C++ -*-===//
//
// A counterfactual compile takes the decisions of its base (LLVM's heuristic or
// a policy) but for a few that are forced. They are named by a key that does
// not depend on the order of other decisions: for the inliner caller, callee
// and how many-th decision about this pair it is, for the register allocator
// function and how many-th decision in it.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FORCED_DECISIONS_H
#define MLGO_FORCED_DECISIONS_H

#include "PolicySampling.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlgo {

/// A symbol's name without the leading \1 that tells LLVM not to mangle it.
llvm::StringRef symbolName(llvm::StringRef Name);

/// A file of decisions as it is.
///
/// File format (components/compiler/forced_decisions.py writes it): a line of
/// JSON {"version": 1, "problem", "decisions": N, "names": M}; int32[N][4] of
/// two names (indices; the second is -1 for the register allocator), ordinal
/// and action; M names, each ended by NUL. Numbers are little-endian.
struct DecisionRows {
  struct Row {
    int32_t First, Second, Ordinal, Action;
  };

  std::vector<std::string> Names; // as symbolName() has them
  std::vector<Row> Rows;          // in range
};

/// The header of such a file, and of others that our Python writes: consumes
/// the next of its fields if it has this name. Not LLVM's JSON parser, which no
/// clang has in it otherwise: 10 KB.
bool consumeNumber(llvm::StringRef &Header, llvm::StringRef Name,
                   int64_t &Value);
bool consumeText(llvm::StringRef &Header, llvm::StringRef Name,
                 llvm::StringRef &Value);

/// Parses the content of such a file, which must be for `Problem`. Errors call
/// it `Name`.
llvm::Expected<DecisionRows> parseDecisionRows(llvm::StringRef Content,
                                               llvm::StringRef Name,
                                               llvm::StringRef Problem);

/// Reads `Path`, which must be for `Problem`.
llvm::Expected<DecisionRows> readDecisionRows(const std::string &Path,
                                              llvm::StringRef Problem);

/// The decisions of one file, consumed in the order in which a compile comes to
/// them.
class ForcedDecisions {
public:
  /// Fails, calling the rows `Name`, if they are not sorted by their keys or
  /// have one twice.
  static llvm::Expected<ForcedDecisions> create(const DecisionRows &Rows,
                                                llvm::StringRef Name);

  /// The forced action of the next decision about `First` and `Second`, if any.
  std::optional<int64_t> next(llvm::StringRef First,
                              llvm::StringRef Second = "");

  size_t size() const { return Rows.size(); }

  /// How many of them the compile has come to so far.
  size_t matched() const { return llvm::count(Reached, true); }

  /// Writes {"version", "decisions", "unreached"} to `Path`: how many decisions
  /// the file has, and which of them, by their place in it, the compile never
  /// came to.
  llvm::Error writeReport(const std::string &Path) const;

private:
  using Row = DecisionRows::Row;

  int32_t idOf(llvm::StringRef Name) const;

  llvm::StringMap<int32_t> Ids;
  std::vector<Row> Rows; // sorted by names and ordinal
  /// Where the rows of a pair of names begin: how many decisions about the pair
  /// there were so far.
  std::vector<int32_t> Seen;
  std::vector<bool> Reached; // of each row, whether the compile came to it
};

/// The decisions that -mlgo-forced-decisions names: FILE, or FILE.I for sample
/// I of a fork. Null without the option. A file that cannot be read ends the
/// compile with an error.
std::unique_ptr<ForcedDecisions>
loadForcedDecisions(const std::optional<SampleFiles> &Sample,
                    llvm::StringRef Problem);

} // namespace mlgo

#endif
