#include "inlining/features/CallsiteCosts.h"

#include "support/LLVMOptions.h"
#include "support/LLVMVersion.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;
using namespace mlgo;

AnalysisKey CallsiteCostsAnalysis::Key;

/// Half of InlineConstants::TotalAllocaSizeRecursiveCaller.
static constexpr uint64_t LargeAllocaBytes = 512;

CallsiteCostsAnalysis::Result::Result(const Function &Callee) {
  Triple Target(Callee.getParent()->getTargetTriple());
  SeesMore = Target.isAMDGPU() || Target.isNVPTX();
  // The features omit what only a target, an option or an attribute adds to the
  // cost of an access or a call. They also lose the number of loads that had
  // been found redundant when a store ended the search.
  FeaturesTellCost = Target.isX86() && !isGiven("inline-memaccess-cost");
  const DataLayout &Layout = Callee.getDataLayout();
  uint64_t AllocaBytes = 0;
  SmallPtrSet<const Value *, 16> Loaded;
  for (const Instruction &I : instructions(Callee)) {
    if (const auto *Load = dyn_cast<LoadInst>(&I)) {
      FeaturesTellCost &= Loaded.insert(Load->getPointerOperand()).second;
    } else if (const auto *Alloca = dyn_cast<AllocaInst>(&I)) {
      std::optional<TypeSize> Size = Alloca->getAllocationSize(Layout);
      HasLargeAllocas |= !Size || Alloca->isArrayAllocation();
      AllocaBytes += Size ? Size->getKnownMinValue() : 0;
    } else if (const auto *Call = dyn_cast<CallBase>(&I)) {
      FeaturesTellCost &= !Call->getFnAttr("call-inline-cost").isValid();
    }
  }
  HasLargeAllocas |= AllocaBytes > LargeAllocaBytes;
}

CallsiteCosts &CallsiteCostsAnalysis::Result::of(CallBase &Call) {
  if (!SeesMore)
    if (std::optional<CallsiteKey> Key = CallsiteKey::of(Call, HasLargeAllocas))
      return Costs[std::move(*Key)];
  Uncached = std::make_unique<CallsiteCosts>();
  return *Uncached;
}

static bool callsItself(const Function &F) {
  return any_of(F.users(), [&](const User *U) {
    const auto *Call = dyn_cast<CallBase>(U);
    return Call && Call->getFunction() == &F;
  });
}

/// Returns whether the call is followed by `unreachable`, that is, leads to an
/// abort. For such a call LLVM grants neither growth nor the bonus of a last
/// call.
static bool leadsToUnreachable(const CallBase &Call) {
  const auto *Invoke = dyn_cast<InvokeInst>(&Call);
  return isa<UnreachableInst>(
      (Invoke ? Invoke->getNormalDest() : Call.getParent())->getTerminator());
}

std::optional<int> CallsiteCostsAnalysis::Result::estimate(
    const CallBase &Call, const InlineCostFeatures &Features,
    const TargetTransformInfo &Target) const {
  using Index = InlineCostFeatureIndex;
  auto Get = [&](Index I) { return Features[static_cast<size_t>(I)]; };
  if (!FeaturesTellCost || Get(Index::nested_inlines) ||
      Call.getFnAttr("function-inline-cost").isValid() ||
      Call.getFnAttr(InlineConstants::FunctionInlineCostMultiplierAttributeName)
          .isValid())
    return std::nullopt;
  int Cost = 0;
  for (Index Part :
       {Index::callsite_cost, Index::sroa_losses, Index::call_penalty,
        Index::call_argument_setup, Index::load_relative_intrinsic,
        Index::lowered_call_arg_setup, Index::jump_table_penalty,
        Index::case_cluster_penalty, Index::switch_default_dest_penalty,
        Index::switch_penalty, Index::unsimplified_common_instructions,
        Index::num_loops})
    Cost += Get(Part);
  if (Get(Index::cold_cc_penalty))
    Cost += InlineConstants::ColdccPenalty;
  if (Get(Index::last_call_to_static_bonus) && !leadsToUnreachable(Call))
    Cost -= lastCallToStaticBonus(Target);
  return Cost;
}

