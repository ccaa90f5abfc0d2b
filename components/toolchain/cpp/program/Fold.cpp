#include "program/Fold.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/StructuralHash.h"
#include "llvm/Transforms/IPO/MergeFunctions.h"
#include "llvm/Transforms/Utils/FunctionComparator.h"

#include <map>

using namespace llvm;
using namespace mlgo;

/// MergeFunctions compares attributes and has no option to leave functions
/// out. Functions with different values of this one stay apart.
static constexpr char ClassAttribute[] = "mlgo-fold-class";

/// What an instruction accesses (AAMDNodes). Merged functions get what is true
/// of each.
static constexpr unsigned AliasKinds[] = {
    LLVMContext::MD_tbaa, LLVMContext::MD_tbaa_struct,
    LLVMContext::MD_alias_scope, LLVMContext::MD_noalias};

/// Returns whether \p F uses its address other than to call itself: equal
/// functions that do use different addresses. LLVM's comparison takes them for
/// equal until LLVM 23 (llvm-project#213206).
static bool usesOwnAddress(const Function &F) {
  SmallVector<const Value *, 8> Worklist{&F};
  SmallPtrSet<const Value *, 8> Seen;
  while (!Worklist.empty())
    for (const Use &U : Worklist.pop_back_val()->uses()) {
      const User *Who = U.getUser();
      if (isa<BlockAddress>(Who))
        return true;
      if (const auto *I = dyn_cast<Instruction>(Who)) {
        const auto *Call = dyn_cast<CallBase>(I);
        if (I->getFunction() == &F &&
            !(U.get() == &F && Call && Call->isCallee(&U)))
          return true;
      } else if (!isa<GlobalValue>(Who) && Seen.insert(Who).second) {
        Worklist.push_back(Who);
      }
    }
  return false;
}

/// Returns whether \p F uses where it is called from. A function that became a
/// call of another is one of its callers.
static bool usesItsCaller(const Function &F) {
  return any_of(instructions(F), [](const Instruction &I) {
    const auto *Intrinsic = dyn_cast<IntrinsicInst>(&I);
    switch (Intrinsic ? Intrinsic->getIntrinsicID()
                      : Intrinsic::not_intrinsic) {
    case Intrinsic::returnaddress:
    case Intrinsic::addressofreturnaddress:
    case Intrinsic::frameaddress:
    case Intrinsic::sponentry:
    case Intrinsic::eh_dwarf_cfa:
      return true;
    default:
      return false;
    }
  });
}

/// Returns whether calls of \p F may reach another definition, which is not
/// equal if it comes from another source or from a compile with other options,
/// or has other alias metadata.
static bool mayBeReplaced(const Function &F, LinkStage Stage) {
  if (F.hasLocalLinkage())
    return false;
  if (F.isInterposable() || !F.isDSOLocal())
    return true;
  switch (Stage) {
  case LinkStage::Compile:
  case LinkStage::Earlier:
    return F.isWeakForLinker();
  case LinkStage::Library:
    // Files that were not compiled for a library call theirs dso_local.
    return F.hasDefaultVisibility();
  case LinkStage::Program:
    return false;
  }
  llvm_unreachable("unknown stage");
}

/// Returns whether \p F must neither be replaced by a call of an equal function
/// nor be called in place of another.
static bool mustStayApart(const Function &F, LinkStage Stage) {
  if (mayBeReplaced(F, Stage))
    return true;
  // Code generation crashes at a call in a naked function and at one of an
  // interrupt handler.
  switch (F.getCallingConv()) {
  case CallingConv::X86_INTR:
  case CallingConv::AVR_INTR:
  case CallingConv::AVR_SIGNAL:
  case CallingConv::MSP430_INTR:
  case CallingConv::M68k_INTR:
    return true;
  default:
    break;
  }
  for (Attribute::AttrKind Kind : {Attribute::Naked, Attribute::ReturnsTwice,
                                   Attribute::PresplitCoroutine})
    if (F.hasFnAttribute(Kind))
      return true;
  // Passes that run later give the address of a function to its
  // instrumentation, or describe its entry.
  for (StringRef Name :
       {"interrupt", "signal", "cmse_nonsecure_entry", "fentry-call",
        "instrument-function-entry", "instrument-function-entry-inlined",
        "instrument-function-exit", "instrument-function-exit-inlined",
        "function-instrument", "xray-instruction-threshold",
        "patchable-function", "patchable-function-entry",
        "patchable-function-prefix"})
    if (F.hasFnAttribute(Name))
      return true;
  return usesOwnAddress(F) || usesItsCaller(F);
}

