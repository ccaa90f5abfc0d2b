#include "ReleaseDefaults.h"

#include "InlineRegistration.h"
#include "KeepSmaller.h"

bool mlgo::hasReleaseDefaults() { return true; }

#ifdef MLGO_POLICY_INLINING
void mlgo::registerVariantAdvisor(llvm::PassBuilder &Builder) {
  registerInlineAdvisor(Builder);
}
#endif
