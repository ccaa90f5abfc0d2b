#include "inlining/features/ExtendedFeatures.h"

#include "llvm/IR/Instructions.h"

using namespace llvm;
using namespace mlgo;

/// Limit of the uses of a function that are counted: some functions have
/// thousands, and every decision about them would visit all.
static constexpr unsigned MaxUses = 64;

// A loop over names, because creating each feature in code of its own takes 29
// KB in a release clang. It relies on all of LLVM's features being single
// numbers.
#define MLGO_LLVM_NAME(TYPE, SHAPE, NAME, DESCRIPTION) #NAME,
#define MLGO_NAME(NAME, DESCRIPTION) #NAME,
static constexpr const char *NumberNames[] = {
    INLINE_COST_FEATURE_ITERATOR(MLGO_LLVM_NAME)
        INLINE_FEATURE_ITERATOR(MLGO_LLVM_NAME)
            MLGO_EXTENDED_FEATURES(MLGO_NAME)};
#undef MLGO_LLVM_NAME
#undef MLGO_NAME

#define MLGO_IS_NUMBER(TYPE, SHAPE, NAME, DESCRIPTION)                         \
  static_assert(std::is_same_v<TYPE, int64_t> &&                               \
                    std::initializer_list<int64_t>(SHAPE).size() == 1,         \
                "feature " #NAME);
INLINE_COST_FEATURE_ITERATOR(MLGO_IS_NUMBER)
INLINE_FEATURE_ITERATOR(MLGO_IS_NUMBER)
#undef MLGO_IS_NUMBER

const std::vector<TensorSpec> &mlgo::inliningFeatures() {
  static const std::vector<TensorSpec> Features = [] {
    std::vector<TensorSpec> Result;
    for (const char *Name : NumberNames)
      Result.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
    // LLVM's names, in its order.
    if (EmbeddingDimension)
      for (const char *Name : {"callee_embedding", "caller_embedding"})
        Result.push_back(
            TensorSpec::createSpec<float>(Name, {EmbeddingDimension}));
    return Result;
  }();
  return Features;
}

/// Returns the value of callee_linkage, which orders linkages by what happens
/// to the definition. A function that is available externally is not in the
/// object, so inlining its last call cannot remove it.
static int64_t linkageOf(const Function &F) {
  if (F.hasLocalLinkage())
    return 3;
  if (F.hasAvailableExternallyLinkage())
    return 1;
  return F.isDiscardableIfUnused() ? 2 : 0;
}

namespace {
struct UseCounts {
  int64_t Calls = 0, Other = 0, InCaller = 0;
};
} // namespace

static UseCounts countUses(const Function &F, const Function *Caller) {
  UseCounts Counts;
  unsigned Seen = 0;
  for (const Use &U : F.uses()) {
    if (++Seen > MaxUses)
      break;
    const auto *Call = dyn_cast<CallBase>(U.getUser());
    if (!Call || !Call->isCallee(&U)) {
      ++Counts.Other;
      continue;
    }
    ++Counts.Calls;
    Counts.InCaller += Call->getCaller() == Caller;
  }
  return Counts;
}

/// Returns whether control can leave the call's block only by an exception or a
/// trap, or entered it by an exception.
static bool isCold(const CallBase &Call) {
  const BasicBlock *Block = Call.getParent();
  return isa<UnreachableInst, ResumeInst>(Block->getTerminator()) ||
         Block->isLandingPad();
}

void mlgo::setExtendedFeatures(
    const CallBase &Call, const FunctionProperties &CallerProperties,
    const FunctionProperties &CalleeProperties, const DecisionHistory &History,
    function_ref<void(ExtendedFeature, int64_t)> Set) {
  using F = ExtendedFeature;
  const Function &Caller = *Call.getCaller();
  const Function &Callee = *Call.getCalledFunction();
  const UseCounts CalleeUses = countUses(Callee, &Caller);
  const UseCounts CallerUses = countUses(Caller, nullptr);
  const DecisionHistory::Counts Decided = History.of(Callee);
  Set(F::callee_linkage, linkageOf(Callee));
  Set(F::caller_linkage, linkageOf(Caller));
  Set(F::callee_instructions, CalleeProperties.Instructions);
  Set(F::caller_instructions, CallerProperties.Instructions);
  Set(F::callee_direct_calls, CalleeProperties.DirectCalls);
  Set(F::caller_direct_calls, CallerProperties.DirectCalls);
  Set(F::callee_other_calls, CalleeProperties.OtherCalls);
  Set(F::caller_other_calls, CallerProperties.OtherCalls);
  Set(F::callee_invokes, CalleeProperties.Invokes);
  Set(F::caller_invokes, CallerProperties.Invokes);
  Set(F::callee_memory_accesses, CalleeProperties.MemoryAccesses);
  Set(F::callee_allocas, CalleeProperties.Allocas);
  Set(F::callee_calls_left, CalleeUses.Calls);
  Set(F::callee_other_uses, CalleeUses.Other);
  Set(F::callee_calls_in_caller, CalleeUses.InCaller);
  Set(F::callee_calls_refused, Decided.Refused);
  Set(F::callee_calls_inlined, Decided.Inlined);
  Set(F::caller_calls_left, CallerUses.Calls);
  Set(F::caller_other_uses, CallerUses.Other);
  Set(F::callee_has_personality, Callee.hasPersonalityFn());
  Set(F::caller_has_personality, Caller.hasPersonalityFn());
  Set(F::callee_nounwind, Callee.doesNotThrow());
  Set(F::callsite_is_invoke, isa<InvokeInst>(Call));
  Set(F::callsite_is_cold, isCold(Call));
  Set(F::callsite_arguments, Call.arg_size());
  Set(F::callsite_result_used, !Call.use_empty());
  Set(F::callee_inline_hint, Callee.hasFnAttribute(Attribute::InlineHint));
}
