#include "program/Variants.h"

#include "support/LLVMOptions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/InlineAdvisor.h"

using namespace llvm;
using namespace mlgo;

namespace {
struct Word {
  StringRef Text;
  int Group; ///< A variant has one word of a group at most.
  bool IsExperimental;
  void (*Set)(Variant &);
};
} // namespace

static ArrayRef<Word> variantWords() {
  enum { Inliner, Outliner, Folding, Registers, IR };
  static constexpr Word Words[] = {
      {"heuristic", Inliner, false, [](Variant &) {}},
      {"policy", Inliner, false, [](Variant &V) { V.Policy = true; }},
      {"plan", Inliner, false, [](Variant &V) { V.Plan = true; }},
      {"outline", Outliner, false, [](Variant &V) { V.Outline = true; }},
      {"no-outline", Outliner, false, [](Variant &V) { V.Outline = false; }},
      {"everywhere", Outliner, false,
       [](Variant &V) { V.Outline = V.Everywhere = true; }},
      {"fold", Folding, false, [](Variant &V) { V.Fold = true; }},
      {"no-fold", Folding, false, [](Variant &V) { V.Fold = false; }},
      {"ipra", Registers, true, [](Variant &V) { V.IPRA = true; }},
      {"ir-outliner", IR, true, [](Variant &V) { V.IROutliner = true; }}};
  return Words;
}

static Error invalid(const Twine &What) {
  return createStringError(inconvertibleErrorCode(), "-mlgo-variants: " + What);
}

Expected<Variant> mlgo::parseVariant(StringRef Name, bool Experimental) {
  Variant Result;
  Result.Name = Name.str();
  SmallVector<StringRef, 4> Texts;
  Name.split(Texts, '+');
  SmallDenseSet<int> Groups;
  for (StringRef Text : Texts) {
    const Word *W =
        find_if(variantWords(), [&](const Word &W) { return W.Text == Text; });
    if (W == variantWords().end())
      return invalid("there is no word '" + Text + "' for a variant; " +
                     "the words are " +
                     join(map_range(variantWords(),
                                    [](const Word &W) { return W.Text.str(); }),
                          ", "));
    const bool IsInliner = W->Group == variantWords().front().Group;
    if (IsInliner != Groups.empty())
      return invalid("'" + Name +
                     "' has to begin with heuristic, policy or plan, once");
    if (!Groups.insert(W->Group).second)
      return invalid("'" + Name + "' has two words where one can be, such as " +
                     Text);
    if (W->IsExperimental && !Experimental)
      return invalid("'" + Text +
                     "' is off in LLVM's own pipelines; run the program's "
                     "tests, and pass -mlgo-experimental, too");
    W->Set(Result);
  }
  return Result;
}

Expected<std::vector<Variant>> mlgo::parseVariants(StringRef List,
                                                   bool Experimental) {
  std::vector<Variant> Result;
  for (StringRef Rest = List, Name; !Rest.empty() || Result.empty();) {
    const size_t End = std::min(Rest.find_first_of(",:"), Rest.size());
    Name = Rest.take_front(End);
    Rest = Rest.drop_front(std::min(End + 1, Rest.size()));
    if (is_contained(map_range(Result, [](const Variant &V) { return V.Name; }),
                     Name))
      return invalid("'" + Name + "' is there twice");
    Expected<Variant> V = parseVariant(Name, Experimental);
    if (!V)
      return V.takeError();
    Result.push_back(std::move(*V));
  }
  return Result;
}

static std::optional<Variant> Applied;

void mlgo::applyVariant(Variant V) {
  ModuleOptions::set("enable-ml-inliner", V.Policy || V.Plan
                                              ? InliningAdvisorMode::Release
                                              : InliningAdvisorMode::Default);
  if (V.Outline)
    ModuleOptions::set("mlgo-outline", *V.Outline);
  if (V.Everywhere)
    ModuleOptions::set("mlgo-outline-everywhere", true);
  if (V.IPRA)
    ModuleOptions::setAsGiven("enable-ipra");
  Applied = std::move(V);
  ModuleOptions::onRestore([] { Applied.reset(); });
}

const Variant *mlgo::appliedVariant() { return Applied ? &*Applied : nullptr; }
