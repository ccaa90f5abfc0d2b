#include "outlining/EqualCode.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/CodeGen/MachineConstantPool.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineJumpTableInfo.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"

#include <map>
#include <vector>

using namespace llvm;

/// The code of a function, except which functions it refers to. The first word
/// is a hash of the others.
using Code = std::vector<uint64_t>;

namespace {
/// A function that ICF may fold.
struct FoldableFunction {
  const MachineFunction *MF;
  uint64_t Hash;
  /// The functions of the module that it refers to, itself too, in order.
  std::vector<const Function *> References;
  /// Functions of one class are equal as far as known.
  unsigned Class = 0;
};

/// Writes functions as words: equal functions as equal words.
class CodeWriter {
public:
  CodeWriter(const MachineModuleInfo &MMI) : MMI(MMI) {}

  /// Writes \p F to \p Words. Returns false if it has an operand that no other
  /// function has.
  bool write(FoldableFunction &F, Code &Words);

private:
  bool write(const MachineOperand &MO, FoldableFunction &F, Code &Words);
  bool isReplaced(const GlobalValue &Value) const;

  const MachineModuleInfo &MMI;
  StringMap<uint64_t> Names;
  DenseMap<const MachineBasicBlock *, uint64_t> Blocks;
  DenseMap<const MCSymbol *, uint64_t> Labels;
};
} // namespace

/// Returns whether a reference to \p Value changes if ICF folds it: what it
/// refers to is known, and has code here.
bool CodeWriter::isReplaced(const GlobalValue &Value) const {
  auto *F = dyn_cast<Function>(&Value);
  return F && F->isDSOLocal() && !F->isInterposable() &&
         MMI.getMachineFunction(*F);
}

bool CodeWriter::write(const MachineOperand &MO, FoldableFunction &F,
                       Code &Words) {
  Words.push_back(MO.getType() |
                  static_cast<uint64_t>(MO.isReg() ? 0 : MO.getTargetFlags())
                      << 8);
  auto Add = [&](uint64_t Word) { Words.push_back(Word); };
  auto AddPointer = [&](const void *Value) {
    Add(reinterpret_cast<uintptr_t>(Value));
  };
  switch (MO.getType()) {
  case MachineOperand::MO_Register:
    Add(MO.getReg().id() | static_cast<uint64_t>(MO.getSubReg()) << 32);
    return true;
  case MachineOperand::MO_Immediate:
    Add(MO.getImm());
    return true;
  case MachineOperand::MO_CImmediate:
    AddPointer(MO.getCImm());
    return true;
  case MachineOperand::MO_FPImmediate:
    AddPointer(MO.getFPImm());
    return true;
  case MachineOperand::MO_MachineBasicBlock:
    Add(Blocks.lookup(MO.getMBB()));
    return true;
  case MachineOperand::MO_ConstantPoolIndex: {
    const MachineConstantPoolEntry &Entry =
        F.MF->getConstantPool()->getConstants()[MO.getIndex()];
    if (Entry.isMachineConstantPoolEntry())
      return false;
    AddPointer(Entry.Val.ConstVal);
    Add(Entry.Alignment.value());
    Add(MO.getOffset());
    return true;
  }
  case MachineOperand::MO_GlobalAddress:
    if (isReplaced(*MO.getGlobal()))
      F.References.push_back(cast<Function>(MO.getGlobal()));
    else
      AddPointer(MO.getGlobal());
    Add(MO.getOffset());
    return true;
  case MachineOperand::MO_ExternalSymbol:
    Add(Names.try_emplace(MO.getSymbolName(), Names.size()).first->second);
    Add(MO.getOffset());
    return true;
  case MachineOperand::MO_MCSymbol:
    Add(Labels.try_emplace(MO.getMCSymbol(), Labels.size()).first->second);
    return true;
  case MachineOperand::MO_RegisterMask:
  case MachineOperand::MO_RegisterLiveOut:
  case MachineOperand::MO_Metadata:
    return true;
  default:
    return false;
  }
}

