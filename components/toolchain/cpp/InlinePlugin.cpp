// A pass plugin that brings our inline advisors into an unmodified clang:
//
//   clang -fplugin=mlgo-inliner.so -fpass-plugin=mlgo-inliner.so ...
//
// -fpass-plugin registers the advisor. -fplugin loads the plugin before -mllvm
// options are parsed, and is needed only for our own ones. -enable-ml-inliner
// selects the advisor as in our clangs; without it LLVM's heuristic decides.
// ld.lld takes --load-pass-plugin=.
//
// LLVM asks a plugin for an advisor through PluginInlineAdvisorAnalysis
// (llvm/Analysis/InlineAdvisor.h). There is no such hook for register
// allocation.
#include "InlineAdvisors.h"
#include "LLVMVersion.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace llvm;
using namespace mlgo;

// Only so that the loader does not refuse the plugin before it can say which
// LLVM it needs: other versions lack this variable.
__asm__(".weak _ZN4llvm27PluginInlineAdvisorAnalysis17HasBeenRegisteredE");

/// Ends a compiler of another LLVM version. Called before anything else in the
/// plugin, because the layout of LLVM's classes differs between versions.
__attribute__((constructor(101))) static void checkVersion() {
  auto *GetVersion =
      reinterpret_cast<void (*)(unsigned *, unsigned *, unsigned *)>(
          dlsym(RTLD_DEFAULT, "LLVMGetVersion"));
  unsigned Major = LLVM_VERSION_MAJOR, Minor, Patch;
  if (GetVersion)
    GetVersion(&Major, &Minor, &Patch);
  if (Major == LLVM_VERSION_MAJOR)
    return;
  std::fprintf(stderr,
               "error: this inlining plugin was built for LLVM %d, but the "
               "compiler is LLVM %u; build one for it with: mlgo toolchain "
               "--strategy plugin --llvm-major %u\n",
               LLVM_VERSION_MAJOR, Major, Major);
  std::_Exit(1);
}

/// The analyses of the pipeline that this thread set up last. LLVM gives an
/// advisor's factory the function analyses only.
static thread_local ModuleAnalysisManager *PipelineAnalyses = nullptr;

static InliningAdvisorMode requestedMode() {
  return static_cast<cl::opt<InliningAdvisorMode> *>(
             cl::getRegisteredOptions().lookup("enable-ml-inliner"))
      ->getValue();
}

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

std::unique_ptr<InlineAdvisor>
mlgo::createLLVMReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                               DefaultAdvice GetDefaultAdvice) {
  return llvm::getReleaseModeAdvisor(M, MAM, std::move(GetDefaultAdvice));
}

#ifndef MLGO_RELEASE
std::unique_ptr<InlineAdvisor>
mlgo::createInlineReleaseAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                 DefaultAdvice GetDefaultAdvice) {
  return createLLVMReleaseAdvisor(M, MAM, std::move(GetDefaultAdvice));
}
#else
std::unique_ptr<InlineAdvisor>
mlgo::createInlineTrainingAdvisor(Module &M, ModuleAnalysisManager &,
                                  DefaultAdvice) {
  M.getContext().emitError("-enable-ml-inliner=development needs a training "
                           "plugin: mlgo toolchain --mode training "
                           "--strategy plugin");
  return nullptr;
}
#endif

static InlineAdvisor *createAdvisor(Module &M, FunctionAnalysisManager &FAM,
                                    InlineParams Params,
                                    InlineContext Context) {
  auto Heuristic =
      std::make_unique<DefaultInlineAdvisor>(M, FAM, Params, Context);
  const InliningAdvisorMode Mode = requestedMode();
  if (Mode == InliningAdvisorMode::Default)
    return Heuristic.release();
  // The heuristic's advice about a call, which is only looked at.
  auto GetDefaultAdvice = [Heuristic = std::shared_ptr<InlineAdvisor>(
                               std::move(Heuristic))](CallBase &Call) {
    std::unique_ptr<InlineAdvice> Advice = Heuristic->getAdvice(Call);
    Advice->recordUnattemptedInlining();
    return Advice->isInliningRecommended();
  };
  ModuleAnalysisManager &MAM = analysesOf(M, FAM);
  if (Mode == InliningAdvisorMode::Development)
    return createInlineTrainingAdvisor(M, MAM, GetDefaultAdvice).release();
  return createInlineReleaseAdvisor(M, MAM, GetDefaultAdvice).release();
}

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-inliner", LLVM_VERSION_STRING,
          [](PassBuilder &Builder) {
            Builder.registerAnalysisRegistrationCallback(
                [](ModuleAnalysisManager &MAM) {
                  PipelineAnalyses = &MAM;
                  MAM.registerPass([] {
                    return PluginInlineAdvisorAnalysis(createAdvisor);
                  });
                });
          }};
}
