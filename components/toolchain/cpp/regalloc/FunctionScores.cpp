#include "regalloc/FunctionScores.h"

#include "llvm/Support/EndianStream.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlgo;

void FunctionScores::add(StringRef Function, float Score) {
  Scores.push_back(Score);
  Names.append(Function.data(), Function.size()).push_back('\0');
}

Error FunctionScores::write(const std::string &Path) const {
  std::error_code EC;
  raw_fd_ostream OS(Path, EC);
  if (!EC) {
    OS << "{\"version\":1,\"functions\":" << Scores.size() << "}\n";
    support::endian::Writer Writer(OS, endianness::little);
    for (float Score : Scores)
      Writer.write(Score);
    OS << Names;
    OS.close();
    EC = OS.error();
    OS.clear_error();
  }
  if (EC)
    return createStringError(EC, "cannot write " + Path + ": " + EC.message());
  return Error::success();
}
