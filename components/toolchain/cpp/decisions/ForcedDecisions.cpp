#include "decisions/ForcedDecisions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <limits>
#include <tuple>

using namespace llvm;
using namespace mlgo;

static constexpr size_t RowWords = 4;
static constexpr size_t RowBytes = RowWords * sizeof(int32_t);

static Error corrupt(StringRef Name, const Twine &What) {
  return createStringError(inconvertibleErrorCode(),
                           Name +
                               " is not a file of forced decisions: " + What);
}

static bool consumeName(StringRef &Header, StringRef Name) {
  Header = Header.ltrim("{, ");
  return Header.consume_front("\"") && Header.consume_front(Name) &&
         Header.consume_front("\": ");
}

bool mlgo::consumeNumber(StringRef &Header, StringRef Name, int64_t &Value) {
  return consumeName(Header, Name) && !Header.consumeInteger(10, Value);
}

bool mlgo::consumeText(StringRef &Header, StringRef Name, StringRef &Value) {
  if (!consumeName(Header, Name) || !Header.consume_front("\""))
    return false;
  std::tie(Value, Header) = Header.split('"');
  return true;
}

StringRef mlgo::symbolName(StringRef Name) {
  Name.consume_front("\1");
  return Name;
}

Expected<DecisionRows> mlgo::readDecisionRows(const std::string &Path,
                                              StringRef Problem) {
  auto Buffer = MemoryBuffer::getFile(Path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!Buffer)
    return createStringError(Buffer.getError(),
                             "cannot read " + Path + ": " +
                                 Buffer.getError().message());
  return parseDecisionRows((*Buffer)->getBuffer(), Path, Problem);
}

Expected<DecisionRows>
mlgo::parseDecisionRows(StringRef Content, StringRef Name, StringRef Problem) {
  auto [Header, Rest] = Content.split('\n');
  int64_t Version, Rows, Names;
  StringRef HeaderProblem;
  if (!consumeNumber(Header, "version", Version))
    return corrupt(Name, "it has no header");
  if (Version != 1)
    return corrupt(Name, "its version is not 1");
  if (!consumeText(Header, "problem", HeaderProblem) ||
      HeaderProblem != Problem)
    return corrupt(Name, "it is not for the problem " + Problem);
  if (!consumeNumber(Header, "decisions", Rows) ||
      !consumeNumber(Header, "names", Names) || Rows < 0 || Names < 0)
    return corrupt(Name, "its header is damaged");
  if (static_cast<uint64_t>(Rows) > Rest.size() / RowBytes)
    return corrupt(Name, "it ends inside its decisions");

  DecisionRows Result;
  StringRef Text = Rest.drop_front(Rows * RowBytes);
  for (int64_t I = 0; I < Names; ++I) {
    size_t End = Text.find('\0');
    if (End == StringRef::npos)
      return corrupt(Name, "it ends inside its names");
    Result.Names.push_back(symbolName(Text.take_front(End)).str());
    Text = Text.drop_front(End + 1);
  }
  if (!Text.empty())
    return corrupt(Name, "something follows its names");
  for (const char *Row = Rest.data(), *End = Row + Rows * RowBytes; Row != End;
       Row += RowBytes) {
    int32_t Words[RowWords];
    for (size_t I = 0; I < RowWords; ++I)
      Words[I] = support::endian::read32le(Row + I * sizeof(int32_t));
    auto [Caller, Callee, Ordinal, Action] = Words;
    // Only a call has a callee, and that may be unnamed. INT32_MAX is not a
    // valid ordinal because DenseMap reserves it as the empty key.
    const bool IsCall = Problem == "inlining";
    if (Caller < 0 || Caller >= Names || Callee < -1 ||
        Callee >= (IsCall ? Names : 0) || Ordinal < 0 ||
        Ordinal == std::numeric_limits<int32_t>::max() || Action < 0 ||
        (IsCall && Action > 1))
      return corrupt(Name, "a decision is out of range");
    Result.Rows.push_back({Caller, Callee, Ordinal, Action});
  }
  return Result;
}

static std::tuple<int32_t, int32_t, int32_t>
keyOf(const DecisionRows::Row &Row) {
  return {Row.Caller, Row.Callee, Row.Ordinal};
}

Expected<ForcedDecisions> ForcedDecisions::create(const DecisionRows &Decisions,
                                                  StringRef Name) {
  ForcedDecisions Result;
  for (auto [I, Symbol] : enumerate(Decisions.Names))
    Result.Ids.try_emplace(Symbol, static_cast<int32_t>(I));
  Result.Rows = Decisions.Rows;
  Result.NextOrdinals.resize(Decisions.Rows.size());
  Result.Reached.resize(Decisions.Rows.size());
  for (size_t I = 1; I < Result.Rows.size(); ++I)
    if (keyOf(Result.Rows[I - 1]) >= keyOf(Result.Rows[I]))
      return corrupt(Name, "a decision is in it twice, or out of order");
  return Result;
}

int32_t ForcedDecisions::idOf(StringRef Symbol) const {
  auto Id = Ids.find(symbolName(Symbol));
  return Id == Ids.end() ? -1 : Id->second;
}

std::optional<int64_t> ForcedDecisions::next(StringRef Caller,
                                             StringRef Callee) {
  const int32_t CallerId = idOf(Caller);
  const int32_t CalleeId = Callee.empty() ? -1 : idOf(Callee);
  if (CallerId < 0 || (CalleeId < 0 && !Callee.empty()))
    return std::nullopt;
  auto LowerBound = [&](int32_t Ordinal) {
    const auto Key = std::make_tuple(CallerId, CalleeId, Ordinal);
    auto IsLess = [&](const Row &Row) { return keyOf(Row) < Key; };
    return partition_point(Rows, IsLess) - Rows.begin();
  };
  const size_t Begin = LowerBound(0);
  if (Begin == Rows.size() || Rows[Begin].Caller != CallerId ||
      Rows[Begin].Callee != CalleeId)
    return std::nullopt;
  const int32_t Ordinal = NextOrdinals[Begin]++;
  const size_t Index = LowerBound(Ordinal);
  if (Index == Rows.size() ||
      keyOf(Rows[Index]) != std::make_tuple(CallerId, CalleeId, Ordinal))
    return std::nullopt;
  Reached[Index] = true;
  return Rows[Index].Action;
}

void ForcedDecisions::startSecondRound() {
  NextOrdinals.assign(NextOrdinals.size(), SecondRoundOrdinal);
}

Error ForcedDecisions::writeReport(const std::string &Path) const {
  std::error_code EC;
  raw_fd_ostream OS(Path, EC);
  if (EC)
    return createStringError(EC, "cannot write " + Path + ": " + EC.message());
  OS << "{\"version\":2,\"decisions\":" << size() << ",\"unreached\":[";
  ListSeparator Comma(",");
  for (size_t I = 0; I < size(); ++I)
    if (!Reached[I])
      OS << Comma << I;
  OS << "]}\n";
  OS.close();
  if (OS.has_error()) {
    EC = OS.error();
    OS.clear_error();
    return createStringError(EC, "cannot write " + Path + ": " + EC.message());
  }
  return Error::success();
}
