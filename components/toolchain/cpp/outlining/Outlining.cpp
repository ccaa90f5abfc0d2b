// LLVM's machine outliner with our costs.
//
// MachineOutliner.cpp exports only the function that creates its pass, so it is
// included here. It asks TargetInstrInfo what may be outlined and what that
// costs. A macro replaces the target's answers by those of OutlinerInstrInfo.h.
#include "outlining/Outlining.h"

#include "outlining/OutlinerInstrInfo.h"
#include "support/LLVMOptions.h"
#include "support/LLVMVersion.h"
#include "support/ReleaseDefaults.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/DIBuilder.h"
#include "llvm/Passes/PassBuilder.h"

#include <mutex>

namespace mlgo {

/// The module that this thread outlines from with our costs.
class OutlinedModuleInfo {
public:
  OutlinedModuleInfo(llvm::Module &M, llvm::MachineModuleInfo &MMI);

  const llvm::TargetInstrInfo &get(const llvm::TargetInstrInfo &Target) const {
    // Outlined functions have no functions to tune for, therefore other
    // subtargets, which differ in nothing that matters here.
    auto Info = Infos.find(&Target);
    return Info != Infos.end() ? *Info->second : First ? *First : Target;
  }

private:
  OutlinedModule Outlined;
  llvm::DenseMap<const llvm::TargetInstrInfo *,
                 std::unique_ptr<OutlinerInstrInfo>>
      Infos;
  const OutlinerInstrInfo *First = nullptr;
};

/// Null while LLVM's own costs count.
static thread_local const OutlinedModuleInfo *Current = nullptr;

struct ForOutliner {};

static const llvm::TargetInstrInfo &
operator->*(const llvm::TargetInstrInfo &Target, ForOutliner) {
  return Current ? Current->get(Target) : Target;
}

static const llvm::TargetInstrInfo *
operator->*(const llvm::TargetInstrInfo *Target, ForOutliner Tag) {
  return &(*Target->*Tag);
}

} // namespace mlgo

#define createMachineOutlinerPass createLLVMMachineOutlinerPass
#define getInstrInfo()                                                         \
  getInstrInfo()->*mlgo::ForOutliner {}
#include "MachineOutliner.cpp"
#undef getInstrInfo
#undef createMachineOutlinerPass

using namespace mlgo;

static const char LLVMOption[] = "enable-machine-outliner";

__attribute__((weak)) bool mlgo::hasReleaseDefaults() { return false; }

static cl::opt<bool> Outline(
    "mlgo-outline", cl::init(hasReleaseDefaults()), cl::Hidden,
    cl::desc("Outline machine code of functions with minsize by costs in "
             "bytes, and run the machine outliner for x86-64"));

/// Whether our request, and not the command line, gave LLVM's option. Threads
/// of one link share it.
static bool Requested = false;
static std::mutex RequestLock;

OutlinedModuleInfo::OutlinedModuleInfo(Module &M, MachineModuleInfo &MMI)
    : Outlined(M, MMI) {
  for (const Function &F : M)
    if (const MachineFunction *MF = MMI.getMachineFunction(F)) {
      const TargetInstrInfo *Target = MF->getSubtarget().getInstrInfo();
      std::unique_ptr<OutlinerInstrInfo> &Info = Infos[Target];
      if (!Info)
        Info = createOutlinerInstrInfo(*Target, *MF, Outlined);
      if (!First)
        First = Info.get();
    }
}

namespace {
struct SizeOutliner : MachineOutliner {
  bool runOnModule(Module &M) override {
    const OutlinedModuleInfo Info(
        M, getAnalysis<MachineModuleInfoWrapperPass>().getMMI());
    Current = &Info;
    const bool Changed = MachineOutliner::runOnModule(M);
    Current = nullptr;
    return Changed;
  }
};

/// Returns whether \p F is compiled with a mitigation whose passes run after
/// the outliner and do not expect what it makes: LLVM 19 crashes on outlined
/// functions in X86's pass of indirect thunks.
static bool isHardened(const Function &F) {
  StringRef Features = F.getFnAttribute("target-features").getValueAsString();
  return any_of(ArrayRef<StringRef>{"+retpoline", "+lvi-", "+seses"},
                [&](StringRef Feature) { return Features.contains(Feature); });
}

struct RequestOutliner : PassInfoMixin<RequestOutliner> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    if (Outline && outlinesByDefault(Triple(M.getTargetTriple())) &&
        any_of(M,
               [](const Function &F) {
                 return !F.isDeclaration() && F.hasMinSize();
               }) &&
        none_of(M, isHardened)) {
      const std::lock_guard<std::mutex> Guard(RequestLock);
      if (!isGiven(LLVMOption)) {
        Requested = true;
        cl::getRegisteredOptions()[LLVMOption]->addOccurrence(0, LLVMOption,
                                                              "always");
      }
    }
    return PreservedAnalyses::all();
  }
};
} // namespace

ModulePass *llvm::createMachineOutlinerPass(bool RunOnAllFunctions) {
  if (!Outline)
    return createLLVMMachineOutlinerPass(RunOnAllFunctions);
  auto *Outliner = new SizeOutliner();
  Outliner->RunOnAllFunctions = RunOnAllFunctions && !Requested;
  return Outliner;
}

void mlgo::registerOutlining(PassBuilder &Builder) {
  auto Request = [](ModulePassManager &Passes, auto &&...) {
    Passes.addPass(RequestOutliner());
  };
  Builder.registerOptimizerLastEPCallback(Request);
  Builder.registerFullLinkTimeOptimizationLastEPCallback(Request);
}
