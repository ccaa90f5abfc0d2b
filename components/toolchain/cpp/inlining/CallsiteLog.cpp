#include "inlining/CallsiteLog.h"

#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlgo;

CallsiteLog::CallsiteLog(std::string Path, StringRef Source)
    : Path(std::move(Path)), Source(Source) {}

int32_t CallsiteLog::intern(const Function &F) {
  auto [It, IsNew] =
      Ids.try_emplace(F.getName(), static_cast<int32_t>(Ids.size()));
  if (IsNew) {
    // A leading \1 tells LLVM not to mangle the name; it is not part of the
    // symbol in the object.
    StringRef Symbol = F.getName();
    Symbol.consume_front("\1");
    Names.append(Symbol.data(), Symbol.size());
    Names.push_back('\0');
    Flags.push_back(F.isDiscardableIfUnused());
  }
  return It->second;
}

void CallsiteLog::add(std::pair<int32_t, int32_t> CallerAndCallee,
                      bool Inlined) {
  for (int32_t Value : {CallerAndCallee.first, CallerAndCallee.second,
                        static_cast<int32_t>(Inlined)})
    Rows.push_back(
        support::endian::byte_swap<int32_t, llvm::endianness::little>(Value));
}

void CallsiteLog::startSecondRound() { FirstRound = Rows.size() / 3; }

CallsiteLog::~CallsiteLog() {
  std::error_code Error;
  raw_fd_ostream OS(Path, Error);
  if (!Error) {
    OS << "{\"version\":1,\"decisions\":" << Rows.size() / 3
       << ",\"functions\":" << Flags.size()
       << ",\"source\":" << json::Value(json::fixUTF8(Source));
    if (FirstRound)
      OS << ",\"first_round\":" << *FirstRound;
    OS << "}\n";
    OS.write(reinterpret_cast<const char *>(Rows.data()),
             Rows.size() * sizeof(int32_t));
    OS << Flags << Names;
  }
  // A log without its callsites must not look complete, so exit with an error,
  // as raw_fd_ostream itself does.
  if (Error || OS.has_error())
    report_fatal_error(Twine("cannot write ") + Path, /*gen_crash_diag=*/false);
}
