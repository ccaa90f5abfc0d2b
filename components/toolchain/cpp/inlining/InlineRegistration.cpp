#include "inlining/InlineRegistration.h"

#include "inlining/InlineAdvisors.h"
#include "program/SizePipeline.h"
#include "program/Variants.h"
#include "support/LLVMOptions.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/ErrorHandling.h"

using namespace llvm;
using namespace mlgo;

// Only so that the loader does not refuse a plugin before it can say which LLVM
// it needs: other versions than 19 lack this variable. Here, because all
// references in a file are weak or none is.
__asm__(".weak _ZN4llvm27PluginInlineAdvisorAnalysis17HasBeenRegisteredE");

/// The analyses of the pipeline that this thread set up last. LLVM gives an
/// advisor's factory the function analyses only.
static thread_local ModuleAnalysisManager *PipelineAnalyses = nullptr;

static ModuleAnalysisManager &analysesOf(Module &M,
                                         FunctionAnalysisManager &FAM) {
  auto *Proxy =
      PipelineAnalyses
          ? PipelineAnalyses
                ->getCachedResult<FunctionAnalysisManagerModuleProxy>(M)
          : nullptr;
  if (!Proxy || &Proxy->getManager() != &FAM)
    report_fatal_error("the inlining plugin was registered in another pipeline",
                       /*gen_crash_diag=*/false);
  return *PipelineAnalyses;
}

static bool IsDefault = false;

void mlgo::usePolicyByDefault() { IsDefault = true; }

static InlineAdvisor *createAdvisor(Module &M, FunctionAnalysisManager &FAM,
                                    InlineParams Params,
                                    InlineContext Context) {
  auto Heuristic =
      std::make_unique<DefaultInlineAdvisor>(M, FAM, Params, Context);
  const InliningAdvisorMode Mode =
      llvmOption<InliningAdvisorMode>("enable-ml-inliner");
  // By default a program has the heuristic; its variants choose.
  const bool HasVariant = appliedVariant && appliedVariant();
  if (Mode == InliningAdvisorMode::Default ||
      (IsDefault && !HasVariant && M.getModuleIdentifier() == LinkedModuleName))
    return Heuristic.release();
  // The heuristic's advice about a call, which is only looked at.
  auto GetDefaultAdvice = [Heuristic = std::shared_ptr<InlineAdvisor>(
                               std::move(Heuristic))](CallBase &Call) {
    std::unique_ptr<InlineAdvice> Advice = Heuristic->getAdvice(Call);
    Advice->recordUnattemptedInlining();
    return Advice->isInliningRecommended();
  };
  ModuleAnalysisManager &MAM = analysesOf(M, FAM);
  std::unique_ptr<InlineAdvisor> Advisor =
      Mode == InliningAdvisorMode::Development
          ? createInlineTrainingAdvisor(M, MAM, GetDefaultAdvice)
          : createInlineReleaseAdvisor(M, MAM, GetDefaultAdvice);
  // Without an advisor LLVM reports an error that says less than the one that
  // was reported already.
  if (!Advisor)
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  return Advisor.release();
}

void mlgo::registerInlineAdvisor(PassBuilder &Builder) {
  Builder.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
    PipelineAnalyses = &MAM;
    MAM.registerPass([] { return PluginInlineAdvisorAnalysis(createAdvisor); });
  });
}
