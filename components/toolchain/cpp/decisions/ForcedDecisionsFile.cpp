// Loads forced decisions. Only part of the training clang: the release clang
// takes decisions from a plan.
#include "decisions/ForcedDecisions.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"

using namespace llvm;
using namespace mlgo;

static cl::opt<std::string> ForcedDecisionsFile(
    "mlgo-forced-decisions", cl::Hidden,
    cl::desc("Take the decisions in this file whatever the heuristic or the "
             "policy says; sample I of -mlgo-samples reads FILE.I"));

std::unique_ptr<ForcedDecisions>
mlgo::loadForcedDecisions(const std::optional<SampleFiles> &Sample,
                          StringRef Problem) {
  if (ForcedDecisionsFile.empty())
    return nullptr;
  std::string Path = ForcedDecisionsFile;
  if (Sample)
    Path += "." + std::to_string(Sample->Index);
  auto Rows = readDecisionRows(Path, Problem);
  if (!Rows)
    report_fatal_error(Rows.takeError(), /*gen_crash_diag=*/false);
  auto Forced = ForcedDecisions::create(*Rows, Path);
  if (!Forced)
    report_fatal_error(Forced.takeError(), /*gen_crash_diag=*/false);
  return std::make_unique<ForcedDecisions>(std::move(*Forced));
}
