#include "outlining/OutlinerInstrInfo.h"

#include "outlining/EqualCode.h"
#include "program/SizePipeline.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/CodeGen/MachineDominators.h"
#include "llvm/CodeGen/MachineInstrBuilder.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/CodeGen/TargetRegisterInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDwarf.h"
#include "llvm/MC/MCFixup.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;
using namespace mlgo;
using outliner::Candidate;
using outliner::InstrType;
using outliner::OutlinedFunction;

OutlinedModule::OutlinedModule(const llvm::Module &M,
                               const MachineModuleInfo &MMI)
    : M(M), MMI(MMI), WholeProgram(isProgram(M)) {
  ProfileSummaryInfo Profile(M);
  for (const Function &F : M)
    if (F.hasFnAttribute(Attribute::Hot) ||
        (Profile.hasProfileSummary() && Profile.isFunctionEntryHot(&F)))
      Hot.insert(&F);
}

bool OutlinedModule::isDuplicate(const MachineFunction *MF) {
  if (!Duplicates)
    Duplicates = findDuplicates(M, MMI);
  return Duplicates->contains(MF);
}

/// Returns the bytes in the linked file of the unwind entry of a function that
/// is outlined from the candidates.
static unsigned unwindEntryBytes(ArrayRef<Candidate> Candidates,
                                 bool NeverThrows) {
  if (NeverThrows && none_of(Candidates, [](const Candidate &C) {
        return C.getMF()->getFunction().hasUWTable();
      }))
    return 0;
  const TargetMachine &TM = Candidates.front().getMF()->getTarget();
  switch (TM.getMCAsmInfo()->getExceptionHandlingType()) {
  case ExceptionHandling::DwarfCFI:
    // Mach-O has compact entries: a word each.
    if (TM.getTargetTriple().isOSBinFormatMachO())
      return 4;
    // A frame description entry: length, reference to the common entry, start,
    // size, length of the augmentation, and padding; and the entry of
    // .eh_frame_hdr.
    return 24 + 8;
  case ExceptionHandling::ARM: // .ARM.exidx
    return 8;
  case ExceptionHandling::WinEH: // .pdata, and a header in .xdata
    return TM.getTargetTriple().getArch() == Triple::x86_64 ? 12 + 4 : 8;
  default:
    return 0;
  }
}

OutlinerInstrInfo::OutlinerInstrInfo(const TargetInstrInfo &Target,
                                     const MachineFunction &MF,
                                     OutlinedModule &Outlined)
#if LLVM_VERSION_MAJOR >= 22
    : TargetInstrInfo(*MF.getSubtarget().getRegisterInfo()),
#else
    :
#endif
      Target(Target), Outlined(Outlined) {
  (void)MF;
  static_cast<MCInstrInfo &>(*this) = Target;
}

bool OutlinerInstrInfo::isFunctionSafeToOutlineFrom(
    MachineFunction &MF, bool OutlineFromLinkOnceODRs) const {
  return !Outlined.isHot(MF.getFunction()) &&
         Target.isFunctionSafeToOutlineFrom(MF, OutlineFromLinkOnceODRs ||
                                                    Outlined.isWholeProgram());
}

bool OutlinerInstrInfo::isMBBSafeToOutlineFrom(MachineBasicBlock &MBB,
                                               unsigned &Flags) const {
  // LLVM leaves such blocks out, but counts debug instructions.
  const auto Code = instructionsWithoutDebug(MBB.begin(), MBB.end());
  if (Code.begin() == Code.end() || std::next(Code.begin()) == Code.end())
    return false;
  return Target.isMBBSafeToOutlineFrom(MBB, Flags);
}

void OutlinerInstrInfo::buildOutlinedFrame(MachineBasicBlock &MBB,
                                           MachineFunction &MF,
                                           const OutlinedFunction &OF) const {
  Outlined.invalidate();
  Target.buildOutlinedFrame(MBB, MF, OF);
}

