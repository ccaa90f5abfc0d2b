// Who called whom at each decision of a training log.
#ifndef MLGO_CALLSITE_LOG_H
#define MLGO_CALLSITE_LOG_H

#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Function.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Written when the advisor goes, as: a line of JSON {"version", "decisions": N, "functions": M, "source"}, the name of
/// the module's source file; int32[N][3] of caller,
/// callee and whether the call was inlined; uint8[M] of flags (bit 0: the definition goes when nothing uses it); M names,
/// each ended by NUL. Numbers are little-endian. Function ids are indices of the last two.
class CallsiteLog {
public:
  CallsiteLog(std::string Path, llvm::StringRef Source);
  ~CallsiteLog();
  int32_t intern(const llvm::Function &F);
  void add(std::pair<int32_t, int32_t> CallerAndCallee, bool Inlined);

private:
  const std::string Path, Source;
  llvm::StringMap<int32_t> Ids;
  std::string Names, Flags;
  std::vector<int32_t> Rows;
};

#endif
