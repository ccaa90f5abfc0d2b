// The eviction advisor of the training clang's register allocator, with a log
// of every decision.
//
// It provides the function that -regalloc-enable-advisor=development calls
// (MLGO_CREATE_EVICTION_ADVISOR). Features and scores are LLVM's:
// MLRegAllocEvictAdvisor.cpp exports none of them, so it is included here, and
// its development mode, which this one replaces, gets another name. The
// difference is when things start: a policy is sampled several times by forking
// at the first decision, after all passes that no decision can change.
//
// With -mlgo-forced-decisions a few decisions are taken from a file instead of
// the heuristic or the policy. A decision changes only the score of its own
// function. Therefore one compile can measure one forced decision in each
// function of a module, and -mlgo-measure-flips only has to repeat the rest of
// a function's allocation for each decision.
#include "decisions/ForcedDecisions.h"
#include "decisions/PolicySampling.h"
#include "regalloc/EvictionHook.h"
#include "regalloc/FlipMeasurement.h"
#include "regalloc/FunctionScores.h"
#include "support/LLVMVersion.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

// LLVM 20 moved what an immutable pass did to a provider, which both pass
// managers share.
#if LLVM_VERSION_MAJOR >= 20
#include "llvm/CodeGen/RegAllocEvictionAdvisor.h"
using EvictionAnalysis = llvm::RegAllocEvictionAdvisorAnalysisLegacy;
namespace llvm {
EvictionAnalysis *createLLVMDevelopmentModeAdvisor();
}
#define createDevelopmentModeAdvisorAnalysisLegacy                             \
  createLLVMDevelopmentModeAdvisor
#include "MLRegAllocEvictAdvisor.cpp"
#undef createDevelopmentModeAdvisorAnalysisLegacy
#define MLGO_CREATE_EVICTION_ADVISOR createDevelopmentModeAdvisorAnalysisLegacy
#else
#include "RegAllocEvictionAdvisor.h"
using EvictionAnalysis = llvm::RegAllocEvictionAdvisorAnalysis;
namespace llvm {
EvictionAnalysis *createLLVMDevelopmentModeAdvisor();
}
#define createDevelopmentModeAdvisor createLLVMDevelopmentModeAdvisor
#include "MLRegAllocEvictAdvisor.cpp"
#undef createDevelopmentModeAdvisor
#define MLGO_CREATE_EVICTION_ADVISOR createDevelopmentModeAdvisor
#endif

using namespace mlgo;

namespace {
/// A decision takes 3.5 KB; with its default buffer raw_ostream would write
/// each one separately.
constexpr size_t LogBufferBytes = 1 << 18;

std::vector<TensorSpec> loggedFeatures() {
  std::vector<TensorSpec> Features{RA_EVICT_FEATURES_LIST(_DECL_FEATURES)};
  if (EnableDevelopmentFeatures)
    append_range(Features,
                 std::vector<TensorSpec>{
                     RA_EVICT_FIRST_DEVELOPMENT_FEATURE(_DECL_FEATURES)
                         RA_EVICT_REST_DEVELOPMENT_FEATURES(_DECL_FEATURES)});
  return Features;
}

std::vector<TensorSpec> policyInputs() {
  std::vector<TensorSpec> Inputs;
  for (const TensorSpec &Feature : loggedFeatures())
    Inputs.push_back(TensorSpec("action_" + Feature.name(), Feature));
  return Inputs;
}

/// Returns the name of a function's context; functions without a name get
/// distinct ones. The name is UTF-8, as in the log's JSON, so that a function
/// has the same name in the log, in its scores and in files of forced
/// decisions.
std::string contextName(const MachineFunction &MF) {
  StringRef Name = MF.getName();
  if (Name.empty())
    return "." + std::to_string(MF.getFunctionNumber());
  return json::isUTF8(Name) ? Name.str() : json::fixUTF8(Name);
}

/// Log of the decisions of a module, in LLVM's format: a context for each
/// function with decisions; the reward of its last decision is its score, the
/// rewards of the others are 0.
class EvictionLog {
public:
  EvictionLog(std::unique_ptr<raw_ostream> Stream,
              const ModelUnderTrainingRunner *Policy)
      : Policy(Policy), NumFeatures(loggedFeatures().size()),
        Log(std::move(Stream), specs(Policy), Reward, /*IncludeReward=*/true) {}

  void record(StringRef Function, const MLModelRunner &Runner,
              int64_t Position) {
    if (Log.currentContext() != Function)
      Log.switchContext(Function);
    if (Log.hasObservationInProgress())
      Log.logReward<float>(0);
    Log.startObservation();
    size_t Column = 0;
    auto Put = [&](const void *Data) {
      Log.logTensorValue(Column++, static_cast<const char *>(Data));
    };
    while (Column < NumFeatures)
      Put(Runner.getTensorUntyped(Column));
    for (size_t I = 0;
         Policy && I < Policy->extraOutputsForLoggingSpecs().size(); ++I)
      Put(Policy->getUntypedExtraOutputValue(I));
    Put(&Position);
    Log.endObservation();
  }

