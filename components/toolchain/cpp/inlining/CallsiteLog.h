// Log of the caller and the callee of each decision in a training log.
#ifndef MLGO_CALLSITE_LOG_H
#define MLGO_CALLSITE_LOG_H

#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Function.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlgo {

/// Caller, callee and outcome of each decision; written by the destructor.
///
/// File format: a line of JSON {"version", "decisions": N, "functions": M,
/// "source"}, where "source" is the name of the module's source file, and in a
/// program that went through the inliner twice "first_round", the number of
/// decisions of the first time;
/// int32[N][3] of caller, callee and whether the call was inlined; uint8[M] of
/// flags (bit 0: the definition is discardable if unused); M names, each
/// terminated by NUL. Numbers are little-endian. Callers and callees are
/// indices of the flags and names.
class CallsiteLog {
public:
  CallsiteLog(std::string Path, llvm::StringRef Source);
  ~CallsiteLog();
  int32_t intern(const llvm::Function &F);
  void add(std::pair<int32_t, int32_t> CallerAndCallee, bool Inlined);

  /// Called before a program goes through the inliner for the second time.
  void startSecondRound();

private:
  const std::string Path, Source;
  llvm::StringMap<int32_t> Ids;
  std::string Names, Flags;
  std::vector<int32_t> Rows;
  std::optional<size_t> FirstRound;
};

} // namespace mlgo

#endif