#if LLVM_VERSION_MAJOR >= 20
std::optional<OutlinedFunctionPtr>
OutlinerInstrInfo::getOutliningCandidateInfo(const MachineModuleInfo &MMI,
                                             std::vector<Candidate> &Locations,
                                             unsigned MinRepeats) const {
  auto Result = Target.getOutliningCandidateInfo(MMI, Locations, MinRepeats);
  if (Result && !setCosts(**Result))
    return std::nullopt;
  return Result;
}
#else
std::optional<OutlinedFunctionPtr> OutlinerInstrInfo::getOutliningCandidateInfo(
    std::vector<Candidate> &Locations) const {
  auto Result = Target.getOutliningCandidateInfo(Locations);
  if (Result && !setCosts(*Result))
    return std::nullopt;
  return Result;
}
#endif

bool OutlinerInstrInfo::neverThrows(
    MutableArrayRef<Candidate> Candidates) const {
  return all_of(Candidates, [](const Candidate &C) {
    return C.getMF()->getFunction().doesNotThrow();
  });
}

void OutlinerInstrInfo::mergeOutliningCandidateAttributes(
    Function &F, std::vector<Candidate> &Candidates) const {
  Target.mergeOutliningCandidateAttributes(F, Candidates);
  // Otherwise each call of it has an entry in the caller's exception table.
  if (neverThrows(Candidates))
    F.setDoesNotThrow();
}

bool OutlinerInstrInfo::setCosts(OutlinedFunction &OF) const {
  OF.FrameOverhead +=
      unwindEntryBytes(OF.Candidates, neverThrows(OF.Candidates));
  for (Candidate &C : OF.Candidates)
    if (Outlined.isDuplicate(C.getMF()))
      C.setCallInfo(C.CallConstructionID, OF.SequenceSize);
  const unsigned Benefit = OF.getBenefit();
  for (Candidate &C : OF.Candidates)
    C.Benefit = Benefit;
  return true;
}

unsigned mlgo::findOpcode(const MCInstrInfo &Instructions, StringRef Name) {
  for (unsigned Opcode = 0; Opcode != Instructions.getNumOpcodes(); ++Opcode)
    if (Instructions.getName(Opcode) == Name)
      return Opcode;
  report_fatal_error("the x86 code generator has no instruction " +
                     Twine(Name));
}

unsigned mlgo::findRegister(const MCRegisterInfo &Registers, StringRef Name) {
  for (unsigned Reg = 1; Reg != Registers.getNumRegs(); ++Reg)
    if (Registers.getName(Reg) == Name)
      return Reg;
  report_fatal_error("the x86 code generator has no register " + Twine(Name));
}

// LLVM's choice of shorter encodings, which its printer makes; in the archive
// of the target, whose headers are private. Weak, because a clang for other
// targets lacks them.
#define MLGO_WEAK __attribute__((weak))
namespace llvm::X86 {
MLGO_WEAK bool optimizeInstFromVEX3ToVEX2(MCInst &MI, const MCInstrDesc &Desc);
MLGO_WEAK bool optimizeShiftRotateWithImmediateOne(MCInst &MI);
MLGO_WEAK bool optimizeVPCMPWithImmediateOneOrSix(MCInst &MI);
MLGO_WEAK bool optimizeMOVSX(MCInst &MI);
MLGO_WEAK bool optimizeINCDEC(MCInst &MI, bool In64BitMode);
MLGO_WEAK bool optimizeMOV(MCInst &MI, bool In64BitMode);
MLGO_WEAK bool optimizeToFixedRegisterOrShortImmediateForm(MCInst &MI);
} // namespace llvm::X86

