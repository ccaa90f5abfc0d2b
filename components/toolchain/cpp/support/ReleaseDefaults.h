// Which defaults a program has: those of the release clang and its ld.lld, or
// those of the training and the plain clang, whose code is LLVM's.
#ifndef MLGO_RELEASE_DEFAULTS_H
#define MLGO_RELEASE_DEFAULTS_H

namespace mlgo {

/// Returns whether this is the release clang or its ld.lld, which link
/// ReleaseDefaults.cpp.
bool hasReleaseDefaults();

} // namespace mlgo

#endif
