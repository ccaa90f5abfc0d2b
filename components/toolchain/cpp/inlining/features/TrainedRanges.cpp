#include "inlining/features/TrainedRanges.h"

#include "inlining/features/ExtendedFeatures.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;
using namespace mlgo;

static cl::opt<cl::boolOrDefault> UseRanges(
    "mlgo-ranges", cl::Hidden,
    cl::desc("Take the heuristic's inlining decisions where a feature is "
             "outside of the range that the policy was trained in (default: on "
             "with an embedded policy and no plan, else off)"));

bool mlgo::useTrainedRanges(bool Default) {
  return UseRanges == cl::BOU_UNSET ? Default : UseRanges == cl::BOU_TRUE;
}

void TrainedRanges::add(StringRef Feature, int64_t Smallest, int64_t Largest) {
  for (size_t I = 0; I < NumScalarFeatures; ++I)
    if (inliningFeatures()[I].name() == Feature)
      Ranges.push_back({I, Smallest, Largest});
}

Expected<TrainedRanges> TrainedRanges::parse(const json::Object &Description) {
  TrainedRanges Result;
  if (const json::Object *Ranges = Description.getObject("trained_ranges"))
    for (const auto &[Feature, Value] : *Ranges) {
      const json::Array *Limits = Value.getAsArray();
      auto Limit = [&](size_t I) {
        return Limits && Limits->size() == 2 ? (*Limits)[I].getAsInteger()
                                             : std::nullopt;
      };
      if (!Limit(0) || !Limit(1))
        return createStringError(inconvertibleErrorCode(),
                                 "the trained range of " + Feature.str() +
                                     " is not a list of two integers");
      Result.add(Feature, *Limit(0), *Limit(1));
    }
  if (Description.getBoolean("unwind_tables").value_or(false))
    Result.requireUnwindTables();
  Result.requireSizeLevel(); // inlining policies are trained at -Oz and -Os
  return Result;
}

StringRef TrainedRanges::outside(const CallBase &Call,
                                 MLModelRunner &Features) const {
  if (NeedSizeLevel && !Call.getCaller()->hasOptSize())
    return "optimization level";
  for (const Range &R : Ranges) {
    const int64_t Value = *Features.getTensor<int64_t>(R.Feature);
    if (Value < R.Smallest || Value > R.Largest)
      return inliningFeatures()[R.Feature].name();
  }
  if (NeedUnwindTables && !Call.getCaller()->needsUnwindTableEntry() &&
      !Call.getCalledFunction()->needsUnwindTableEntry())
    return "unwind tables";
  return "";
}