bool CodeWriter::write(FoldableFunction &F, Code &Words) {
  Blocks.clear();
  Labels.clear();
  F.References.clear();
  Words.assign(1, 0);
  Words.push_back(F.MF->getAlignment().value());
  for (const MachineBasicBlock &MBB : *F.MF)
    Blocks.try_emplace(&MBB, Blocks.size());
  for (const MachineBasicBlock &MBB : *F.MF) {
    // No opcode is that large.
    Words.push_back(UINT64_MAX - MBB.getAlignment().value());
    for (const MachineInstr &MI : MBB.instrs()) {
      if (MI.isMetaInstruction())
        continue;
      Words.push_back(MI.getOpcode());
      for (const MachineOperand &MO : MI.operands())
        if (!(MO.isReg() && MO.isImplicit()) && !write(MO, F, Words))
          return false;
    }
  }
  Words.front() =
      xxh3_64bits(ArrayRef(reinterpret_cast<const uint8_t *>(Words.data() + 1),
                           (Words.size() - 1) * sizeof(Words.front())));
  return true;
}

/// Returns whether ICF can fold \p F: it has a section of its own, and neither
/// an exception table nor a jump table, which lld does not compare.
static bool isFoldable(const Function &F, const MachineFunction &MF) {
  return (MF.getTarget().getFunctionSections() || F.hasComdat()) &&
         !F.hasSection() && !F.hasPrefixData() && !F.hasPrologueData() &&
         (!MF.getJumpTableInfo() || MF.getJumpTableInfo()->isEmpty()) &&
         none_of(MF, [](const MachineBasicBlock &MBB) {
           return MBB.isEHPad() || MBB.hasAddressTaken();
         });
}

/// Divides the classes of \p Functions until the functions of each refer to
/// functions of the same classes, or to the same functions.
static void divideClasses(std::vector<FoldableFunction> &Functions) {
  DenseMap<const Function *, const FoldableFunction *> Foldable;
  for (const FoldableFunction &F : Functions)
    Foldable[&F.MF->getFunction()] = &F;
  for (size_t Before = 0;;) {
    std::map<Code, unsigned> Classes;
    std::vector<unsigned> Divided;
    for (const FoldableFunction &F : Functions) {
      Code Key = {F.Class};
      for (const Function *Reference : F.References)
        if (const FoldableFunction *Other = Foldable.lookup(Reference))
          Key.insert(Key.end(), {0, Other->Class});
        else
          Key.insert(Key.end(), {1, reinterpret_cast<uintptr_t>(Reference)});
      Divided.push_back(
          Classes.try_emplace(std::move(Key), Classes.size()).first->second);
    }
    for (auto [F, Class] : zip_equal(Functions, Divided))
      F.Class = Class;
    if (Classes.size() == Before)
      return;
    Before = Classes.size();
  }
}

DenseSet<const MachineFunction *>
mlgo::findDuplicates(const Module &M, const MachineModuleInfo &MMI) {
  std::vector<FoldableFunction> Functions;
  CodeWriter Writer(MMI);
  Code Words;
  DenseMap<uint64_t, unsigned> Count;
  for (const Function &F : M) {
    const MachineFunction *MF = MMI.getMachineFunction(F);
    if (!MF || !isFoldable(F, *MF))
      continue;
    FoldableFunction Foldable{MF, 0, {}};
    if (!Writer.write(Foldable, Words))
      continue;
    Foldable.Hash = Words.front();
    ++Count[Foldable.Hash];
    Functions.push_back(std::move(Foldable));
  }
  // Most functions have a hash of their own, and need no comparison.
  erase_if(Functions, [&](const FoldableFunction &F) {
    return Count.lookup(F.Hash) == 1;
  });
  std::map<Code, unsigned> Classes;
  for (FoldableFunction &F : Functions) {
    Writer.write(F, Words);
    F.Class = Classes.try_emplace(Words, Classes.size()).first->second;
  }
  divideClasses(Functions);
  DenseSet<const MachineFunction *> Result;
  DenseSet<unsigned> Seen;
  for (const FoldableFunction &F : Functions)
    if (!Seen.insert(F.Class).second)
      Result.insert(F.MF);
  return Result;
}