/// Replaces MI by the encoding that LLVM's printer chooses.
static void shorten(MCInst &MI, const MCInstrDesc &Desc) {
  using namespace llvm::X86;
  if (!optimizeInstFromVEX3ToVEX2 || !optimizeShiftRotateWithImmediateOne ||
      !optimizeVPCMPWithImmediateOneOrSix || !optimizeMOVSX ||
      !optimizeINCDEC || !optimizeMOV ||
      !optimizeToFixedRegisterOrShortImmediateForm)
    return;
  (void)(optimizeInstFromVEX3ToVEX2(MI, Desc) ||
         optimizeShiftRotateWithImmediateOne(MI) ||
         optimizeVPCMPWithImmediateOneOrSix(MI) || optimizeMOVSX(MI) ||
         optimizeINCDEC(MI, /*In64BitMode=*/true) ||
         optimizeMOV(MI, /*In64BitMode=*/true) ||
         optimizeToFixedRegisterOrShortImmediateForm(MI));
}

static cl::opt<bool> Everywhere(
    "mlgo-outline-everywhere", cl::init(false), cl::Hidden,
    cl::desc("For x86-64, outline from loops and the ends of small functions, "
             "too: smaller code that executes more instructions"));

namespace {
/// x86-64 for ELF. LLVM counts an instruction, a call and a return as a byte
/// each, and outlines no sequence with a call, an address relative to the
/// instruction or the stack pointer, or the end of a frame. Here such sequences
/// are outlined, too:
/// - A call may end a sequence. The outlined function jumps to the callee. The
///   callee returns to where the sequence was, as if it had been called from
///   there; unwinding sees no difference.
/// - Addresses relative to the instruction are computed by the linker, for the
///   new place.
/// - Addresses relative to the stack pointer grow by the return address.
/// - The instructions that end a frame may be at the end of a function: the
///   outlined function is jumped to and returns in its place.
class X86OutlinerInstrInfo : public OutlinerInstrInfo {
public:
  X86OutlinerInstrInfo(const TargetInstrInfo &Target, const MachineFunction &MF,
                       OutlinedModule &Outlined);

  bool isFunctionSafeToOutlineFrom(MachineFunction &MF,
                                   bool OutlineFromLinkOnceODRs) const override;
  bool isMBBSafeToOutlineFrom(MachineBasicBlock &MBB,
                              unsigned &Flags) const override;
  bool shouldOutlineFromFunctionByDefault(MachineFunction &MF) const override {
    return MF.getFunction().hasMinSize();
  }
  void buildOutlinedFrame(MachineBasicBlock &MBB, MachineFunction &MF,
                          const OutlinedFunction &OF) const override;

#if LLVM_VERSION_MAJOR >= 20
  std::optional<OutlinedFunctionPtr>
  getOutliningCandidateInfo(const MachineModuleInfo &,
                            std::vector<Candidate> &Locations,
                            unsigned) const override {
    auto OF = std::make_unique<OutlinedFunction>(Locations, 0, 0, Called);
    if (!setCosts(*OF))
      return std::nullopt;
    return OF;
  }
#else
  std::optional<OutlinedFunctionPtr>
  getOutliningCandidateInfo(std::vector<Candidate> &Locations) const override {
    OutlinedFunction OF(Locations, 0, 0, Called);
    if (!setCosts(OF))
      return std::nullopt;
    return OF;
  }
#endif

private:
  static constexpr unsigned CallBytes = 5;
  static constexpr unsigned ReturnBytes = 1;
  static constexpr int64_t ReturnAddressBytes = 8;
  /// The jump to an outlined return is executed once a call, which matters for
  /// smaller functions: without this limit jq executes 1% more.
  static constexpr unsigned MinInstructionsOfFrame = 80;
  /// In place of an address that only the linker knows: takes four bytes.
  static constexpr int64_t UnknownAddress = 0x12345678;
  /// X86InstrInfo's kinds of outlined functions: called ones, to which it adds
  /// a return, and ones that are jumped to.
  enum FrameKind { Called, JumpedTo };

  InstrType outliningType(InstrType Type,
                          const MachineInstr &MI) const override;
  bool neverThrows(MutableArrayRef<Candidate> Candidates) const override;
  bool setCosts(OutlinedFunction &OF) const override;

