#include "program/SizePipeline.h"

#include "program/FileSemantics.h"
#include "program/Fold.h"
#include "program/KeepSmaller.h"
#include "support/LLVMOptions.h"
#include "support/ReleaseDefaults.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SaveAndRestore.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/IPO/IROutliner.h"

using namespace llvm;
using namespace mlgo;

static cl::opt<bool> WholeProgram(
    "mlgo-whole-program", cl::Hidden, cl::init(hasReleaseDefaults()),
    cl::desc("Compile a program of -Oz or -Os that full LTO links as one "
             "module by the pipeline of this level; false: LLVM's pipelines"));

static cl::opt<bool> HotFunctions(
    "mlgo-hot-functions", cl::Hidden,
    cl::desc("Compile functions of a program that its profile calls hot for "
             "speed (LLVM's -profile-summary-cutoff-hot says how many)"));

static cl::opt<bool> Program(
    "mlgo-program", cl::Hidden,
    cl::desc("The module is a linked program: compile it as the linker does"));

static cl::opt<cl::boolOrDefault>
    Fold("mlgo-fold", cl::Hidden,
         cl::desc("Fold equal functions before the inliner at -Oz and -Os; by "
                  "default in programs that are compiled as one module "
                  "and in our linker's backends of ThinLTO"));

std::optional<OptimizationLevel> mlgo::sizeLevel(const Module &M) {
  size_t Defined = 0, Small = 0, Smallest = 0;
  for (const Function &F : M)
    if (!F.isDeclarationForLinker() && !F.hasOptNone()) {
      ++Defined;
      Small += F.hasOptSize(); // also true for minsize
      Smallest += F.hasMinSize();
    }
  if (2 * Small <= Defined)
    return std::nullopt;
  return 2 * Smallest > Small ? OptimizationLevel::Oz : OptimizationLevel::Os;
}

bool mlgo::compilesWholePrograms() { return WholeProgram; }

bool mlgo::isProgram(const Module &M) {
  return Program || M.getModuleIdentifier() == LinkedModuleName;
}

// One thread runs all passes of a module.
static thread_local bool InSecondRound = false;

bool mlgo::isSecondRound() { return InSecondRound; }

namespace {
/// Folds equal functions of a module for size. Here or afterwards the variants
/// of -mlgo-keep-smaller begin to differ.
class FoldPass : public PassInfoMixin<FoldPass> {
public:
  FoldPass(bool Folds, LinkStage Stage) : Folds(Folds), Stage(Stage) {}

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
    // Known here only: a ThinLTO backend builds its pipeline for -O2.
    if (!sizeLevel(M))
      return PreservedAnalyses::all();
    PreservedAnalyses Result = PreservedAnalyses::all();
    forkVariants(M, /*IsFolded=*/false);
    const Variant *V = appliedVariant();
    if (V && V->Fold ? *V->Fold : Folds) {
      const bool IsProgram = isProgram(M);
      foldEqualFunctions(M, MAM, IsProgram,
                         IsProgram && Stage == LinkStage::Compile
                             ? LinkStage::Program // that a linker saved
                             : Stage);
      Result = PreservedAnalyses::none();
      MAM.invalidate(M, Result);
      GlobalDCEPass().run(M, MAM);
    }
    forkVariants(M, /*IsFolded=*/true);
    return Result;
  }

private:
  bool Folds;
  LinkStage Stage;
};

