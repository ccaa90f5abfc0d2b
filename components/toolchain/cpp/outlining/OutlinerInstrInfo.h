// What the machine outliner asks of a target, answered with costs in bytes.
#ifndef MLGO_OUTLINER_INSTR_INFO_H
#define MLGO_OUTLINER_INSTR_INFO_H

#include "llvm/ADT/DenseSet.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/CodeGen/MachineOutliner.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/Config/llvm-config.h"

#include <memory>
#include <optional>
#include <vector>

namespace mlgo {

#if LLVM_VERSION_MAJOR >= 20
using OutlinedFunctionPtr = std::unique_ptr<llvm::outliner::OutlinedFunction>;
#else
using OutlinedFunctionPtr = llvm::outliner::OutlinedFunction;
#endif

/// The functions of a module to outline from.
class OutlinedModule {
public:
  OutlinedModule(const llvm::Module &M, const llvm::MachineModuleInfo &MMI);

  /// Returns whether the module has all of the program's LLVM code: linkonce
  /// functions have no other copies then.
  bool isWholeProgram() const { return WholeProgram; }

  /// Returns whether a profile or an attribute says that F is hot.
  bool isHot(const llvm::Function &F) const { return Hot.contains(&F); }

  /// Returns whether identical code folding replaces the function by an earlier
  /// one, so that outlining from it saves nothing.
  bool isDuplicate(const llvm::MachineFunction *MF);

  /// Has to be called when code is outlined.
  void invalidate() { Duplicates.reset(); }

private:
  const llvm::Module &M;
  const llvm::MachineModuleInfo &MMI;
  bool WholeProgram;
  llvm::DenseSet<const llvm::Function *> Hot;
  std::optional<llvm::DenseSet<const llvm::MachineFunction *>> Duplicates;
};

/// Forwards the outliner's questions to the target's own description, and adds
/// the unwind entry of each new function to its cost.
class OutlinerInstrInfo : public llvm::TargetInstrInfo {
public:
  /// \p MF is any function of the subtarget that \p Target describes.
  OutlinerInstrInfo(const llvm::TargetInstrInfo &Target,
                    const llvm::MachineFunction &MF, OutlinedModule &Outlined);

  bool isFunctionSafeToOutlineFrom(llvm::MachineFunction &MF,
                                   bool OutlineFromLinkOnceODRs) const override;
  bool
  shouldOutlineFromFunctionByDefault(llvm::MachineFunction &MF) const override {
    return Target.shouldOutlineFromFunctionByDefault(MF);
  }
  bool isMBBSafeToOutlineFrom(llvm::MachineBasicBlock &MBB,
                              unsigned &Flags) const override;
  llvm::SmallVector<std::pair<llvm::MachineBasicBlock::iterator,
                              llvm::MachineBasicBlock::iterator>>
  getOutlinableRanges(llvm::MachineBasicBlock &MBB,
                      unsigned &Flags) const override {
    return Target.getOutlinableRanges(MBB, Flags);
  }
  bool isPredicated(const llvm::MachineInstr &MI) const override {
    return Target.isPredicated(MI);
  }
  void mergeOutliningCandidateAttributes(
      llvm::Function &F,
      std::vector<llvm::outliner::Candidate> &Candidates) const override;
  void
  buildOutlinedFrame(llvm::MachineBasicBlock &MBB, llvm::MachineFunction &MF,
                     const llvm::outliner::OutlinedFunction &OF) const override;
  llvm::MachineBasicBlock::iterator
  insertOutlinedCall(llvm::Module &M, llvm::MachineBasicBlock &MBB,
                     llvm::MachineBasicBlock::iterator &It,
                     llvm::MachineFunction &MF,
                     llvm::outliner::Candidate &C) const override {
    return Target.insertOutlinedCall(M, MBB, It, MF, C);
  }

#if LLVM_VERSION_MAJOR >= 20
  std::optional<OutlinedFunctionPtr>
  getOutliningCandidateInfo(const llvm::MachineModuleInfo &MMI,
                            std::vector<llvm::outliner::Candidate> &Locations,
                            unsigned MinRepeats) const override;
#else
  std::optional<OutlinedFunctionPtr> getOutliningCandidateInfo(
      std::vector<llvm::outliner::Candidate> &Locations) const override;
#endif

protected:
#if LLVM_VERSION_MAJOR >= 20
  llvm::outliner::InstrType
  getOutliningTypeImpl(const llvm::MachineModuleInfo &MMI,
                       llvm::MachineBasicBlock::iterator &It,
                       unsigned Flags) const override {
    return outliningType(Target.getOutliningType(MMI, It, Flags), *It);
  }
#else
  llvm::outliner::InstrType
  getOutliningTypeImpl(llvm::MachineBasicBlock::iterator &It,
                       unsigned Flags) const override {
    return outliningType(Target.getOutliningType(It, Flags), *It);
  }
#endif

  /// Returns how MI may be outlined; the target's answer is \p Type.
  virtual llvm::outliner::InstrType
  outliningType(llvm::outliner::InstrType Type,
                const llvm::MachineInstr &MI) const {
    (void)MI;
    return Type;
  }

  /// Returns whether no exception leaves calls of the function that is outlined
  /// from the candidates.
  virtual bool neverThrows(
      llvm::MutableArrayRef<llvm::outliner::Candidate> Candidates) const;

  /// Replaces the target's costs of outlining the candidates of OF by ours.
  /// Returns false if they cannot be outlined.
  virtual bool setCosts(llvm::outliner::OutlinedFunction &OF) const;

  const llvm::TargetInstrInfo &Target;
  OutlinedModule &Outlined;
};

/// Returns the description that the outliner works with instead of \p Target.
std::unique_ptr<OutlinerInstrInfo>
createOutlinerInstrInfo(const llvm::TargetInstrInfo &Target,
                        const llvm::MachineFunction &MF,
                        OutlinedModule &Outlined);

/// Returns the number of the instruction or register \p Name of a target. The
/// generated headers that have them as constants are private.
unsigned findOpcode(const llvm::MCInstrInfo &Instructions,
                    llvm::StringRef Name);
unsigned findRegister(const llvm::MCRegisterInfo &Registers,
                      llvm::StringRef Name);

/// Returns whether the costs of outlining are known well enough to outline by
/// default in modules for this target.
bool outlinesByDefault(const llvm::Triple &Target);

} // namespace mlgo

#endif