  bool isBound(const MachineInstr &MI) const;
  bool isMovable(const MachineInstr &MI) const;
  bool isEpilogue(const MachineInstr &MI) const;
  int64_t poppedBytes(const MachineInstr &MI) const;
  std::optional<unsigned> stackOffset(const MachineInstr &MI) const;
  bool isAddressBase(const MachineInstr &MI, unsigned Operand) const;
  unsigned encodedBytes(const MachineInstr &MI,
                        int64_t StackPointerChange = 0) const;
  void describeEpilogue(MachineBasicBlock &MBB, MachineFunction &MF) const;
  unsigned opcode(StringRef Name) const { return findOpcode(*this, Name); }
  unsigned reg(StringRef Name) const { return findRegister(Registers, Name); }

  /// -mlgo-outline-everywhere, as it is for this module.
  const bool IsEverywhere = Everywhere;
  /// The function that the outliner looks at, and its blocks in loops.
  mutable const MachineFunction *LoopFunction = nullptr;
  mutable DenseSet<const MachineBasicBlock *> LoopBlocks;
  const MCSubtargetInfo &Subtarget;
  const TargetRegisterInfo &Registers;
  MCContext Context;
  std::unique_ptr<MCCodeEmitter> Emitter;
  const Register StackPointer, InstructionPointer, ShadowStackPointer;
  const unsigned Return, Pop, Add;
  /// Calls, and the jumps that replace them.
  SmallDenseMap<unsigned, unsigned> TailCalls;
  /// Pseudo instructions of tail calls, and what they become.
  SmallDenseMap<unsigned, unsigned> TailJumps;
  /// Landing places of indirect branches.
  SmallDenseSet<unsigned, 2> BranchTargets;
  /// Flags of operands relative to the instruction that have the same value in
  /// another function.
  SmallDenseSet<unsigned> MovableFlags;
  /// Flags of operands that are relative to a label of their function.
  SmallDenseSet<unsigned> BoundFlags;
};
} // namespace

X86OutlinerInstrInfo::X86OutlinerInstrInfo(const TargetInstrInfo &Target,
                                           const MachineFunction &MF,
                                           OutlinedModule &Outlined)
    : OutlinerInstrInfo(Target, MF, Outlined), Subtarget(MF.getSubtarget()),
      Registers(*MF.getSubtarget().getRegisterInfo()),
      Context(MF.getTarget().getTargetTriple(), MF.getTarget().getMCAsmInfo(),
              MF.getTarget().getMCRegisterInfo(), &Subtarget),
      Emitter(MF.getTarget().getTarget().createMCCodeEmitter(*this, Context)),
      StackPointer(reg("RSP")), InstructionPointer(reg("RIP")),
      ShadowStackPointer(reg("SSP")), Return(opcode("RET64")),
      Pop(opcode("POP64r")), Add(opcode("ADD64ri32")) {
  for (auto [Call, Tail, Jump] :
       {std::tuple("CALL64pcrel32", "TAILJMPd64", "JMP_4"),
        {"CALL64r", "TAILJMPr64", "JMP64r"},
        {"CALL64m", "TAILJMPm64", "JMP64m"}}) {
    TailCalls[opcode(Call)] = opcode(Tail);
    TailJumps[opcode(Tail)] = opcode(Jump);
  }
  for (StringRef Name : {"ENDBR32", "ENDBR64"})
    BranchTargets.insert(opcode(Name));
  MovableFlags.insert(0);
  for (auto [Flag, Name] :
       Target.getSerializableDirectMachineOperandTargetFlags()) {
    if (is_contained({"x86-gotpcrel", "x86-gotpcrel-norelax", "x86-plt"},
                     StringRef(Name)))
      MovableFlags.insert(Flag);
    if (StringRef(Name).contains("pic-base") ||
        StringRef(Name) == "x86-got-absolute-address")
      BoundFlags.insert(Flag);
  }
}

