#include "inlining/InlinePlan.h"

#include "program/SizePipeline.h"
#include "support/LLVMOptions.h"
#include "llvm/Analysis/NoInferenceModelRunner.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MD5.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace mlgo;

/// Requests the advisor that knows plans: a plan without it would be ignored.
static void requestReleaseAdvisor() {
  if (!isGiven("enable-ml-inliner"))
    llvmOption<InliningAdvisorMode>("enable-ml-inliner")
        .setValue(InliningAdvisorMode::Release);
}

static cl::opt<std::string> PlanFile(
    "mlgo-inline-plan", cl::Hidden,
    cl::desc("Take the inlining decisions in this file, and those that "
             "are not in it from the policy"),
    cl::callback([](const std::string &) { requestReleaseAdvisor(); }));

static constexpr char Problem[] = "inlining";
static constexpr char RemarkPass[] = "inline-plan";
static constexpr size_t EntryWords = 5;
static constexpr size_t EntryBytes = EntryWords * sizeof(uint64_t);

namespace {
struct Entry {
  uint64_t Source, File, Offset, Size, Crc;
};

class Plan {
public:
  static Expected<Plan> read(const std::string &Path);

  /// Returns the decisions of the entry that matches \p M best, if any.
  Expected<std::optional<ForcedDecisions>> decisionsOf(const Module &M) const;

  bool hasDecisions() const { return !Index.empty(); }

  StringRef choices() const { return Choices; }

private:
  Expected<DecisionRows> rows(const Entry &E) const;

  std::string Path;
  std::unique_ptr<MemoryBuffer> Buffer;
  std::vector<Entry> Index;
  StringRef Choices; ///< In the buffer.
};
} // namespace

static Error unusable(const std::string &Path, const Twine &What) {
  return createStringError(inconvertibleErrorCode(),
                           Path + " is not a plan for this clang: " + What +
                               "; make it again with mlgo tune");
}

static uint32_t crcOf(StringRef Content) {
  return crc32({Content.bytes_begin(), Content.size()});
}

Expected<Plan> Plan::read(const std::string &Path) {
  auto File = MemoryBuffer::getFile(Path, /*IsText=*/false,
                                    /*RequiresNullTerminator=*/false);
  if (!File)
    return createStringError(File.getError(), "cannot read the plan " + Path +
                                                  ": " +
                                                  File.getError().message());
  Plan Result;
  Result.Path = Path;
  Result.Buffer = std::move(*File);
  auto [Header, Rest] = Result.Buffer->getBuffer().split('\n');
  int64_t Version, Major, Modules, Crc;
  StringRef HeaderProblem;
  if (!consumeNumber(Header, "version", Version))
    return unusable(Path, "it has no header");
  if (Version != 1)
    return unusable(Path, "its version is not 1");
  if (!consumeText(Header, "problem", HeaderProblem) ||
      HeaderProblem != Problem)
    return unusable(Path, "it is not for inlining");
  if (!consumeNumber(Header, "llvm_major", Major) ||
      !consumeNumber(Header, "modules", Modules) ||
      !consumeNumber(Header, "crc", Crc) || Modules < 0)
    return unusable(Path, "its header is damaged");
  if (Major != LLVM_VERSION_MAJOR)
    return unusable(Path, "it was made with LLVM " + Twine(Major) +
                              ", and this is LLVM " +
                              Twine(LLVM_VERSION_MAJOR));
  if (static_cast<uint64_t>(Modules) > Rest.size() / EntryBytes)
    return unusable(Path, "it ends inside its index");
  StringRef Index = Rest.take_front(Modules * EntryBytes);
  if (crcOf(Index) != Crc)
    return unusable(Path, "its index is damaged");
  for (const char *At = Index.begin(); At != Index.end(); At += EntryBytes) {
    uint64_t Words[EntryWords];
    for (size_t I = 0; I < EntryWords; ++I)
      Words[I] = support::endian::read64le(At + I * sizeof(uint64_t));
    Result.Index.push_back({Words[0], Words[1], Words[2], Words[3], Words[4]});
  }
  // Entries that share bytes would make a small plan take hours.
  StringRef Following = Rest.drop_front(Index.size());
  for (const Entry &E : Result.Index) {
    if (E.Size > Following.size())
      return unusable(Path, "it is cut off");
    Following = Following.drop_front(E.Size);
  }
  int64_t ChoicesCrc;
  if (consumeNumber(Header, "choices", ChoicesCrc)) {
    Result.Choices = Following;
    if (crcOf(Result.Choices) != ChoicesCrc)
      return unusable(Path, "its choices are damaged");
  }
  return Result;
}

Expected<DecisionRows> Plan::rows(const Entry &E) const {
  StringRef Content = Buffer->getBuffer();
  if (E.Offset > Content.size() || E.Size > Content.size() - E.Offset)
    return unusable(Path, "it is cut off");
  Content = Content.substr(E.Offset, E.Size);
  if (crcOf(Content) != E.Crc)
    return unusable(Path, "a module's decisions are damaged");
  return parseDecisionRows(Content, Path, Problem);
}

static bool defines(const Module &M, StringRef Symbol) {
  const Function *F = M.getFunction(Symbol);
  if (!F)
    F = M.getFunction(("\1" + Symbol).str());
  return F && !F->isDeclaration();
}

/// Returns how many of the calls in \p Rows, the decisions about a program, are
/// of two functions that \p M defines, and the number of calls. Any program
/// defines callers such as main.
static std::pair<size_t, size_t> definedCalls(const DecisionRows &Rows,
                                              const Module &M) {
  std::vector<bool> Defined;
  for (const std::string &Name : Rows.Names)
    Defined.push_back(defines(M, Name));
  return {count_if(Rows.Rows,
                   [&](const DecisionRows::Row &Row) {
                     return Defined[Row.Caller] && Row.Callee >= 0 &&
                            Defined[Row.Callee];
                   }),
          Rows.Rows.size()};
}

