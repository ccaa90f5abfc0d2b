#include "support/ReleaseDefaults.h"

#include "inlining/InlineRegistration.h"
#include "program/KeepSmaller.h"

bool mlgo::hasReleaseDefaults() { return true; }

#ifdef MLGO_POLICY_INLINING
void mlgo::registerVariantAdvisor(llvm::PassBuilder &Builder) {
  registerInlineAdvisor(Builder);
}
#endif
