#include "inlining/InlineAdvisors.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace mlgo;

namespace {
/// Decides as LLVM's DefaultInlineAdvisor, which needs parameters that are not
/// known here.
class HeuristicAdvisor : public InlineAdvisor {
public:
  HeuristicAdvisor(Module &M, FunctionAnalysisManager &FAM,
                   DefaultAdvice GetDefaultAdvice)
      : InlineAdvisor(M, FAM), GetDefaultAdvice(std::move(GetDefaultAdvice)) {}

private:
  class Advice : public InlineAdvice {
  public:
    using InlineAdvice::InlineAdvice;

  private:
    void remark() {
      emitInlinedInto(ORE, DLoc, Block, *Callee, *Caller,
                      /*IsMandatory=*/false);
    }
    void recordInliningImpl() override { remark(); }
    void recordInliningWithCalleeDeletedImpl() override { remark(); }
  };

  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &Call) override {
    return std::make_unique<Advice>(this, Call, getCallerORE(Call),
                                    GetDefaultAdvice(Call));
  }

  const DefaultAdvice GetDefaultAdvice;
};
} // namespace

std::unique_ptr<InlineAdvisor>
mlgo::createHeuristicAdvisor(Module &M, ModuleAnalysisManager &MAM,
                             DefaultAdvice GetDefaultAdvice) {
  return std::make_unique<HeuristicAdvisor>(
      M, MAM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager(),
      std::move(GetDefaultAdvice));
}
