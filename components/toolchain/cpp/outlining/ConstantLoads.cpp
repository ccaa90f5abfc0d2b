#include "outlining/ConstantLoads.h"

#include "outlining/OutlinerInstrInfo.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/CodeGen/MachineInstrBuilder.h"
#include "llvm/CodeGen/TargetRegisterInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCDwarf.h"

using namespace llvm;
using namespace mlgo;

namespace {
/// A constant's push and pop, and the directives behind them.
struct PushedConstant {
  MachineInstr *Push, *PushDirective, *Pop, *PopDirective;
};

class ConstantLoads {
public:
  explicit ConstantLoads(const MachineFunction &MF)
      : Instructions(*MF.getSubtarget().getInstrInfo()),
        Registers(*MF.getSubtarget().getRegisterInfo()),
        Push(findOpcode(Instructions, "PUSH64i32")),
        Pop(findOpcode(Instructions, "POP64r")),
        Move32(findOpcode(Instructions, "MOV32ri")),
        Move64(findOpcode(Instructions, "MOV64ri32")),
        StackPointer(findRegister(Registers, "RSP")) {
    while (StringRef(Registers.getSubRegIndexName(Low32)) != "sub_32bit")
      ++Low32;
  }

  bool replaceIn(MachineFunction &MF) const;

private:
  std::optional<PushedConstant> match(MachineInstr &MI) const;
  void replace(const PushedConstant &Load) const;

  const TargetInstrInfo &Instructions;
  const TargetRegisterInfo &Registers;
  const unsigned Push, Pop, Move32, Move64;
  const Register StackPointer;
  unsigned Low32 = 1; ///< Index of the lower half of a register.
};
} // namespace

/// Returns the instruction behind MI that is no debug instruction, or null.
static MachineInstr *nextInstr(MachineInstr &MI) {
  auto It = skipDebugInstructionsForward(std::next(MI.getIterator()),
                                         MI.getParent()->instr_end());
  return It == MI.getParent()->instr_end() ? nullptr : &*It;
}

/// Returns whether \p MI is a directive that the stack is \p Bytes longer.
static bool isAdjustment(const MachineInstr *MI, int64_t Bytes) {
  if (!MI || !MI->isCFIInstruction() || MI->isBundled())
    return false;
  const MCCFIInstruction &Directive =
      MI->getMF()->getFrameInstructions()[MI->getOperand(0).getCFIIndex()];
  return Directive.getOperation() == MCCFIInstruction::OpAdjustCfaOffset &&
         Directive.getOffset() == Bytes;
}

/// Returns whether no other instruction or label refers to \p MI.
static bool isReplaceable(const MachineInstr &MI) {
  return !MI.isBundled() && !MI.getPreInstrSymbol() && !MI.getPostInstrSymbol();
}

std::optional<PushedConstant> ConstantLoads::match(MachineInstr &MI) const {
  if (MI.getOpcode() != Push || !MI.getOperand(0).isImm() || !isReplaceable(MI))
    return std::nullopt;
  MachineInstr *PushDirective = nextInstr(MI);
  if (!isAdjustment(PushDirective, 8))
    return std::nullopt;
  MachineInstr *Popped = nextInstr(*PushDirective);
  if (!Popped || Popped->getOpcode() != Pop || !isReplaceable(*Popped))
    return std::nullopt;
  MachineInstr *PopDirective = nextInstr(*Popped);
  if (!isAdjustment(PopDirective, -8))
    return std::nullopt;
  return PushedConstant{&MI, PushDirective, Popped, PopDirective};
}

void ConstantLoads::replace(const PushedConstant &Load) const {
  MachineInstr &Popped = *Load.Pop;
  const int64_t Value = Load.Push->getOperand(0).getImm();
  const Register Result = Popped.getOperand(0).getReg();
  const auto DefinesResult = [&](const MachineOperand &MO) {
    return MO.isDef() && Registers.isSubRegisterEq(Result, MO.getReg());
  };
  const bool IsDead = none_of(Popped.all_defs(), [&](const MachineOperand &MO) {
    return DefinesResult(MO) && !MO.isDead();
  });
  const unsigned State = RegState::Define | getDeadRegState(IsDead);
  // A move of 32 bits clears the upper half.
  const bool IsShort = Value >= 0;
  MachineInstrBuilder Move =
      BuildMI(*Popped.getParent(), Popped, Popped.getDebugLoc(),
              Instructions.get(IsShort ? Move32 : Move64))
          .addReg(IsShort ? Registers.getSubReg(Result, Low32)
                          : Result.asMCReg(),
                  State)
          .addImm(Value);
  if (IsShort)
    Move.addReg(Result, State | RegState::Implicit);
  // What else the load was said to use or define when it was one instruction.
  for (const MachineOperand &MO : Popped.implicit_operands())
    if (!DefinesResult(MO) && !Registers.regsOverlap(MO.getReg(), StackPointer))
      Move.add(MO);
  for (MachineInstr *MI :
       {Load.Push, Load.PushDirective, Load.Pop, Load.PopDirective})
    MI->eraseFromParent();
}

bool ConstantLoads::replaceIn(MachineFunction &MF) const {
  SmallVector<PushedConstant> Found;
  for (MachineBasicBlock &MBB : MF)
    for (MachineInstr &MI : MBB.instrs())
      if (std::optional<PushedConstant> Load = match(MI))
        Found.push_back(*Load);
  for (const PushedConstant &Load : Found)
    replace(Load);
  return !Found.empty();
}

bool mlgo::replacePushedConstants(const Module &M,
                                  const MachineModuleInfo &MMI) {
  if (!outlinesByDefault(Triple(M.getTargetTriple())))
    return false;
  bool Changed = false;
  std::optional<ConstantLoads> Loads;
  for (const Function &F : M) {
    MachineFunction *MF = MMI.getMachineFunction(F);
    // Without unwind entries only debug data has directives.
    if (!MF || !F.hasMinSize() || !F.needsUnwindTableEntry())
      continue;
    if (!Loads)
      Loads.emplace(*MF);
    Changed |= Loads->replaceIn(*MF);
  }
  return Changed;
}