/// Returns whether metadata of \p Kind only says where code comes from or how
/// often it runs: functions that differ in it are equal.
static bool isHint(LLVMContext &Context, unsigned Kind) {
  switch (Kind) {
  case LLVMContext::MD_dbg:
  case LLVMContext::MD_prof:
  case LLVMContext::MD_unpredictable:
  case LLVMContext::MD_section_prefix:
  case LLVMContext::MD_irr_loop:
  case LLVMContext::MD_annotation:
  case LLVMContext::MD_memprof:
  case LLVMContext::MD_callsite:
  case LLVMContext::MD_DIAssignID:
    return true;
  default:
    break;
  }
  return Kind == Context.getMDKindID("srcloc") ||
         Kind == Context.getMDKindID("heapallocsite");
}

namespace {
/// Describes what LLVM's FunctionComparator does not compare. Equal functions
/// with equal descriptions can be merged. A description is made of numbers and
/// of addresses of unique objects, so it holds while the module does not
/// change.
class Description {
public:
  Description(const Function &F, bool IsProgram, bool HasAliasMetadata)
      : HasAliasMetadata(HasAliasMetadata) {
    addFunction(F, IsProgram);
    addBlocks(F);
  }

  StringRef bytes() const {
    return {reinterpret_cast<const char *>(Words.data()),
            Words.size() * sizeof(uint64_t)};
  }

private:
  void add(uint64_t Word) { Words.push_back(Word); }
  void add(const void *Object) { add(reinterpret_cast<uintptr_t>(Object)); }

  void addFunction(const Function &F, bool IsProgram) {
    add(F.hasPersonalityFn() ? F.getPersonalityFn() : nullptr);
    add(F.hasPrefixData() ? F.getPrefixData() : nullptr);
    add(F.hasPrologueData() ? F.getPrologueData() : nullptr);
    add(F.getAlign() ? F.getAlign()->value() : 0);
    SmallVector<std::pair<unsigned, MDNode *>, 4> Nodes;
    F.getAllMetadata(Nodes);
    // Types that indirect calls are checked for, on most member functions. A
    // program that is compiled here checks none. Elsewhere MergeFunctions
    // copies them to the calls that it leaves, but not where the function that
    // stays replaces another's address.
    if (IsProgram || !F.hasGlobalUnnamedAddr() || !F.hasAddressTaken())
      erase_if(Nodes, [](const auto &Node) {
        return Node.first == LLVMContext::MD_type;
      });
    addMetadata(F.getContext(), Nodes);
  }

  void addMetadata(LLVMContext &Context,
                   ArrayRef<std::pair<unsigned, MDNode *>> Nodes) {
    // Without the number of words, the metadata of one instruction would be the
    // same as that of the next one.
    const size_t Start = Words.size();
    add(uint64_t(0));
    for (auto [Kind, Node] : Nodes) {
      if (isHint(Context, Kind) ||
          (!HasAliasMetadata && is_contained(AliasKinds, Kind)))
        continue;
      add(Kind);
      if (Kind != LLVMContext::MD_loop) {
        add(Node);
        continue;
      }
      // A loop's node is distinct: its first operand is itself.
      for (const MDOperand &Operand : drop_begin(Node->operands()))
        if (!isa<DILocation>(Operand))
          add(Operand.get());
    }
    Words[Start] = Words.size() - Start;
  }

  /// Constants are unique. Of expressions and unusual ones the comparison
  /// knows too little; it is not asked about identical ones.
  void addConstant(const Constant *C) {
    if (isa<ConstantData>(C) || isa<GlobalValue>(C))
      return;
    if (!isa<ConstantAggregate>(C))
      return add(C);
    for (const Use &Operand : C->operands())
      addConstant(cast<Constant>(Operand));
  }