/// Returns how many of the callers in \p Rows are defined in \p M, and the
/// number of callers.
static std::pair<size_t, size_t> definedCallers(const DecisionRows &Rows,
                                                const Module &M) {
  std::vector<bool> Decides(Rows.Names.size());
  for (const DecisionRows::Row &Row : Rows.Rows)
    Decides[Row.Caller] = true;
  size_t Defined = 0, Callers = 0;
  for (size_t I = 0; I < Decides.size(); ++I)
    if (Decides[I]) {
      ++Callers;
      Defined += defines(M, Rows.Names[I]);
    }
  return {Defined, Callers};
}

Expected<std::optional<ForcedDecisions>>
Plan::decisionsOf(const Module &M) const {
  StringRef Name = M.getSourceFileName();
  const uint64_t Source = MD5Hash(Name);
  const uint64_t File = MD5Hash(sys::path::filename(Name));
  const auto Exact =
      count_if(Index, [&](const Entry &E) { return E.Source == Source; });
  const bool IsProgram = isProgram && isProgram(M);
  std::optional<DecisionRows> Best;
  size_t MostDefined = 0;
  for (const Entry &E : Index) {
    if (Exact ? E.Source != Source : E.File != File)
      continue;
    Expected<DecisionRows> Rows = rows(E);
    if (!Rows)
      return Rows.takeError();
    auto [Defined, All] =
        IsProgram ? definedCalls(*Rows, M) : definedCallers(*Rows, M);
    // A file name is only a hint: a project may have many main.cpp, and all
    // programs have one name.
    const bool IsCertain = Exact && !IsProgram;
    if ((IsCertain || 2 * Defined > All) && (!Best || Defined > MostDefined)) {
      Best = std::move(*Rows);
      MostDefined = Defined;
    }
  }
  if (!Best)
    return std::nullopt;
  Expected<ForcedDecisions> Decisions = ForcedDecisions::create(*Best, Path);
  if (!Decisions)
    return Decisions.takeError();
  return std::move(*Decisions);
}

bool mlgo::isPlanGiven() { return !PlanFile.empty(); }

/// Returns the plan, which a process reads once: children of
/// -mlgo-keep-smaller share it, as do the threads of a link. Emits an error and
/// returns null if it cannot be read.
static const Plan *loadPlan(Module &M) {
  static Expected<Plan> Loaded = Plan::read(PlanFile);
  static const std::string Message = Loaded ? "" : toString(Loaded.takeError());
  if (Message.empty())
    return &*Loaded;
  M.getContext().emitError(Message);
  return nullptr;
}

std::string mlgo::loadPlannedChoices(Module &M) {
  const Plan *P = loadPlan(M);
  return P ? P->choices().str() : "";
}

static void remark(Module &M, StringRef Name, const Twine &Message) {
  auto Defined = find_if(M, [](Function &F) { return !F.isDeclaration(); });
  if (Defined == M.end())
    return;
  OptimizationRemarkAnalysis R(RemarkPass, Name, &*Defined);
  R << Message.str();
  M.getContext().diagnose(R);
}

std::optional<ForcedDecisions> mlgo::loadInlinePlan(Module &M) {
  if (!isPlanGiven())
    return std::nullopt;
  const Plan *P = loadPlan(M);
  if (!P)
    return ForcedDecisions();
  if (!P->hasDecisions() && !P->choices().empty())
    return std::nullopt;
  auto Decisions = P->decisionsOf(M);
  if (!Decisions)
    M.getContext().emitError(toString(Decisions.takeError()));
  else if (*Decisions)
    return std::move(*Decisions);
  else
    remark(M, "NoPlan",
           "the plan has no decisions of " + M.getSourceFileName());
  return ForcedDecisions();
}

PlannedInlineAdvisor::PlannedInlineAdvisor(
    Module &M, ModuleAnalysisManager &MAM,
    std::unique_ptr<MLModelRunner> Runner,
    std::function<bool(CallBase &)> GetDefaultAdvice, ForcedDecisions Plan)
    : InlineFeatureAdvisor(M, MAM, std::move(Runner),
                           std::move(GetDefaultAdvice)),
      Plan(std::move(Plan)) {}

static thread_local ForcedDecisions OfFirstRound;

ForcedDecisions mlgo::takePlanOfFirstRound() {
  ForcedDecisions Result = std::move(OfFirstRound);
  OfFirstRound = ForcedDecisions();
  Result.startSecondRound();
  return Result;
}

PlannedInlineAdvisor::~PlannedInlineAdvisor() {
  if (isProgram && isProgram(M) && !isSecondRound()) {
    OfFirstRound = std::move(Plan);
    return;
  }
  if (Plan.size())
    remark(M, "Planned",
           Twine(Plan.matched()) + " of the plan's " + Twine(Plan.size()) +
               " decisions were found");
}

std::unique_ptr<InlineAdvice>
PlannedInlineAdvisor::decide(CallBase &Call, OptimizationRemarkEmitter &ORE) {
  if (std::optional<bool> Action = takeForced(Plan, Call))
    return std::make_unique<TrackedAdvice>(this, Call, ORE, *Action);
  if (isa<NoInferenceModelRunner>(*ModelRunner))
    return std::make_unique<TrackedAdvice>(this, Call, ORE,
                                           GetDefaultAdvice(Call));
  return InlineFeatureAdvisor::decide(Call, ORE);
}
