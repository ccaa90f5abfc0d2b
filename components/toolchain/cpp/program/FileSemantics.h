// What a file's own compile decides and a link of all files as one module would
// not: which of its sections stay, which names its assembly means, and through
// which of its functions exceptions pass.
#ifndef MLGO_FILE_SEMANTICS_H
#define MLGO_FILE_SEMANTICS_H

#include <string>
#include <vector>

namespace llvm {
class Module;
class PassBuilder;
} // namespace llvm

namespace mlgo {

/// The attribute of a function that stays only because the source names its
/// section.
inline constexpr char InNamedSection[] = "mlgo-in-named-section";

/// Options of a compile that LLVM keeps in its TargetMachine or in what the
/// front end emits, and bitcode has in another form or not at all.
struct FileOptions {
  /// The language has no exceptions: the front end calls every function
  /// nounwind, but one that calls back may be unwound through.
  bool HasNoExceptions = false;
  /// -fwhole-program-vtables and -fsanitize=cfi: full LTO needs all vtables and
  /// functions of these files in one module.
  bool ChecksTypes = false;
  /// -fno-zero-initialized-in-bss.
  bool ZerosAreData = false;
  /// Where the assembler looks for files after the working directory.
  std::vector<std::string> IncludePaths;
};

/// Adds a pass to the compile of a file for LTO. It records in the module
/// what its object would have kept to itself:
///
/// - Definitions in sections of their own names stay, because linker scripts
///   and tools read them, and so does what inline assembly names. The values of
///   such constants are those of the linked file, which a tool may change. Of
///   functions the link may know that nothing reads their sections
///   (Resolution.h, releaseNamedSections).
/// - Functions that only code generation calls stay (-mfunction-return, -pg).
/// - A module whose assembly names a symbol that is local in its file, or
///   leaves the assembler in another state, becomes one of ThinLTO, which the
///   same link compiles by itself (isSeparate), unless it checks types. The
///   files that it includes are those of the compile: the link runs in another
///   directory.
/// - A function is nounwind in a module that can catch only if it is inferred.
/// - Zeros that are not to be in .bss have a section.
void registerFileSemantics(llvm::PassBuilder &Builder,
                           const FileOptions &Options);

/// Returns whether \p M is a module of ThinLTO in the link. Its backend does
/// not know the resolution, so its passes must run in the compile of the file.
bool isSeparate(const llvm::Module &M);

/// Adds a pass to the pipelines that compile a linked module. Functions of a
/// language without exceptions are nounwind again if nothing in the module
/// catches: then it changes no result, and makes a program of C as small as if
/// they had always been.
void registerLinkedSemantics(llvm::PassBuilder &Builder);

} // namespace mlgo

#endif
