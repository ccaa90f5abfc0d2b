//===- InlinePlan.h - Inlining decisions found by a search ------*- C++ -*-===//
//
// A plan holds the inlining decisions of a program's modules that a search by
// measured flips found (components/tune). With -mllvm -mlgo-inline-plan=FILE
// the release clang takes them instead of its policy's.
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_INLINE_PLAN_H
#define MLGO_INLINE_PLAN_H

#include "decisions/ForcedDecisions.h"
#include "inlining/InlineFeatureAdvisor.h"

namespace mlgo {

/// Returns whether -mlgo-inline-plan is given.
bool isPlanGiven() __attribute__((weak));

/// Returns the plan's choices among the variants of -mlgo-keep-smaller, as
/// -mlgo-choices writes them. Emits an error if the plan cannot be read.
std::string loadPlannedChoices(llvm::Module &M) __attribute__((weak));

/// Returns the plan's decisions for \p M; none without a plan, or if the plan
/// has choices and no decisions. Without an entry for this module they are
/// empty, and after an error, if the plan cannot be read.
///
/// File format (components/core/compiler/inline_plan.py writes it): a line of
/// JSON {"version": 1, "problem", "llvm_major", "modules": N, "crc"}; an index,
/// uint64[N][5] of the MD5 (low word) of the source file's name and of its last
/// component, and of offset, size and CRC-32 of the module's decisions ("crc"
/// is the CRC-32 of the index); the decisions, in the format of
/// ForcedDecisions.h. Numbers are little-endian. If the header ends with
/// "choices", a CRC-32, what follows the decisions are choices.
///
/// A module is found by the path of its source file. If no entry has this path,
/// because the program is built elsewhere, an entry with the same file name is
/// used if the module defines more than half of its callers. Of several
/// entries, the one with the most such callers is used. All programs have one
/// name, and what counts are the calls of which the program defines both
/// functions.
std::optional<ForcedDecisions> loadInlinePlan(llvm::Module &M);

/// Decides by a plan, and for calls that are not in the plan by the policy or,
/// if \p Runner evaluates none, by LLVM's heuristic. A
/// remark (-Rpass-analysis=inline-plan) reports how many of the plan's
/// decisions were found.
class PlannedInlineAdvisor : public InlineFeatureAdvisor {
public:
  PlannedInlineAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                       std::unique_ptr<llvm::MLModelRunner> Runner,
                       std::function<bool(llvm::CallBase &)> GetDefaultAdvice,
                       ForcedDecisions Plan);
  ~PlannedInlineAdvisor() override;

protected:
  std::unique_ptr<llvm::InlineAdvice>
  decide(llvm::CallBase &Call, llvm::OptimizationRemarkEmitter &ORE) override;

private:
  ForcedDecisions Plan;
};

/// Returns the plan of a program that goes through the inliner for the second
/// time; empty if it has none.
ForcedDecisions takePlanOfFirstRound();

} // namespace mlgo

#endif