  void addInstruction(const Instruction &I) {
    SmallVector<std::pair<unsigned, MDNode *>, 4> Nodes;
    I.getAllMetadataOtherThanDebugLoc(Nodes);
    addMetadata(I.getContext(), Nodes);
    for (const Use &Operand : I.operands()) {
      if (const auto *C = dyn_cast<Constant>(Operand))
        addConstant(C);
      else if (const auto *Node = dyn_cast<MetadataAsValue>(Operand))
        add(Node->getMetadata());
    }
    if (const auto *GEP = dyn_cast<GetElementPtrInst>(&I)) {
      add(GEP->getRawSubclassOptionalData()); // llvm-project#219664
      if (GEP->getType()->isVectorTy())
        add(GEP->getType());
    } else if (const auto *Call = dyn_cast<CallBase>(&I)) {
      add(Call->getFunctionType()->isVarArg());
      add(Call->getFunctionType()->getNumParams());
    } else if (const auto *Pad = dyn_cast<LandingPadInst>(&I)) {
      add(Pad->isCleanup());
    } else if (const auto *Alloca = dyn_cast<AllocaInst>(&I)) {
      add(Alloca->isUsedWithInAlloca() + 2 * Alloca->isSwiftError());
    } else if (const auto *Exchange = dyn_cast<AtomicCmpXchgInst>(&I)) {
      add(Exchange->getAlign().value());
    } else if (const auto *Update = dyn_cast<AtomicRMWInst>(&I)) {
      add(Update->getAlign().value());
    }
  }

  void addBlocks(const Function &F);

  const bool HasAliasMetadata;
  std::vector<uint64_t> Words;
};
} // namespace

/// Returns the blocks of \p F in the order in which LLVM compares them: of
/// equal functions, blocks at the same place are equal.
static std::vector<const BasicBlock *> comparedBlocks(const Function &F) {
  std::vector<const BasicBlock *> Result, Worklist{&F.getEntryBlock()};
  SmallPtrSet<const BasicBlock *, 32> Seen{Worklist.front()};
  while (!Worklist.empty()) {
    const BasicBlock *Block = Worklist.back();
    Worklist.pop_back();
    Result.push_back(Block);
    for (const BasicBlock *Next : successors(Block))
      if (Seen.insert(Next).second)
        Worklist.push_back(Next);
  }
  return Result;
}

void Description::addBlocks(const Function &F) {
  for (const BasicBlock *Block : comparedBlocks(F))
    for (const Instruction &I : Block->instructionsWithoutDebug())
      addInstruction(I);
}

/// Gives each of \p Functions the number of its description as its class.
static void setClasses(ArrayRef<Function *> Functions, bool IsProgram,
                       bool HasAliasMetadata) {
  StringMap<size_t> Classes;
  for (Function *F : Functions) {
    const Description D(*F, IsProgram, HasAliasMetadata);
    const size_t Class =
        Classes.try_emplace(D.bytes(), Classes.size()).first->second;
    F->addFnAttr(ClassAttribute, utostr(Class));
  }
}

/// Gives each access of \p Functions, which are equal, the alias metadata that
/// is true of all. Returns whether any changed.
static bool weakenAliasMetadata(ArrayRef<Function *> Functions) {
  std::vector<std::vector<Instruction *>> Bodies;
  for (Function *F : Functions) {
    Bodies.emplace_back();
    for (const BasicBlock *Block : comparedBlocks(*F))
      for (Instruction &I :
           const_cast<BasicBlock *>(Block)->instructionsWithoutDebug())
        Bodies.back().push_back(&I);
  }
  bool Changed = false;
  for (size_t I = 0; I < Bodies.front().size(); ++I) {
    const AAMDNodes First = Bodies.front()[I]->getAAMetadata();
    AAMDNodes Generic = First;
    bool Differ = false;
    for (const auto &Body : drop_begin(Bodies))
      if (const AAMDNodes Other = Body[I]->getAAMetadata(); Other != First) {
        Differ = true;
        Generic = Generic.merge(Other);
      }
    if (!Differ)
      continue;
    Changed = true;
    for (const auto &Body : Bodies)
      Body[I]->setAAMetadata(Generic);
  }
  return Changed;
}

