// The inline advisor of the training clang, with a log of every decision.
//
// -enable-ml-inliner=development requests it. It replaces
// llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp. The log has LLVM's format
// (docs/MLGO.rst, "Logging Facility"). <log>.calls has the caller and the
// callee of each decision, so that rewards can be attributed to functions.
#include "decisions/ForcedDecisions.h"
#include "decisions/PolicySampling.h"
#include "inlining/CallsiteLog.h"
#include "inlining/InlineAdvisors.h"
#include "inlining/InlineFeatureAdvisor.h"
#include "policy/PolicyRunner.h"
#include "program/SizePipeline.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/NoInferenceModelRunner.h"
#include "llvm/Analysis/Utils/TrainingLogger.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace mlgo;

// These two options have the names and meanings of LLVM's development mode,
// which ml-compiler-opt's runners pass.
static cl::opt<std::string> TrainingLog(
    "training-log", cl::Hidden,
    cl::desc("Write every inlining decision and its features to this file"));
static cl::opt<std::string> PolicyDirectory(
    "ml-inliner-model-under-training", cl::Hidden,
    cl::desc("Directory of the policy: policy.so or model.tflite, and "
             "output_spec.json"));

namespace {
/// Writes the training log and the log of callsites.
class DecisionLog {
public:
  DecisionLog(std::unique_ptr<raw_ostream> Stream, std::string CallsPath,
              StringRef Source, const PolicyRunner *Policy)
      : Policy(Policy), Specs(specs(Policy)),
        Log(std::move(Stream), Specs,
            TensorSpec::createSpec<int64_t>(RewardName, {1}),
            /*IncludeReward=*/false),
        Calls(std::move(CallsPath), Source) {
    Log.switchContext("");
  }

  std::pair<int32_t, int32_t> intern(const Function &Caller,
                                     const Function &Callee) {
    return {Calls.intern(Caller), Calls.intern(Callee)};
  }

  void startSecondRound() { Calls.startSecondRound(); }

  void record(const MLModelRunner &Runner, std::pair<int32_t, int32_t> Callsite,
              int64_t Default, int64_t Advice, bool Inlined) {
    Log.startObservation();
    size_t Position = 0;
    auto Put = [&](const void *Data) {
      Log.logTensorValue(Position++, static_cast<const char *>(Data));
    };
    for (size_t I = 0; I < inliningFeatures().size(); ++I)
      Put(Runner.getTensorUntyped(I));
    for (size_t I = 0; Policy && I < Policy->loggedOutputs().size(); ++I)
      Put(Policy->loggedOutput(I));
    Put(&Default);
    Put(&Advice);
    Log.endObservation();
    Calls.add(Callsite, Inlined);
  }

private:
  static std::vector<TensorSpec> specs(const PolicyRunner *Policy) {
    std::vector<TensorSpec> Result = inliningFeatures();
    if (Policy)
      append_range(Result, Policy->loggedOutputs());
    Result.push_back(DefaultDecisionSpec);
    Result.push_back(InlineDecisionSpec);
    return Result;
  }

  const PolicyRunner *const Policy;
  const std::vector<TensorSpec> Specs;
  Logger Log;
  CallsiteLog Calls;
};

/// The decisions of a compile: those that are logged, and those that are
/// forced.
struct Decisions {
  std::unique_ptr<DecisionLog> Log;
  /// Null if no decisions are forced.
  std::unique_ptr<ForcedDecisions> Forced;
  std::string ForcedReport;
};

/// What a program's first time through the inliner leaves to the second.
static thread_local std::optional<Decisions> OfFirstRound;

class InlineTrainingAdvisor : public InlineFeatureAdvisor {
public:
  InlineTrainingAdvisor(Module &M, ModuleAnalysisManager &MAM,
                        std::unique_ptr<MLModelRunner> Runner,
                        std::function<bool(CallBase &)> GetDefaultAdvice,
                        Decisions OfCompile)
      : InlineFeatureAdvisor(M, MAM, std::move(Runner),
                             std::move(GetDefaultAdvice)),
        OfCompile(std::move(OfCompile)) {}
  ~InlineTrainingAdvisor() override;

protected:
  std::unique_ptr<InlineAdvice> decide(CallBase &Call,
                                       OptimizationRemarkEmitter &ORE) override;

private:
  class LoggedAdvice;