bool X86OutlinerInstrInfo::isMBBSafeToOutlineFrom(MachineBasicBlock &MBB,
                                                  unsigned &Flags) const {
  MachineFunction &MF = *MBB.getParent();
  if (!IsEverywhere && LoopFunction != &MF) {
    LoopFunction = &MF;
    LoopBlocks.clear();
    MachineDominatorTree Dominators(MF);
    MachineLoopInfo Loops(Dominators);
    for (MachineBasicBlock &Block : MF)
      if (Loops.getLoopFor(&Block))
        LoopBlocks.insert(&Block);
  }
  return !LoopBlocks.contains(&MBB) &&
         OutlinerInstrInfo::isMBBSafeToOutlineFrom(MBB, Flags);
}

/// Returns whether \p F is compiled with a mitigation. These change calls,
/// loads and returns after the outliner, in functions that have them, and an
/// outlined function adds a call and a return that speculation can leave.
static bool isHardened(const Function &F) {
  StringRef Features = F.getFnAttribute("target-features").getValueAsString();
  return F.hasFnAttribute(Attribute::FnRetThunkExtern) ||
         F.hasFnAttribute(Attribute::SpeculativeLoadHardening) ||
         any_of(ArrayRef<StringRef>{"+retpoline", "+lvi-", "+seses",
                                    "+harden-sls"},
                [&](StringRef Feature) { return Features.contains(Feature); });
}

bool X86OutlinerInstrInfo::isFunctionSafeToOutlineFrom(
    MachineFunction &MF, bool OutlineFromLinkOnceODRs) const {
  const Function &F = MF.getFunction();
  // Code of a named section has to stay there. In the large code model a call
  // does not reach everything.
  if (F.hasSection() || isHardened(F) ||
      MF.getTarget().getCodeModel() == CodeModel::Large ||
      !OutlinerInstrInfo::isFunctionSafeToOutlineFrom(MF,
                                                      OutlineFromLinkOnceODRs))
    return false;
  // Returns that name different registers would be different instructions. No
  // pass that runs later reads these names: the mitigations that would are in
  // functions that are not outlined from.
  for (MachineBasicBlock &MBB : MF)
    for (MachineInstr &MI : MBB.terminators())
      if (MI.getOpcode() == Return)
        while (MI.getNumOperands())
          MI.removeOperand(MI.getNumOperands() - 1);
  return true;
}

/// Returns whether the operand is the base register of an address, which has
/// five operands: base, scale, index, displacement, segment.
bool X86OutlinerInstrInfo::isAddressBase(const MachineInstr &MI,
                                         unsigned Operand) const {
  return Operand + 4 < MI.getNumExplicitOperands() &&
         MI.getOperand(Operand + 1).isImm() &&
         is_contained({1, 2, 4, 8}, MI.getOperand(Operand + 1).getImm()) &&
         MI.getOperand(Operand + 2).isReg() &&
         MI.getOperand(Operand + 4).isReg();
}

/// Returns the index of the operand of MI that is a displacement from the stack
/// pointer.
std::optional<unsigned>
X86OutlinerInstrInfo::stackOffset(const MachineInstr &MI) const {
  for (unsigned I = 0; I < MI.getNumExplicitOperands(); ++I)
    if (MI.getOperand(I).isReg() && MI.getOperand(I).getReg() == StackPointer &&
        isAddressBase(MI, I) && MI.getOperand(I + 3).isImm())
      return I + 3;
  return std::nullopt;
}

/// Returns whether MI means something else in another function or place: it
/// has a label or refers to one, is a record of where code is, is where
/// indirect branches land, or depends on the number of return addresses.
bool X86OutlinerInstrInfo::isBound(const MachineInstr &MI) const {
  if (MI.getPreInstrSymbol() || MI.getPostInstrSymbol() || MI.isBundled() ||
      BranchTargets.contains(MI.getOpcode()) ||
      !(isTargetSpecificOpcode(MI.getOpcode()) || MI.isCFIInstruction()))
    return true;
  if (!MI.isCall() && !MI.isTerminator() &&
      (MI.getDesc().hasImplicitUseOfPhysReg(ShadowStackPointer) ||
       MI.getDesc().hasImplicitDefOfPhysReg(ShadowStackPointer)))
    return true;
  return any_of(MI.operands(), [&](const MachineOperand &MO) {
    return MO.isMCSymbol() ||
           (!MO.isReg() && BoundFlags.contains(MO.getTargetFlags()));
  });
}

