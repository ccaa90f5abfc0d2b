#include "ForcedDecisions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlgo;

static cl::opt<std::string> ForcedDecisionsFile(
    "mlgo-forced-decisions", cl::Hidden,
    cl::desc("Take the decisions in this file whatever the heuristic or the "
             "policy says; sample I of -mlgo-samples reads FILE.I"));

static constexpr size_t RowWords = 4;
static constexpr size_t RowBytes = RowWords * sizeof(int32_t);

static Error corrupt(const std::string &Path, const Twine &What) {
  return createStringError(inconvertibleErrorCode(),
                           Path + " is not a file of forced decisions: " + What);
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
  auto [Line, Rest] = (*Buffer)->getBuffer().split('\n');
  Expected<json::Value> Header = json::parse(Line);
  if (!Header) {
    consumeError(Header.takeError());
    return corrupt(Path, "its first line is not JSON");
  }
  const json::Object *Object = Header->getAsObject();
  auto Number = [&](StringRef Key) {
    return Object ? Object->getInteger(Key).value_or(-1) : -1;
  };
  if (Number("version") != 1)
    return corrupt(Path, "its version is not 1");
  if (Object->getString("problem").value_or("") != Problem)
    return corrupt(Path, "it is not for the problem " + Problem);
  const int64_t Rows = Number("decisions"), Names = Number("names");
  if (Rows < 0 || Names < 0 ||
      static_cast<uint64_t>(Rows) > Rest.size() / RowBytes)
    return corrupt(Path, "it ends inside its decisions");

  DecisionRows Result;
  StringRef Text = Rest.drop_front(Rows * RowBytes);
  for (int64_t I = 0; I < Names; ++I) {
    size_t End = Text.find('\0');
    if (End == StringRef::npos)
      return corrupt(Path, "it ends inside its names");
    Result.Names.push_back(symbolName(Text.take_front(End)).str());
    Text = Text.drop_front(End + 1);
  }
  if (!Text.empty())
    return corrupt(Path, "something follows its names");
  for (const char *Row = Rest.data(), *End = Row + Rows * RowBytes; Row != End;
       Row += RowBytes) {
    int32_t Words[RowWords];
    for (size_t I = 0; I < RowWords; ++I)
      Words[I] = support::endian::read32le(Row + I * sizeof(int32_t));
    auto [First, Second, Ordinal, Action] = Words;
    if (First < 0 || First >= Names || Second < -1 || Second >= Names ||
        Ordinal < 0 || Action < 0)
      return corrupt(Path, "a decision is out of range");
    Result.Rows.push_back({First, Second, Ordinal, Action});
  }
  return Result;
}

Expected<ForcedDecisions> ForcedDecisions::read(const std::string &Path,
                                                StringRef Problem) {
  Expected<DecisionRows> File = readDecisionRows(Path, Problem);
  if (!File)
    return File.takeError();
  ForcedDecisions Result;
  Result.Decisions = File->Rows.size();
  for (auto [I, Name] : enumerate(File->Names))
    Result.Ids.try_emplace(Name, static_cast<int32_t>(I));
  for (auto [First, Second, Ordinal, Action] : File->Rows)
    if (!Result.Actions[{First, Second}].try_emplace(Ordinal, Action).second)
      return corrupt(Path, "a decision is in it twice");
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

std::unique_ptr<ForcedDecisions>
mlgo::loadForcedDecisions(const std::optional<SampleFiles> &Sample,
                          StringRef Problem) {
  if (ForcedDecisionsFile.empty())
    return nullptr;
  std::string Path = ForcedDecisionsFile;
  if (Sample)
    Path += "." + std::to_string(Sample->Index);
  auto Forced = ForcedDecisions::read(Path, Problem);
  if (!Forced)
    report_fatal_error(Forced.takeError(), /*gen_crash_diag=*/false);
  return std::make_unique<ForcedDecisions>(std::move(*Forced));
}
