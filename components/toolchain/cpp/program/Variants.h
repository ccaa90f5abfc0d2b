//===- Variants.h - How a variant of a compile differs ----------*- C++ -*-===//
//
// A variant is named by words that are joined by '+': "heuristic", "policy" or
// "plan", which decides about inlining, and what else differs from a compile
// without variants (variantWords in Variants.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef MLGO_VARIANTS_H
#define MLGO_VARIANTS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace mlgo {

struct Variant {
  std::string Name;
  bool Policy = false;
  bool Plan = false;           ///< -mlgo-inline-plan
  std::optional<bool> Outline; ///< Unset: as -mlgo-outline says.
  std::optional<bool> Fold;    ///< Unset: as -mlgo-fold says.
  bool Everywhere = false;     ///< -mlgo-outline-everywhere
  bool IPRA = false;           ///< -enable-ipra
  bool IROutliner = false;     ///< LLVM's pass, at the end of the optimizations
};

/// Returns the variant called \p Name. Fails if a word is unknown, if words
/// contradict each other, or if one is experimental, something that LLVM has
/// off in its own pipelines, and \p Experimental is not set.
llvm::Expected<Variant> parseVariant(llvm::StringRef Name, bool Experimental);

/// Returns the variants of a list, which are separated by ',' or by ':', as
/// clang splits -Wl at commas. Fails if it names none, or one twice.
llvm::Expected<std::vector<Variant>> parseVariants(llvm::StringRef List,
                                                   bool Experimental);

/// Makes the module that this process compiles \p V; without ModuleOptions, all
/// that it compiles from now on.
void applyVariant(Variant V);

/// Returns the variant that was applied, or null.
const Variant *appliedVariant() __attribute__((weak));

} // namespace mlgo

#endif