/// Returns whether MI uses stack and instruction pointer in addresses only, and
/// these can be changed so that it does the same in an outlined function.
bool X86OutlinerInstrInfo::isMovable(const MachineInstr &MI) const {
  const bool IsCall = MI.isCall();
  if (!IsCall && (MI.getDesc().hasImplicitUseOfPhysReg(StackPointer) ||
                  MI.getDesc().hasImplicitDefOfPhysReg(StackPointer) ||
                  MI.getDesc().hasImplicitUseOfPhysReg(InstructionPointer) ||
                  MI.getDesc().hasImplicitDefOfPhysReg(InstructionPointer)))
    return false;
  unsigned Bases = 0;
  for (unsigned I = 0; I < MI.getNumOperands(); ++I) {
    const MachineOperand &MO = MI.getOperand(I);
    if (!MO.isReg() || !MO.getReg().isPhysical() || (IsCall && MO.isImplicit()))
      continue;
    if (Registers.regsOverlap(MO.getReg(), StackPointer)) {
      if (MO.isDef() || MO.isImplicit() || !isAddressBase(MI, I) ||
          !MI.getOperand(I + 3).isImm() ||
          !isInt<32>(MI.getOperand(I + 3).getImm() + ReturnAddressBytes) ||
          ++Bases > 1)
        return false;
    } else if (Registers.regsOverlap(MO.getReg(), InstructionPointer)) {
      if (MO.isDef() || MO.isImplicit() || !isAddressBase(MI, I))
        return false;
      const MachineOperand &Target = MI.getOperand(I + 3);
      if (!(Target.isGlobal() || Target.isSymbol()) ||
          !MovableFlags.contains(Target.getTargetFlags()))
        return false;
    }
  }
  return true;
}

/// Returns by how much the stack pointer grows if MI is an instruction at the
/// end of a frame, else 0.
int64_t X86OutlinerInstrInfo::poppedBytes(const MachineInstr &MI) const {
  if (!MI.getFlag(MachineInstr::FrameDestroy))
    return 0;
  if (MI.getOpcode() == Pop)
    return 8;
  if (MI.getOpcode() == Add && MI.getOperand(0).getReg() == StackPointer &&
      MI.getOperand(1).getReg() == StackPointer && MI.getOperand(2).isImm())
    return MI.getOperand(2).getImm();
  return 0;
}

/// Returns whether MI and everything behind it end a frame and return.
bool X86OutlinerInstrInfo::isEpilogue(const MachineInstr &MI) const {
  for (auto It = MI.getIterator(), End = MI.getParent()->instr_end(); It != End;
       ++It) {
    if (It->getOpcode() == Return)
      return true;
    if (!It->isDebugInstr() && !It->isCFIInstruction() && poppedBytes(*It) <= 0)
      return false;
  }
  return false;
}

/// Returns whether \p MI is a directive of the unwind tables. Without these
/// only debug data has directives.
static bool isUnwindDirective(const MachineInstr &MI) {
  return MI.isCFIInstruction() &&
         MI.getMF()->getFunction().needsUnwindTableEntry();
}

/// Returns the number of instructions and directives of \p MF, which is the
/// same with and without debug data.
static size_t instructionsOf(const MachineFunction &MF) {
  size_t Result = 0;
  for (const MachineBasicBlock &MBB : MF)
    Result += count_if(MBB, [](const MachineInstr &MI) {
      return MI.isCFIInstruction() ? isUnwindDirective(MI)
                                   : !MI.isDebugOrPseudoInstr();
    });
  return Result;
}

