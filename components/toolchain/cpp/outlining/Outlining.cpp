// LLVM's machine outliner with our costs.
//
// MachineOutliner.cpp exports only the function that creates its pass, so it is
// included here. It asks TargetInstrInfo what may be outlined and what that
// costs. Macros replace the target's answers by those of OutlinerInstrInfo.h.
#include "outlining/Outlining.h"

#include "outlining/ConstantLoads.h"
#include "outlining/OutlinerInstrInfo.h"
#include "support/LLVMOptions.h"
#include "support/LLVMVersion.h"
#include "support/ReleaseDefaults.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/DIBuilder.h"
#include "llvm/IR/LegacyPassManagers.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

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

/// What LLVM's InstructionMapper knows when it asks how to map an instruction.
struct MappedInstr {
  const llvm::MachineInstr &MI;
  bool IsAfterIllegal;
};

/// Returns how to map an instruction, the target's answer is \p Type. LLVM ends
/// a range of instructions that cannot be outlined at a debug instruction,
/// which changes the numbers of those that follow, and with them the order of
/// sequences that save the same.
static llvm::outliner::InstrType operator|(llvm::outliner::InstrType Type,
                                           const MappedInstr &Mapped) {
  return Mapped.IsAfterIllegal && Mapped.MI.isDebugInstr()
             ? llvm::outliner::InstrType::Illegal
             : Type;
}

} // namespace mlgo

#define createMachineOutlinerPass createLLVMMachineOutlinerPass
#define getInstrInfo()                                                         \
  getInstrInfo()->*mlgo::ForOutliner {}
#if LLVM_VERSION_MAJOR >= 20
#define getOutliningType(MMI, It, Flags)                                       \
  getOutliningType(MMI, It, Flags) | mlgo::MappedInstr {                       \
    *It, AddedIllegalLastTime                                                  \
  }
#else
#define getOutliningType(It, Flags)                                            \
  getOutliningType(It, Flags) | mlgo::MappedInstr { *It, AddedIllegalLastTime }
#endif
#include "MachineOutliner.cpp"
#undef getOutliningType
#undef getInstrInfo
#undef createMachineOutlinerPass

using namespace mlgo;

static const char LLVMOption[] = "enable-machine-outliner";

__attribute__((weak)) bool mlgo::hasReleaseDefaults() { return false; }

static cl::opt<bool> Outline(
    "mlgo-outline", cl::init(hasReleaseDefaults()), cl::Hidden,
    cl::desc("Outline machine code of functions with minsize by costs in "
             "bytes, and run the machine outliner for x86-64"));

/// Whether our request, and not the command line, gave LLVM's option.
static bool GivenByRequest = false;

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

/// Returns whether -mlgo-outline applies to \p M.
static bool isOutlined(const Module &M) {
  return Outline && outlinesByDefault(Triple(M.getTargetTriple())) &&
         any_of(M, [](const Function &F) {
           return !F.isDeclaration() && F.hasMinSize();
         });
}

namespace {
/// Gives functions without code a block, as instruction selection does.
///
/// X86's pass of indirect thunks adds functions to the module, and fills them
/// when the passes of functions get there. The outliner, a pass of modules,
/// divides these passes into two groups, and a function that the second adds
/// never passes through the first.
struct LateFunctionBlocks : MachineFunctionPass {
  static char ID;
  LateFunctionBlocks() : MachineFunctionPass(ID) {}

  StringRef getPassName() const override { return "Late Function Blocks"; }

  void getAnalysisUsage(AnalysisUsage &AU) const override {
    AU.setPreservesAll();
    MachineFunctionPass::getAnalysisUsage(AU);
  }

  bool runOnMachineFunction(MachineFunction &MF) override {
    if (!MF.empty())
      return false;
    MF.push_back(MF.CreateMachineBasicBlock());
    MF.getProperties().reset(MachineFunctionProperties::Property::IsSSA);
    MF.getProperties().set(MachineFunctionProperties::Property::NoPHIs);
    MF.getProperties().set(MachineFunctionProperties::Property::NoVRegs);
    MF.getProperties().set(MachineFunctionProperties::Property::TracksLiveness);
    MF.getRegInfo().freezeReservedRegs();
    return true;
  }
};

char LateFunctionBlocks::ID = 0;

struct SizeOutliner : MachineOutliner {
  bool runOnModule(Module &M) override {
    MachineModuleInfo &MMI =
        getAnalysis<MachineModuleInfoWrapperPass>().getMMI();
    // Moves can be outlined, pushes and pops cannot.
    bool Changed = replacePushedConstants(M, MMI);
    const OutlinedModuleInfo Info(M, MMI);
    Current = &Info;
    Changed |= MachineOutliner::runOnModule(M);
    Current = nullptr;
    return Changed;
  }

  void assignPassManager(PMStack &Managers, PassManagerType Type) override {
    MachineOutliner::assignPassManager(Managers, Type);
    Managers.top()->getTopLevelManager()->schedulePass(
        new LateFunctionBlocks());
  }
};

struct RequestOutliner : PassInfoMixin<RequestOutliner> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    if (isOutlined(M) && !isGiven(LLVMOption)) {
      GivenByRequest = true;
      cl::getRegisteredOptions()[LLVMOption]->addOccurrence(0, LLVMOption,
                                                            "always");
    }
    return PreservedAnalyses::all();
  }
};
} // namespace

ModulePass *llvm::createMachineOutlinerPass(bool RunOnAllFunctions) {
  if (!Outline)
    return createLLVMMachineOutlinerPass(RunOnAllFunctions);
  auto *Outliner = new SizeOutliner();
  Outliner->RunOnAllFunctions = RunOnAllFunctions && !GivenByRequest;
  return Outliner;
}

void mlgo::registerOutlining(PassBuilder &Builder) {
  Builder.registerOptimizerLastEPCallback(
      [](ModulePassManager &Passes, auto &&...) {
        Passes.addPass(RequestOutliner());
      });
}

void mlgo::requestOutlining(TargetMachine &Target, const Module &M) {
  if (isOutlined(M))
    Target.setSupportsDefaultOutlining(true);
}