  Decisions OfCompile;
};

InlineTrainingAdvisor::~InlineTrainingAdvisor() {
  if (isProgram && isProgram(M) && !isSecondRound() &&
      !isa<PolicyRunner>(*ModelRunner)) {
    OfFirstRound = std::move(OfCompile);
    return;
  }
  if (!OfCompile.Forced)
    return;
  if (Error E = OfCompile.Forced->writeReport(OfCompile.ForcedReport))
    report_fatal_error(std::move(E), /*gen_crash_diag=*/false);
}

class InlineTrainingAdvisor::LoggedAdvice : public TrackedAdvice {
public:
  LoggedAdvice(InlineTrainingAdvisor *Advisor, CallBase &Call,
               OptimizationRemarkEmitter &ORE, bool Advice, bool Default)
      : TrackedAdvice(Advisor, Call, ORE, Advice), Default(Default),
        Log(*Advisor->OfCompile.Log),
        // Now, because the callee may be deleted when the advice is recorded.
        Callsite(Log.intern(*Caller, *Callee)) {}

private:
  void recordInliningImpl() override {
    TrackedAdvice::recordInliningImpl();
    record(true);
  }
  void recordInliningWithCalleeDeletedImpl() override {
    TrackedAdvice::recordInliningWithCalleeDeletedImpl();
    record(true);
  }
  void recordUnsuccessfulInliningImpl(const InlineResult &Result) override {
    TrackedAdvice::recordUnsuccessfulInliningImpl(Result);
    record(false);
  }
  void recordUnattemptedInliningImpl() override {
    TrackedAdvice::recordUnattemptedInliningImpl();
    record(false);
  }
  void record(bool Inlined) {
    Log.record(owner().modelRunner(), Callsite, Default,
               isInliningRecommended(), Inlined);
  }

  const bool Default;
  DecisionLog &Log;
  const std::pair<int32_t, int32_t> Callsite;
};

std::unique_ptr<InlineAdvice>
InlineTrainingAdvisor::decide(CallBase &Call, OptimizationRemarkEmitter &ORE) {
  const bool HasPolicy = isa<PolicyRunner>(*ModelRunner);
  const bool Outside = HasPolicy && isOutsideRanges(Call, ORE);
  // The heuristic is evaluated only if its decision is used or logged.
  const bool Default =
      (HasPolicy && !OfCompile.Log && !Outside) || GetDefaultAdvice(Call);
  setSampleKey(xxh3_64bits(Call.getCalledFunction()->getName()));
  // The policy is evaluated also where it does not decide: its logits are
  // logged.
  bool Advice = HasPolicy ? ModelRunner->evaluate<int64_t>() != 0 : Default;
  if (Outside)
    Advice = Default;
  if (OfCompile.Forced)
    if (std::optional<bool> Action = takeForced(*OfCompile.Forced, Call))
      Advice = *Action;
  if (!OfCompile.Log)
    return std::make_unique<TrackedAdvice>(this, Call, ORE, Advice);
  return std::make_unique<LoggedAdvice>(this, Call, ORE, Advice, Default);
}
} // namespace

std::unique_ptr<InlineAdvisor>
mlgo::createInlineTrainingAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                  DefaultAdvice GetDefaultAdvice) {
  LLVMContext &Context = M.getContext();
  const bool IsSecond = isSecondRound && isSecondRound();
  if (IsSecond && OfFirstRound) {
    Decisions OfCompile = std::move(*OfFirstRound);
    OfFirstRound.reset();
    if (OfCompile.Log)
      OfCompile.Log->startSecondRound();
    if (OfCompile.Forced)
      OfCompile.Forced->startSecondRound();
    return std::make_unique<InlineTrainingAdvisor>(
        M, MAM,
        std::make_unique<NoInferenceModelRunner>(Context, inliningFeatures()),
        std::move(GetDefaultAdvice), std::move(OfCompile));
  }
  // Before the policy is loaded, because its random stream starts with the
  // sample's seed.
  std::optional<SampleFiles> Sample;
  if (!IsSecond)
    Sample = forkIntoSamples();
  std::string LogPath = Sample ? Sample->Log : TrainingLog;
  std::string CallsPath = Sample ? Sample->Calls : TrainingLog + ".calls";

  std::unique_ptr<MLModelRunner> Runner;
  PolicyRunner *Policy = nullptr;
  if (PolicyDirectory.empty()) {
    Runner =
        std::make_unique<NoInferenceModelRunner>(Context, inliningFeatures());
  } else {
    auto Loaded = PolicyRunner::load(Context, PolicyDirectory, DecisionName,
                                     inliningFeatures());
    Policy = Loaded.get();
    Runner = std::move(Loaded);
  }
  if (!Runner)
    return nullptr;

  std::unique_ptr<DecisionLog> Log;
  if (!LogPath.empty() && !IsSecond) {
    std::error_code Error;
    auto Stream = std::make_unique<raw_fd_ostream>(LogPath, Error);
    if (Error) {
      Context.emitError("cannot write the training log " + LogPath + ": " +
                        Error.message());
      return nullptr;
    }
    Log = std::make_unique<DecisionLog>(std::move(Stream), CallsPath,
                                        M.getSourceFileName(), Policy);
  }
  auto Advisor = std::make_unique<InlineTrainingAdvisor>(
      M, MAM, std::move(Runner), std::move(GetDefaultAdvice),
      Decisions{std::move(Log),
                IsSecond ? nullptr
                         : mlgo::loadForcedDecisions(Sample, "inlining"),
                Sample ? Sample->Forced : TrainingLog + ".forced"});
  // Off by default: a training learns from the policy's own decisions.
  if (Policy && useTrainedRanges(/*Default=*/false))
    Advisor->setTrainedRanges(Policy->ranges());
  return Advisor;
}
