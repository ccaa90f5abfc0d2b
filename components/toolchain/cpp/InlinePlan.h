//===- InlinePlan.h - Decisions that were searched for -----------*- C++ -*-===//
//
// A plan holds the inlining decisions of a program's modules, as a search by
// measured flips found them (components/tune). The release clang takes them in
// place of its policy's: -mllvm -mlgo-inline-plan=FILE.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_INLINE_PLAN_H
#define MLGO_INLINE_PLAN_H

#include "ForcedDecisions.h"
#include "InlineFeatureAdvisor.h"

namespace mlgo {

/// Whether -mlgo-inline-plan names a plan.
bool hasInlinePlan();

/// The plan's decisions about `M`; none if it has nothing on this module, or if
/// it cannot be read, which is an error of the compile.
///
/// File format (components/compiler/inline_plan.py writes it): a line of JSON
/// {"version": 1, "problem", "llvm_major", "modules": N, "crc"}; an index,
/// uint64[N][5] of the MD5 (low word) of the source file's name and of its last
/// component, and of offset, size and CRC-32 of the module's decisions, of which
/// "crc" is the CRC-32; the decisions, as ForcedDecisions.h has them. Numbers
/// are little-endian.
///
/// A module is found by the name of its source file. Where that is another one,
/// because the program is built elsewhere, a file of the same name is taken that
/// defines most of the same functions.
ForcedDecisions loadInlinePlan(llvm::Module &M);

} // namespace mlgo

/// Decides by a plan, and about calls that are not in it by the policy. A remark
/// (-Rpass-analysis=inline-plan) tells how many were found.
class PlannedInlineAdvisor : public InlineFeatureAdvisor {
public:
  PlannedInlineAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                       std::unique_ptr<llvm::MLModelRunner> Runner,
                       std::function<bool(llvm::CallBase &)> GetDefaultAdvice,
                       mlgo::ForcedDecisions Plan);
  ~PlannedInlineAdvisor() override;

protected:
  std::unique_ptr<llvm::InlineAdvice>
  decide(llvm::CallBase &Call, llvm::OptimizationRemarkEmitter &ORE) override;

private:
  mlgo::ForcedDecisions Plan;
};

#endif