InstrType X86OutlinerInstrInfo::outliningType(InstrType Type,
                                              const MachineInstr &MI) const {
  if (Type == InstrType::Invisible)
    return Type;
  if (isBound(MI))
    return InstrType::Illegal;
  if (Type != InstrType::Illegal)
    return Type;
  if ((MI.isCFIInstruction() || poppedBytes(MI) > 0) && isEpilogue(MI) &&
      (IsEverywhere || instructionsOf(*MI.getMF()) >= MinInstructionsOfFrame))
    // The outlined function gets directives of its own.
    return MI.isCFIInstruction() ? InstrType::Invisible : InstrType::Legal;
  if (MI.isCFIInstruction() || !isMovable(MI))
    return InstrType::Illegal;
  if (!MI.isCall())
    return InstrType::Legal;
  const MachineOperand &Callee = MI.getOperand(0);
  if (!TailCalls.contains(MI.getOpcode()) || MI.getCFIType() ||
      ((Callee.isGlobal() || Callee.isSymbol()) &&
       !MovableFlags.contains(Callee.getTargetFlags())))
    return InstrType::Illegal;
  if (Callee.isGlobal())
    if (auto *F = dyn_cast<Function>(Callee.getGlobal()))
      if (F->hasFnAttribute(Attribute::ReturnsTwice))
        return InstrType::Illegal;
  return InstrType::LegalTerminator;
}

bool X86OutlinerInstrInfo::neverThrows(
    MutableArrayRef<Candidate> Candidates) const {
  const MachineInstr &Last = Candidates.front().back();
  if (!Last.isCall())
    return true;
  const MachineOperand &Callee = Last.getOperand(0);
  const auto *F =
      Callee.isGlobal() ? dyn_cast<Function>(Callee.getGlobal()) : nullptr;
  return (F && F->doesNotThrow()) || OutlinerInstrInfo::neverThrows(Candidates);
}

/// Returns the bytes that MI is encoded in, if its displacement from the stack
/// pointer grows. Pseudo instructions that are only expanded when they are
/// printed count as one byte, which is what LLVM assumes for every instruction.
unsigned X86OutlinerInstrInfo::encodedBytes(const MachineInstr &MI,
                                            int64_t StackPointerChange) const {
  if (MI.isMetaInstruction())
    return 0;
  auto Jump = TailJumps.find(MI.getOpcode());
  const unsigned Opcode =
      Jump != TailJumps.end() ? Jump->second : MI.getOpcode();
  const MCInstrDesc &Desc = get(Opcode);
  if (Desc.isPseudo())
    return 1;
  MCInst Inst;
  Inst.setOpcode(Opcode);
  for (const MachineOperand &MO : MI.operands()) {
    if (MO.isReg()) {
      if (!MO.isImplicit())
        Inst.addOperand(MCOperand::createReg(MO.getReg().asMCReg()));
    } else if (MO.isImm()) {
      Inst.addOperand(MCOperand::createImm(MO.getImm()));
    } else if (!MO.isRegMask()) {
      Inst.addOperand(MCOperand::createImm(UnknownAddress));
    }
  }
  if (StackPointerChange)
    if (std::optional<unsigned> Offset = stackOffset(MI))
      Inst.getOperand(*Offset).setImm(Inst.getOperand(*Offset).getImm() +
                                      StackPointerChange);
  shorten(Inst, Desc);
  SmallVector<char, 16> Code;
  SmallVector<MCFixup, 2> Fixups;
  Emitter->encodeInstruction(Inst, Code, Fixups, Subtarget);
  return Code.size();
}

bool X86OutlinerInstrInfo::setCosts(OutlinedFunction &OF) const {
  Candidate &First = OF.Candidates.front();
  const bool Jumped = First.back().isTerminator();
  const bool EndsInCall = !Jumped && First.back().isCall();
  OF.SequenceSize = 0;
  OF.FrameOverhead = Jumped || EndsInCall ? 0 : ReturnBytes;
  OF.FrameConstructionID = Jumped || EndsInCall ? JumpedTo : Called;
  unsigned Pops = 0, Directives = 0;
  for (const MachineInstr &MI : First) {
    const unsigned Bytes = encodedBytes(MI);
    OF.SequenceSize += Bytes;
    if (!Jumped)
      OF.FrameOverhead += encodedBytes(MI, ReturnAddressBytes) - Bytes;
    Pops += poppedBytes(MI) > 0;
    Directives += isUnwindDirective(MI);
  }
  if (Pops && !Jumped)
    return false;
  if (Directives) {
    // A directive takes three bytes of the unwind entry: the distance, an
    // opcode and an offset. The outlined function has all of them, and says at
    // its start where the registers are.
    OF.SequenceSize += 3 * Directives;
    OF.FrameOverhead += 2 + 2 * Pops;
  }
  for (Candidate &C : OF.Candidates)
    C.setCallInfo(Jumped ? JumpedTo : Called, CallBytes);
  return OutlinerInstrInfo::setCosts(OF);
}