  void score(StringRef Function, function_ref<float()> GetScore) {
    if (Log.currentContext() == Function && Log.hasObservationInProgress())
      Log.logReward<float>(GetScore());
  }

private:
  static std::vector<TensorSpec> specs(const ModelUnderTrainingRunner *Policy) {
    std::vector<TensorSpec> Result = loggedFeatures();
    if (Policy)
      append_range(Result, Policy->extraOutputsForLoggingSpecs());
    Result.push_back(DecisionSpec);
    return Result;
  }

  const ModelUnderTrainingRunner *const Policy;
  const size_t NumFeatures;
  Logger Log;
};

/// State that all functions of a module share.
class Session {
public:
  explicit Session(LLVMContext &Context) : Context(Context) {
    if (ModelUnderTraining.empty())
      Runner =
          std::make_unique<NoInferenceModelRunner>(Context, loggedFeatures());
    else
      Runner = ModelUnderTrainingRunner::createAndEnsureValid(
          Context, ModelUnderTraining, DecisionName, policyInputs());
  }

  /// Returns null if the policy could not be loaded, which has been reported.
  MLModelRunner *runner() const { return Runner.get(); }
  bool hasPolicy() const { return isa<ModelUnderTrainingRunner>(*Runner); }
  LLVMContext &context() const { return Context; }

  /// Forks, reads forced decisions and opens the log. Called before the first
  /// decision, or after the last function if there was none.
  void begin() {
    if (std::exchange(Begun, true))
      return;
    Sample = forkIntoSamples();
    Forced = loadForcedDecisions(Sample, "regalloc");
    Flips = FlipMeasurement::load("regalloc");
    const std::string Path = Sample ? Sample->Log : TrainingLog;
    if (Path.empty()) {
      if (Sample)
        Scores = std::make_unique<FunctionScores>();
      return;
    }
    std::error_code Error;
    auto Stream = std::make_unique<raw_fd_ostream>(Path, Error);
    if (Error)
      return Context.emitError("cannot write the training log " + Path + ": " +
                               Error.message());
    Stream->SetBufferSize(LogBufferBytes);
    Log = std::make_unique<EvictionLog>(
        std::move(Stream), dyn_cast<ModelUnderTrainingRunner>(Runner.get()));
  }

  /// Returns the decision in \p Function: a forced one, if any, otherwise the
  /// base's decision \p Position, which the mask allows.
  int64_t decide(StringRef Function, int64_t Position) {
    std::optional<int64_t> Other =
        Forced ? Forced->next(Function) : std::nullopt;
    if (Flips)
      if (std::optional<int64_t> Flip = Flips->atDecision(Function)) {
        // The parent writes the buffered part of the log.
        (void)Log.release();
        Other = Flip;
      }
    if (!Other)
      return Position;
    if (*Other < NumberOfInterferences &&
        Runner->getTensor<int64_t>(FeatureIDs::mask)[*Other])
      return *Other;
    Context.emitError("the forced decision in " + Function + ", position " +
                      Twine(*Other) +
                      ", is one that the mask excludes; it "
                      "was made for another compile");
    return Position;
  }

  void record(StringRef Function, int64_t Position) {
    LastDecided = Function;
    if (Log)
      Log->record(Function, *Runner, Position);
  }

  /// Records the score of \p Function. Called after its last decision, also if
  /// it has none.
  void score(StringRef Function, function_ref<float()> GetScore) {
    if (Flips && Flips->isFlipped()) {
      if (Context.getDiagHandlerPtr()->HasErrors)
        report_fatal_error("a flip in " + Function + " failed",
                           /*gen_crash_diag=*/false);
      Flips->finish(GetScore());
    }
    if (Log)
      Log->score(Function, GetScore);
    if (Scores && LastDecided == Function)
      Scores->add(Function, GetScore());
  }

  /// Writes the report of forced decisions and the scores. Called after the
  /// last function.
  void finish() {
    if (Forced)
      check(Forced->writeReport(Sample ? Sample->Forced
                                       : TrainingLog + ".forced"));
    if (Scores)
      check(Scores->write(Sample->Scores));
    if (Flips)
      check(Flips->write());
  }

private:
  static void check(Error E) {
    if (E)
      report_fatal_error(std::move(E), /*gen_crash_diag=*/false);
  }

