//===- ForcedDecisions.h - Decisions given by a file ------------*- C++ -*-===//
//
// A counterfactual compile takes the decisions of its base (LLVM's heuristic or
// a policy) except for a few that are forced. A forced decision is identified
// by a key that does not depend on the order of other decisions: for the
// inliner caller, callee and the ordinal among the decisions about this pair,
// for the register allocator function and the ordinal among its decisions.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_FORCED_DECISIONS_H
#define MLGO_FORCED_DECISIONS_H

#include "decisions/PolicySampling.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlgo {

/// Returns a symbol's name without the leading \1 that tells LLVM not to mangle
/// it.
llvm::StringRef symbolName(llvm::StringRef Name);

/// The content of a file of decisions.
///
/// File format (components/core/compiler/forced_decisions.py writes it): a line
/// of JSON {"version": 1, "problem", "decisions": N, "names": M}; int32[N][4]
/// of caller, callee, ordinal and action; M names, each terminated by NUL.
/// Numbers are little-endian.
struct DecisionRows {
  /// Symbols are indices of Names. The register allocator decides about a
  /// function, which is the caller; the callee is -1.
  struct Row {
    int32_t Caller, Callee, Ordinal, Action;
  };

  std::vector<std::string> Names; ///< As returned by symbolName().
  std::vector<Row> Rows;          ///< All fields are in range.
};

/// Consumes the next field of the header of such a file (or of another file
/// that our Python code writes) if it is named \p Name. LLVM's JSON parser is
/// not used because clang does not contain it otherwise; it would add 10 KB.
bool consumeNumber(llvm::StringRef &Header, llvm::StringRef Name,
                   int64_t &Value);
bool consumeText(llvm::StringRef &Header, llvm::StringRef Name,
                 llvm::StringRef &Value);

/// Parses the content of such a file, which must be for \p Problem. Errors
/// refer to it as \p Name.
llvm::Expected<DecisionRows> parseDecisionRows(llvm::StringRef Content,
                                               llvm::StringRef Name,
                                               llvm::StringRef Problem);

/// Reads the file \p Path, which must be for \p Problem.
llvm::Expected<DecisionRows> readDecisionRows(const std::string &Path,
                                              llvm::StringRef Problem);

/// The decisions of one file, consumed in the order in which a compile reaches
/// them.
class ForcedDecisions {
public:
  /// Fails if the rows are not sorted by key or contain a key twice. Errors
  /// refer to them as \p Name.
  static llvm::Expected<ForcedDecisions> create(const DecisionRows &Rows,
                                                llvm::StringRef Name);

  /// Returns the forced action of the next decision about \p Callee in
  /// \p Caller, if any.
  std::optional<int64_t> next(llvm::StringRef Caller,
                              llvm::StringRef Callee = "");

  /// Called before a program goes through the inliner for the second time. The
  /// ordinals of decisions then start at SecondRoundOrdinal.
  void startSecondRound();

  /// components/core/compiler/forced_decisions.py has the same number.
  static constexpr int32_t SecondRoundOrdinal = 1 << 20;

  size_t size() const { return Rows.size(); }

  /// Returns how many of the decisions the compile has reached so far.
  size_t matched() const { return llvm::count(Reached, true); }

  /// Writes {"version", "decisions", "unreached"} to \p Path: the number of
  /// decisions in the file, and the indices of those that the compile did not
  /// reach.
  llvm::Error writeReport(const std::string &Path) const;

private:
  using Row = DecisionRows::Row;

  int32_t idOf(llvm::StringRef Symbol) const;

  llvm::StringMap<int32_t> Ids;
  std::vector<Row> Rows; ///< Sorted by caller, callee, ordinal.
  /// At the index of the first row of a caller and a callee: the number of
  /// decisions about them so far.
  std::vector<int32_t> NextOrdinals;
  std::vector<bool> Reached; ///< For each row, whether the compile reached it.
};

/// Loads the decisions of -mlgo-forced-decisions=FILE, from FILE, or from
/// FILE.I in sample I of a fork. Returns null without the option. Aborts the
/// compile if the file cannot be read.
std::unique_ptr<ForcedDecisions>
loadForcedDecisions(const std::optional<SampleFiles> &Sample,
                    llvm::StringRef Problem);

} // namespace mlgo

#endif