namespace {
/// A pointer as base + constant number of bytes. Like the cost analyses, it
/// looks through constant inbounds GEPs and aliases. Base is null if there is a
/// GEP that they do not look through.
struct BaseAndOffset {
  const Value *Base;
  int64_t Offset;
};
} // namespace

static BaseAndOffset stripConstantOffsets(const Value *Pointer,
                                          const DataLayout &Layout) {
  APInt Offset(Layout.getIndexTypeSizeInBits(Pointer->getType()), 0);
  // In dead code a GEP may be its own base.
  SmallPtrSet<const Value *, 4> Seen;
  while (Seen.insert(Pointer).second) {
    if (const auto *GEP = dyn_cast<GEPOperator>(Pointer)) {
      if (!GEP->isInBounds() || !GEP->accumulateConstantOffset(Layout, Offset))
        return {nullptr, 0};
      Pointer = GEP->getPointerOperand();
    } else if (const auto *Alias = dyn_cast<GlobalAlias>(Pointer);
               Alias && !Alias->isInterposable()) {
      Pointer = Alias->getAliasee();
    }
  }
  return {Pointer, Offset.getSExtValue()};
}

/// Returns whether \p C is data, whose content the analyses do not read. A
/// function is not: the callee may call it, and then they look at its body.
static bool isPlainData(const Constant &C) {
  if (const auto *Expression = dyn_cast<ConstantExpr>(&C))
    return isa<GEPOperator>(Expression) &&
           isPlainData(*cast<Constant>(Expression->getOperand(0)));
  return isa<ConstantData>(C) || isa<GlobalVariable>(C);
}

std::optional<CallsiteKey> CallsiteKey::of(CallBase &Call,
                                           bool CalleeHasLargeAllocas) {
  const Function &Caller = *Call.getCaller();
  const Function &Callee = *Call.getCalledFunction();
  const DataLayout &Layout = Callee.getDataLayout();
  CallsiteKey Key;
  Key.CallerAttributes = Caller.getAttributes().getFnAttrs();
  std::vector<uint64_t> &Words = Key.Words;
  Words.reserve(3 + 2 * Call.arg_size());
  Words.push_back(
      reinterpret_cast<uintptr_t>(Call.getAttributes().getRawPointer()));
  bool IsLastCall = Callee.hasLocalLinkage() && Callee.hasOneLiveUse();
  bool InRecursion = CalleeHasLargeAllocas && callsItself(Caller);
  Words.push_back(Call.arg_size() << 3 | leadsToUnreachable(Call) << 2 |
                  IsLastCall << 1 | InRecursion);

  enum Kind : uint64_t { Opaque, Data, Pointer };
  SmallVector<const Value *, 8> Bases;
  for (unsigned I = 0, E = Callee.arg_size(); I != E; ++I) {
    const Value *Argument = Call.getArgOperand(I);
    Kind K = Opaque;
    if (const auto *C = dyn_cast<Constant>(Argument)) {
      if (!isPlainData(*C))
        return std::nullopt;
      K = Data;
    }
    BaseAndOffset Stripped{nullptr, 0};
    if (Argument->getType()->isPointerTy())
      Stripped = stripConstantOffsets(Argument, Layout);
    if (!Stripped.Base) {
      Words.push_back(K);
    } else {
      // The analyses compare bases with each other, and an alloca of the caller
      // may become registers. Otherwise they do not distinguish bases.
      auto BaseIndex =
          static_cast<uint64_t>(find(Bases, Stripped.Base) - Bases.begin());
      if (BaseIndex == Bases.size())
        Bases.push_back(Stripped.Base);
      Words.push_back(BaseIndex << 8 | isa<AllocaInst>(Stripped.Base) << 4 |
                      Pointer << 2 | K);
      Words.push_back(static_cast<uint64_t>(Stripped.Offset));
    }
    if (K == Data)
      Words.push_back(reinterpret_cast<uintptr_t>(Argument));
  }
  return Key;
}

size_t CallsiteKey::Hash::operator()(const CallsiteKey &Key) const {
  return hash_combine_range(Key.Words.begin(), Key.Words.end());
}