  LLVMContext &Context;
  std::unique_ptr<MLModelRunner> Runner;
  std::optional<SampleFiles> Sample;
  /// Null if no decisions are forced.
  std::unique_ptr<ForcedDecisions> Forced;
  /// Null if no flips are measured.
  std::unique_ptr<FlipMeasurement> Flips;
  std::unique_ptr<EvictionLog> Log;
  /// Only in samples without a log.
  std::unique_ptr<FunctionScores> Scores;
  /// The function of the last recorded decision.
  std::string LastDecided;
  bool Begun = false;
};

class EvictionTrainingAdvisor : public MLEvictAdvisor {
public:
  EvictionTrainingAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                          Session &S,
                          const MachineBlockFrequencyInfo &Frequencies,
                          const MachineLoopInfo &Loops)
      : MLEvictAdvisor(MF, RA, S.runner(), Frequencies, Loops), S(S),
        Name(contextName(MF)) {
    // Draws must not depend on the number of decisions in other functions.
    restartDraws(xxh3_64bits(Name));
  }

private:
  int64_t tryFindEvictionCandidatePosition(
      const LiveInterval &Range, const AllocationOrder &Order,
      unsigned OrderLimit, uint8_t CostPerUseLimit,
      const SmallVirtRegSet &Fixed) const override {
    S.begin();
    int64_t Position =
        S.hasPolicy() ? MLEvictAdvisor::tryFindEvictionCandidatePosition(
                            Range, Order, OrderLimit, CostPerUseLimit, Fixed)
                      : defaultPosition(Range, Order, CostPerUseLimit, Fixed);
    if (Position < 0 || Position > CandidateVirtRegPos) {
      S.context().emitError("the policy evicts from position " +
                            Twine(Position) + ", which does not exist");
      return defaultPosition(Range, Order, CostPerUseLimit, Fixed);
    }
    if (S.runner()->getTensor<int64_t>(FeatureIDs::mask)[Position]) {
      Position = S.decide(Name, Position);
      S.record(Name, Position);
    } else if (S.hasPolicy()) {
      S.context().emitError("the policy evicts from position " +
                            Twine(Position) + ", which the mask excludes");
    }
    // Otherwise the heuristic finds no candidate where a policy must choose
    // one. That is not an example to learn from, so it is not logged.
    return Position;
  }

  int64_t defaultPosition(const LiveInterval &Range,
                          const AllocationOrder &Order, uint8_t CostPerUseLimit,
                          const SmallVirtRegSet &Fixed) const {
    MCRegister Register = getDefaultAdvisor().tryFindEvictionCandidate(
        Range, Order, CostPerUseLimit, Fixed);
    if (!Register)
      return CandidateVirtRegPos;
    int64_t Position = 0;
    for (auto I = Order.begin(); *I != Register; ++I)
      ++Position;
    return Position;
  }

  Session &S;
  const std::string Name;
};

/// Returns the advisor of \p MF.
std::unique_ptr<RegAllocEvictionAdvisor>
createAdvisor(const MachineFunction &MF, const RAGreedy &RA, Session &S,
              const MachineBlockFrequencyInfo &Frequencies,
              const MachineLoopInfo &Loops) {
  if (!S.runner()) // The error was reported, but the compile continues.
    return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
  return std::make_unique<EvictionTrainingAdvisor>(MF, RA, S, Frequencies,
                                                   Loops);
}

#if LLVM_VERSION_MAJOR >= 20
/// Hands out advisors that share the session of the analysis.
class EvictionTrainingProvider final : public RegAllocEvictionAdvisorProvider {
public:
  EvictionTrainingProvider(LLVMContext &Context, Session &S)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Development, Context),
        S(S) {}

private:
  std::unique_ptr<RegAllocEvictionAdvisor>
  getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
             MachineBlockFrequencyInfo *Frequencies,
             MachineLoopInfo *Loops) override {
    return createAdvisor(MF, RA, S, *Frequencies, *Loops);
  }

  Session &S;
};
#endif

class EvictionTrainingAnalysis final : public EvictionAnalysis {
public:
  EvictionTrainingAnalysis() : EvictionAnalysis(AdvisorMode::Development) {}

  void logRewardIfNeeded(const MachineFunction &MF,
                         function_ref<float()> GetReward) override {
    if (S)
      S->score(contextName(MF), GetReward);
  }

private:
  void getAnalysisUsage(AnalysisUsage &Usage) const override {
    Usage.addRequired<MachineBlockFrequencyInfoWrapperPass>();
    Usage.addRequired<MachineLoopInfoWrapperPass>();
    EvictionAnalysis::getAnalysisUsage(Usage);
  }

  bool doInitialization(Module &M) override {
    S.emplace(M.getContext());
#if LLVM_VERSION_MAJOR >= 20
    Provider = std::make_unique<EvictionTrainingProvider>(M.getContext(), *S);
#endif
    return false;
  }

  bool doFinalization(Module &) override {
    if (S->runner()) {
      S->begin(); // A module without decisions has samples, too.
      S->finish();
    }
#if LLVM_VERSION_MAJOR >= 20
    Provider.reset();
#endif
    S.reset();
    return false;
  }

#if LLVM_VERSION_MAJOR < 20
  std::unique_ptr<RegAllocEvictionAdvisor>
  getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    return createAdvisor(
        MF, RA, *S,
        getAnalysis<MachineBlockFrequencyInfoWrapperPass>().getMBFI(),
        getAnalysis<MachineLoopInfoWrapperPass>().getLI());
  }
#endif

  std::optional<Session> S;
};
} // namespace

EvictionAnalysis *llvm::MLGO_CREATE_EVICTION_ADVISOR() {
  return new EvictionTrainingAnalysis();
}