/// Leaves a profile to the functions that it calls hot: in the others it lays
/// out blocks for speed, which lengthens their branches. With
/// -mlgo-hot-functions hot functions are compiled for speed.
struct HotFunctionsPass : PassInfoMixin<HotFunctionsPass> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
    const auto &Profile = MAM.getResult<ProfileSummaryAnalysis>(M);
    // The second round has what the first one inlined into other functions.
    if (!Profile.hasProfileSummary() || InSecondRound)
      return PreservedAnalyses::all();
    auto &Functions =
        MAM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
    SmallVector<Function *> Cold;
    for (Function &F : M) {
      if (F.isDeclaration() || F.hasOptNone())
        continue;
      if (!Profile.isFunctionHotInCallGraph(
              &F, Functions.getResult<BlockFrequencyAnalysis>(F))) {
        Cold.push_back(&F);
      } else if (HotFunctions) {
        F.removeFnAttr(Attribute::MinSize);
        F.removeFnAttr(Attribute::OptimizeForSize);
      }
    }
    for (Function *F : Cold) {
      F->setMetadata(LLVMContext::MD_prof, nullptr);
      for (Instruction &I : instructions(*F))
        I.setMetadata(LLVMContext::MD_prof, nullptr);
    }
    return PreservedAnalyses::none();
  }
};

/// Marks functions that every module has its own copy of and that this module
/// only calls. lld exports those of them that some module does not mark.
struct HideInlinePass : PassInfoMixin<HideInlinePass> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
    for (Function &F : M)
      if (F.hasLinkOnceODRLinkage() && !F.isDeclaration() &&
          !F.hasAddressTaken())
        F.setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
    return PreservedAnalyses::all();
  }

  static bool isRequired() { return true; } // runs where no other passes do
};

/// Stands before and behind the second round of a program's passes.
struct SecondRoundPass : PassInfoMixin<SecondRoundPass> {
  SecondRoundPass(bool Begins) : Begins(Begins) {}

  PreservedAnalyses run(Module &, ModuleAnalysisManager &) {
    InSecondRound = Begins;
    return PreservedAnalyses::all();
  }

  static bool isRequired() { return true; } // does no work that can be skipped

private:
  bool Begins;
};

/// LLVM's outliner of IR, in the variants that have it.
struct VariantIROutlinerPass : PassInfoMixin<VariantIROutlinerPass> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
    const Variant *V = appliedVariant();
    if (!V || !V->IROutliner)
      return PreservedAnalyses::all();
    DenseSet<const Function *> Before;
    for (const Function &F : M)
      Before.insert(&F);
    PreservedAnalyses Result = IROutlinerPass().run(M, MAM);
    // A new function has the code of one of the places that it comes from, and
    // what LLVM knows of that place is not true of the others.
    for (Function &F : M)
      if (!Before.contains(&F))
        for (Instruction &I : instructions(F)) {
          I.dropUnknownNonDebugMetadata();
          I.dropPoisonGeneratingFlags();
          I.dropUBImplyingAttrsAndMetadata();
        }
    // LLVM 19's passes the addresses of thread-local variables on as arguments.
    if (verifyModule(M))
      report_fatal_error("LLVM's IR outliner makes invalid code of this "
                         "module; leave out the variant " +
                             Twine(V->Name),
                         /*gen_crash_diag=*/false);
    return Result;
  }
};
} // namespace

void mlgo::registerInlineExportPass(PassBuilder &Builder) {
  Builder.registerPipelineStartEPCallback(
      [](ModulePassManager &Passes, OptimizationLevel) {
        Passes.addPass(HideInlinePass());
      });
}

/// Set while extensions register with the builder of a program's pipeline.
static thread_local bool BuildsProgram = false;

/// Sets LLVM's option if the user did not.
static void setByDefault(StringRef Name, bool Value) {
  if (!isGiven(Name))
    ModuleOptions::set(Name, Value);
}

void mlgo::compileAsProgram() { setByDefault("mlgo-program", true); }

/// Sets the options of a program's code generation. Called before its passes
/// are made, which read them.
static void setProgramOptions(OptimizationLevel Level) {
  setByDefault("mlgo-outline", true);
  if (Level != OptimizationLevel::Oz)
    return;
  // These passes shorten loops and lengthen code: what they hoist or add to the
  // loop takes registers, which are saved then.
  setByDefault("disable-machine-licm", true);
  setByDefault("disable-lsr", true);
  setByDefault("enable-load-pre", false);
}