/// Weakens the alias metadata of those \p Functions that are equal but for it.
/// They have their classes. Returns whether any changed.
static bool weakenEqualFunctions(ArrayRef<Function *> Functions) {
  GlobalNumberState Numbers;
  auto IsLess = [&Numbers](const Function *A, const Function *B) {
    return FunctionComparator(A, B, &Numbers).compare() < 0;
  };
  std::map<Function *, std::vector<Function *>, decltype(IsLess)> Equal(IsLess);
  for (Function *F : Functions)
    Equal[F].push_back(F);
  bool Changed = false;
  for (const auto &[First, Group] : Equal)
    if (Group.size() > 1)
      Changed |= weakenAliasMetadata(Group);
  return Changed;
}

/// Returns whether \p F is one call, as MergeFunctions leaves functions whose
/// addresses are used.
static bool forwardsCall(const Function &F) {
  return F.size() == 1 &&
         all_of(F.front().instructionsWithoutDebug(),
                [](const Instruction &I) {
                  return isa<CallInst, CastInst, ExtractValueInst,
                             InsertValueInst, ReturnInst>(I);
                }) &&
         count_if(F.front(),
                  [](const Instruction &I) { return isa<CallInst>(I); }) == 1;
}

/// Returns whether nothing is saved where \p F becomes a call of an equal
/// function: it stays, and is one call now. Such functions would be made calls
/// of each other, one more in each round.
static bool staysOneCall(const Function &F) {
  return forwardsCall(F) && (!F.isDiscardableIfUnused() || F.hasAddressTaken());
}

/// Returns the functions of \p M that have another one of their structure, and
/// gives those of them that must stay apart classes of their own.
static std::vector<Function *> findCandidates(Module &M, LinkStage Stage) {
  using Hash = decltype(StructuralHash(std::declval<const Function &>()));
  std::map<Hash, std::vector<Function *>> ByHash;
  for (Function &F : M)
    if (!F.isDeclaration() && !F.hasAvailableExternallyLinkage())
      ByHash[StructuralHash(F)].push_back(&F);
  std::vector<Function *> Result;
  size_t Apart = 0;
  for (const auto &[Hash, Functions] : ByHash)
    for (Function *F : Functions)
      if (Functions.size() == 1)
        ; // MergeFunctions does not look at it.
      else if (staysOneCall(*F) || mustStayApart(*F, Stage))
        F->addFnAttr(ClassAttribute, "apart" + utostr(Apart++));
      else
        Result.push_back(F);
  return Result;
}

/// Returns a number that is smaller after functions of \p M were merged.
static size_t countFunctions(const Module &M) {
  size_t Result = 0;
  for (const Function &F : M)
    if (!F.isDeclaration())
      Result += forwardsCall(F) ? 1 : 2;
  return Result;
}

void mlgo::foldEqualFunctions(Module &M, ModuleAnalysisManager &MAM,
                              bool IsProgram, LinkStage Stage) {
  // Callers become equal when their callees are one function.
  for (bool Changed = true; Changed;) {
    const size_t Functions = countFunctions(M);
    const std::vector<Function *> Candidates = findCandidates(M, Stage);
    setClasses(Candidates, IsProgram, /*HasAliasMetadata=*/false);
    Changed = weakenEqualFunctions(Candidates);
    setClasses(Candidates, IsProgram, /*HasAliasMetadata=*/true);
    MergeFunctionsPass().run(M, MAM);
    for (Function &F : M) {
      F.removeFnAttr(ClassAttribute);
      if (forwardsCall(F)) // The call has the attributes of its callee.
        for (Instruction &I : F.front())
          if (auto *Call = dyn_cast<CallInst>(&I))
            Call->removeFnAttr(ClassAttribute);
    }
    Changed |= countFunctions(M) < Functions;
  }
}
