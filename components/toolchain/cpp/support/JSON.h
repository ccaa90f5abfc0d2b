// Parses JSON of files that others wrote.
#ifndef MLGO_JSON_H
#define MLGO_JSON_H

#include "llvm/Support/JSON.h"

namespace mlgo {

/// Like llvm::json::parse, whose recursion overflows the stack where JSON is
/// nested deeply.
inline llvm::Expected<llvm::json::Value> parseJSON(llvm::StringRef Text) {
  constexpr int MaxDepth = 64;
  int Depth = 0;
  bool IsString = false;
  for (size_t I = 0; I < Text.size(); ++I) {
    const char C = Text[I];
    if (C == '"')
      IsString = !IsString;
    else if (IsString)
      I += C == '\\';
    else if ((C == '[' || C == '{') && ++Depth > MaxDepth)
      return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                     "it is nested too deeply");
    else if (C == ']' || C == '}')
      --Depth;
  }
  return llvm::json::parse(Text);
}

} // namespace mlgo

#endif