void X86OutlinerInstrInfo::buildOutlinedFrame(
    MachineBasicBlock &MBB, MachineFunction &MF,
    const OutlinedFunction &OF) const {
  MachineInstr &Last = MBB.back();
  if (!Last.isTerminator()) {
    for (MachineInstr &MI : MBB)
      if (std::optional<unsigned> Offset = stackOffset(MI)) {
        MachineOperand &MO = MI.getOperand(*Offset);
        MO.setImm(MO.getImm() + ReturnAddressBytes);
      }
    if (Last.isCall())
      Last.setDesc(get(TailCalls.lookup(Last.getOpcode())));
  } else if (Last.getOpcode() == Return) {
    describeEpilogue(MBB, MF);
  }
  OutlinerInstrInfo::buildOutlinedFrame(MBB, MF, OF);
}

/// Adds to an outlined function that returns how to unwind it before it has
/// popped everything.
void X86OutlinerInstrInfo::describeEpilogue(MachineBasicBlock &MBB,
                                            MachineFunction &MF) const {
  // The first candidate's directives, which it does not have if only another
  // one needs unwind tables.
  for (MachineInstr &MI : make_early_inc_range(MBB))
    if (MI.isCFIInstruction())
      MI.eraseFromParent();
  int64_t Popped = 0;
  for (const MachineInstr &MI : MBB)
    Popped += poppedBytes(MI);
  if (!Popped || !MF.needsFrameMoves())
    return;
  auto Describe = [&](MachineBasicBlock::iterator Before,
                      const MCCFIInstruction &Directive) {
    BuildMI(MBB, Before, DebugLoc(), get(TargetOpcode::CFI_INSTRUCTION))
        .addCFIIndex(MF.addFrameInst(Directive));
  };
  const auto Start = MBB.begin();
  int64_t Offset = ReturnAddressBytes + Popped;
  Describe(Start, MCCFIInstruction::cfiDefCfaOffset(nullptr, Offset));
  const MCPhysReg *Saved = Registers.getCalleeSavedRegs(&MF);
  for (auto It = Start; It != MBB.end();) {
    const MachineInstr &MI = *It++;
    const int64_t Bytes = poppedBytes(MI);
    if (!Bytes)
      continue;
    if (MI.getOpcode() == Pop) {
      const Register Restored = MI.getOperand(0).getReg();
      for (const MCPhysReg *R = Saved; *R; ++R)
        if (*R == Restored)
          Describe(Start,
                   MCCFIInstruction::createOffset(
                       nullptr, Registers.getDwarfRegNum(*R, true), -Offset));
    }
    Offset -= Bytes;
    Describe(It, MCCFIInstruction::cfiDefCfaOffset(nullptr, Offset));
  }
}

static bool isX86ELF(const Triple &T) {
  return T.getArch() == Triple::x86_64 && !T.isX32() && T.isOSBinFormatELF();
}

std::unique_ptr<OutlinerInstrInfo>
mlgo::createOutlinerInstrInfo(const TargetInstrInfo &Target,
                              const MachineFunction &MF,
                              OutlinedModule &Outlined) {
  if (isX86ELF(MF.getTarget().getTargetTriple()))
    return std::make_unique<X86OutlinerInstrInfo>(Target, MF, Outlined);
  return std::make_unique<OutlinerInstrInfo>(Target, MF, Outlined);
}

bool mlgo::outlinesByDefault(const Triple &Target) { return isX86ELF(Target); }