void mlgo::registerSizePasses(PassBuilder &Builder, LinkStage Stage) {
  const bool InLinker = Stage != LinkStage::Compile;
  const bool IsProgram = Program || BuildsProgram;
  const bool FoldsByDefault = IsProgram || (InLinker && WholeProgram);
  if (InLinker)
    registerLinkedSemantics(Builder);
  // Before passes add what __builtin_expect expects.
  if (IsProgram)
    Builder.registerPipelineStartEPCallback(
        [](ModulePassManager &Passes, OptimizationLevel) {
          Passes.addPass(HotFunctionsPass());
        });
  Builder.registerPipelineEarlySimplificationEPCallback(
      [=](ModulePassManager &Passes, OptimizationLevel Level, auto &&...) {
        if (IsProgram)
          setProgramOptions(Level);
        Passes.addPass(FoldPass(Fold == cl::BOU_UNSET ? FoldsByDefault
                                                      : Fold == cl::BOU_TRUE,
                                Stage));
      });
  auto IsSecond = std::make_shared<bool>(false);
  Builder.registerOptimizerLastEPCallback(
      [&Builder, IsProgram, IsSecond](ModulePassManager &Passes,
                                      OptimizationLevel Level, auto &&...) {
        if (*IsSecond)
          return;
        // The second time the inliner meets the functions as they came out of
        // the first, and what only calls in the whole program show has been
        // simplified.
        *IsSecond = true;
        if (IsProgram) {
          Passes.addPass(SecondRoundPass(/*Begins=*/true));
          Passes.addPass(Builder.buildPerModuleDefaultPipeline(Level));
          Passes.addPass(SecondRoundPass(/*Begins=*/false));
        }
        if (expectsVariants())
          Passes.addPass(VariantIROutlinerPass());
      });
}

/// Returns whether \p M has tests of types, which LLVM's pipelines of LTO
/// replace and those of a level do not.
static bool testsTypes(const Module &M) {
  for (const Function &F : M)
    switch (F.getIntrinsicID()) {
    case Intrinsic::type_test:
    case Intrinsic::public_type_test:
    case Intrinsic::type_checked_load:
    case Intrinsic::type_checked_load_relative:
      return true;
    default:
      break;
    }
  return false;
}

/// Returns whether LTOBackend.cpp gives its pipelines a profile.
static bool hasProfile(const lto::Config &Conf) {
  return !Conf.SampleProfile.empty() || Conf.RunCSIRInstr ||
         !Conf.CSIRProfile.empty() || Conf.AddFSDiscriminator;
}

std::optional<OptimizationLevel> mlgo::programLevel(const Module &M,
                                                    const lto::Config &Conf) {
  const bool IsProfiled = M.getProfileSummary(/*IsCS=*/false);
  if (!WholeProgram || Conf.OptLevel == 0 || !Conf.OptPipeline.empty() ||
      hasProfile(Conf) || (IsProfiled && !isGiven("mlgo-whole-program")) ||
      testsTypes(M))
    return std::nullopt;
  return sizeLevel(M);
}

ModulePassManager mlgo::operator|(ModulePassManager LLVMPipeline,
                                  const LinkedProgram &Program) {
  auto Level = programLevel(Program.M, Program.Conf);
  if (!Level)
    return LLVMPipeline;
  // As clang sets them for the level (BackendUtil.cpp), so that clang makes the
  // same object of the same module.
  PipelineTuningOptions Tuning = Program.Conf.PTO;
  Tuning.LoopVectorization = *Level == OptimizationLevel::Os || HotFunctions;
  Tuning.SLPVectorization = true;
  // The second round would write its module flag again.
  Tuning.CallGraphProfile = false;
  PassBuilder Builder(Program.TM, Tuning, std::nullopt, Program.PIC);
  SaveAndRestore Builds(BuildsProgram, true);
  Program.RegisterPlugins(Program.Conf.PassPlugins, Builder);
  return Builder.buildPerModuleDefaultPipeline(*Level);
}
