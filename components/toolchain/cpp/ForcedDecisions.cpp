#include "ForcedDecisions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlgo;

static constexpr size_t RowWords = 4;
static constexpr size_t RowBytes = RowWords * sizeof(int32_t);

static Error corrupt(StringRef Name, const Twine &What) {
  return createStringError(inconvertibleErrorCode(),
                           Name + " is not a file of forced decisions: " + What);
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
    return createStringError(Buffer.getError(), "cannot read " + Path + ": " +
                                                    Buffer.getError().message());
  return parseDecisionRows((*Buffer)->getBuffer(), Path, Problem);
}

Expected<DecisionRows> mlgo::parseDecisionRows(StringRef Content,
                                               StringRef Name,
                                               StringRef Problem) {
  auto [Line, Rest] = Content.split('\n');
  Expected<json::Value> Header = json::parse(Line);
  if (!Header) {
    consumeError(Header.takeError());
    return corrupt(Name, "its first line is not JSON");
  }
  const json::Object *Object = Header->getAsObject();
  auto Number = [&](StringRef Key) {
    return Object ? Object->getInteger(Key).value_or(-1) : -1;
  };
  if (Number("version") != 1)
    return corrupt(Name, "its version is not 1");
  if (Object->getString("problem").value_or("") != Problem)
    return corrupt(Name, "it is not for the problem " + Problem);
  const int64_t Rows = Number("decisions"), Names = Number("names");
  if (Rows < 0 || Names < 0 ||
      static_cast<uint64_t>(Rows) > Rest.size() / RowBytes)
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
    auto [First, Second, Ordinal, Action] = Words;
    if (First < 0 || First >= Names || Second < -1 || Second >= Names ||
        Ordinal < 0 || Action < 0)
      return corrupt(Name, "a decision is out of range");
    Result.Rows.push_back({First, Second, Ordinal, Action});
  }
  return Result;
}

Expected<ForcedDecisions> ForcedDecisions::create(const DecisionRows &Rows,
                                                  StringRef Name) {
  ForcedDecisions Result;
  Result.Decisions = Rows.Rows.size();
  for (auto [I, Known] : enumerate(Rows.Names))
    Result.Ids.try_emplace(Known, static_cast<int32_t>(I));
  for (auto [First, Second, Ordinal, Action] : Rows.Rows)
    if (!Result.Actions[{First, Second}].try_emplace(Ordinal, Action).second)
      return corrupt(Name, "a decision is in it twice");
  return Result;
}

int32_t ForcedDecisions::idOf(StringRef Name) const {
  auto Known = Ids.find(symbolName(Name));
  return Known == Ids.end() ? -1 : Known->second;
}

std::optional<int64_t> ForcedDecisions::next(StringRef First,
                                             StringRef Second) {
  const int32_t FirstId = idOf(First);
  const int32_t SecondId = Second.empty() ? -1 : idOf(Second);
  if (FirstId < 0 || (SecondId < 0 && !Second.empty()))
    return std::nullopt;
  auto Known = Actions.find({FirstId, SecondId});
  if (Known == Actions.end())
    return std::nullopt;
  auto Forced = Known->second.find(Ordinals[{FirstId, SecondId}]++);
  if (Forced == Known->second.end())
    return std::nullopt;
  ++Matched;
  return Forced->second;
}

Error ForcedDecisions::writeReport(const std::string &Path) const {
  std::error_code EC;
  raw_fd_ostream OS(Path, EC);
  if (EC)
    return createStringError(EC, "cannot write " + Path + ": " + EC.message());
  OS << "{\"version\":1,\"decisions\":" << Decisions
     << ",\"unmatched\":" << Decisions - Matched << "}\n";
  OS.close();
  if (OS.has_error()) {
    EC = OS.error();
    OS.clear_error();
    return createStringError(EC, "cannot write " + Path + ": " + EC.message());
  }
  return Error::success();
}
