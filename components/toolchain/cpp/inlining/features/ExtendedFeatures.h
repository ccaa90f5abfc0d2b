//===- ExtendedFeatures.h - Inlining features beyond LLVM's -----*- C++ -*-===//
//
// Features of an inlining decision that LLVM's MLInlineAdvisor lacks. They help
// to predict whether the callee's definition can be dropped, and the size of
// the functions' unwind tables. Policies trained with `--features extended` use
// them; those trained with `--features llvm`, which upstream LLVM can run, do
// not.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_EXTENDED_FEATURES_H
#define MLGO_EXTENDED_FEATURES_H

#include "inlining/features/FunctionProperties.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/IR/InstrTypes.h"

#include <cstdint>
#include <vector>

namespace mlgo {

// clang-format off
#define MLGO_EXTENDED_FEATURES(M)                                              \
  M(callee_linkage, "0 external, 1 in another object, 2 discardable, 3 local") \
  M(caller_linkage, "the same of the caller")                                  \
  M(callee_instructions, "instructions of the callee")                         \
  M(caller_instructions, "instructions of the caller")                         \
  M(callee_direct_calls, "calls of defined functions in the callee")           \
  M(caller_direct_calls, "calls of defined functions in the caller")           \
  M(callee_other_calls, "indirect and external calls in the callee")           \
  M(caller_other_calls, "indirect and external calls in the caller")           \
  M(callee_invokes, "calls with a landing pad in the callee")                  \
  M(caller_invokes, "calls with a landing pad in the caller")                  \
  M(callee_memory_accesses, "loads and stores in the callee")                  \
  M(callee_allocas, "stack objects of the callee")                             \
  M(callee_calls_left, "calls of the callee among its first 64 uses")          \
  M(callee_other_uses, "others of these uses")                                 \
  M(callee_calls_in_caller, "of these calls, those in the caller")             \
  M(callee_calls_refused, "decisions so far not to inline the callee")         \
  M(callee_calls_inlined, "decisions so far to inline the callee")             \
  M(caller_calls_left, "calls of the caller among its first 64 uses")          \
  M(caller_other_uses, "others of these uses")                                 \
  M(callee_has_personality, "whether the callee handles exceptions")           \
  M(caller_has_personality, "whether the caller handles exceptions")           \
  M(callee_nounwind, "whether the callee never throws")                        \
  M(callsite_is_invoke, "whether the call has a landing pad")                  \
  M(callsite_is_cold, "whether the block is a landing pad or never returns")   \
  M(callsite_arguments, "arguments of the call")                               \
  M(callsite_result_used, "whether the result of the call is used")            \
  M(callee_inline_hint, "whether the source says inline")
// clang-format on

enum class ExtendedFeature : size_t {
#define MLGO_ENUMERATOR(NAME, DESCRIPTION) NAME,
  MLGO_EXTENDED_FEATURES(MLGO_ENUMERATOR)
#undef MLGO_ENUMERATOR
      Count
};

/// Number of LLVM's features, which precede the extended ones.
inline constexpr size_t NumLLVMFeatures = 0
#define MLGO_COUNT(TYPE, SHAPE, NAME, DESCRIPTION) +1
    INLINE_COST_FEATURE_ITERATOR(MLGO_COUNT)
        INLINE_FEATURE_ITERATOR(MLGO_COUNT);
#undef MLGO_COUNT

/// Returns the index of \p Feature in `inliningFeatures`.
inline constexpr size_t indexOf(ExtendedFeature Feature) {
  return NumLLVMFeatures + static_cast<size_t>(Feature);
}

/// Number of features that are numbers; the indices of the embeddings follow.
inline constexpr size_t NumScalarFeatures = indexOf(ExtendedFeature::Count);
inline constexpr size_t CalleeEmbedding = NumScalarFeatures;
inline constexpr size_t CallerEmbedding = NumScalarFeatures + 1;

/// Returns LLVM's features and the extended ones, each int64 [1], and, where a
/// vocabulary was built in, LLVM's two embeddings of functions, float32
/// [EmbeddingDimension], which are last.
const std::vector<llvm::TensorSpec> &inliningFeatures();

/// Counts of the decisions so far about the calls of each function. Functions
/// are identified by name: a pass that replaces a function gives the new one
/// its name, while the address may be reused for any other function.
class DecisionHistory {
public:
  struct Counts {
    int64_t Refused = 0, Inlined = 0;
  };
  void add(const llvm::Function &Callee, bool Inlined) {
    Counts &C = ByCallee[Callee.getName()];
    ++(Inlined ? C.Inlined : C.Refused);
  }
  void forget(const llvm::Function &Callee) {
    ByCallee.erase(Callee.getName());
  }
  Counts of(const llvm::Function &Callee) const {
    return ByCallee.lookup(Callee.getName());
  }

private:
  llvm::StringMap<Counts> ByCallee;
};

/// Computes the extended features of `Call` and passes each to `Set`.
void setExtendedFeatures(
    const llvm::CallBase &Call, const FunctionProperties &Caller,
    const FunctionProperties &Callee, const DecisionHistory &History,
    llvm::function_ref<void(ExtendedFeature, int64_t)> Set);

} // namespace mlgo

#endif
