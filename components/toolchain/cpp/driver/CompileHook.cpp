#include "driver/CompileHook.h"

#include "inlining/InlinePlan.h"
#include "outlining/Outlining.h"
#include "program/FileSemantics.h"
#include "program/KeepSmaller.h"
#include "program/SizePipeline.h"
#include "support/ReleaseDefaults.h"
#include "clang/Basic/DiagnosticFrontend.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/Support/FileSystem.h"

using namespace clang;

/// Returns whether the profile that a compile uses is applied by clang itself,
/// not by passes, and -mlgo-whole-program says that the link has ours.
static bool leavesProfile(const CodeGenOptions &Options,
                          llvm::ArrayRef<std::string> LLVMArgs) {
  return Options.getProfileUse() == CodeGenOptions::ProfileClangInstr &&
         llvm::is_contained(LLVMArgs, "-mlgo-whole-program");
}

/// Returns whether the passes that run before the link do more than optimize:
/// instrument, or apply a profile or a language's rules. Passes that LLVM calls
/// required run anyway, so what is missing here is larger, not wrong.
static bool needsPasses(const CodeGenOptions &Options,
                        const LangOptions &Language,
                        llvm::ArrayRef<std::string> LLVMArgs) {
  return !Language.Sanitize.empty() || Language.ObjCAutoRefCount ||
         Language.MatrixTypes || Options.SanitizeCoverageType ||
         Options.DebugInfoForProfiling ||
         Options.getProfileInstr() != CodeGenOptions::ProfileNone ||
         (Options.getProfileUse() != CodeGenOptions::ProfileNone &&
          !leavesProfile(Options, LLVMArgs)) ||
         !Options.SampleProfileFile.empty() ||
         !Options.MemoryProfileOutput.empty() ||
         !Options.MemoryProfileUsePath.empty() ||
         Options.CoverageNotesFile.size() || Options.CoverageDataFile.size() ||
         Options.WholeProgramVTables || Options.PseudoProbeForProfiling ||
         !Options.PassPlugins.empty();
}

/// Returns whether all that a compile writes is an object, to a temporary file
/// that becomes the output at its end.
static bool writesOneObject(CompilerInstance &Clang) {
  const FrontendOptions &Frontend = Clang.getFrontendOpts();
  const CodeGenOptions &Options = Clang.getCodeGenOpts();
  return Frontend.UseTemporary && !Frontend.OutputFile.empty() &&
         Frontend.OutputFile != "-" && Options.SplitDwarfOutput.empty() &&
         Options.OptRecordFile.empty();
}

/// Returns whether the compile's input is a program's module, as corpora have
/// it: bitcode under the name that lld gives such a module.
static bool compilesProgram(const CompilerInvocation &Compile) {
  const FrontendOptions &Frontend = Compile.getFrontendOpts();
  return Compile.getCodeGenOpts().MainFileName == mlgo::LinkedModuleName &&
         !Frontend.Inputs.empty() &&
         Frontend.Inputs.front().getKind().getLanguage() == Language::LLVM_IR;
}

/// Returns whether the compile writes bitcode that full LTO links.
static bool isForFullLTO(const CodeGenOptions &Options) {
  return Options.PrepareForLTO && !Options.PrepareForThinLTO && !Options.FatLTO;
}

/// Returns what the pass that registerFileSemantics adds needs to know.
static mlgo::FileOptions fileOptions(const CompilerInvocation &Compile) {
  const auto &Inputs = Compile.getFrontendOpts().Inputs;
  mlgo::FileOptions Result;
  if (Inputs.empty() ||
      Inputs.front().getKind().getLanguage() == Language::LLVM_IR)
    return Result;
  Result.HasNoExceptions = !Compile.getLangOpts().Exceptions;
  Result.ChecksTypes =
      Compile.getCodeGenOpts().WholeProgramVTables ||
      Compile.getLangOpts().Sanitize.hasOneOf(SanitizerKind::CFI);
  Result.ZerosAreData = Compile.getCodeGenOpts().NoZeroInitializedInBSS;
  // As clang gives them to the assembler (BackendUtil.cpp).
  const HeaderSearchOptions &Headers = Compile.getHeaderSearchOpts();
  for (const auto &Entry : Headers.UserEntries)
    if (!Entry.IsFramework &&
        (Entry.Group == frontend::Quoted || Entry.Group == frontend::Angled ||
         Entry.Group == frontend::System))
      Result.IncludePaths.push_back(
          Entry.IgnoreSysRoot ? Entry.Path : Headers.Sysroot + Entry.Path);
  return Result;
}

/// Lets a module that \p Builder's pipeline gets run no passes but the required
/// ones. A module with coroutines runs all: only the pipelines before the link
/// split them. So does one with ifuncs: LLVM 19 writes a summary of unoptimized
/// references to them on which linkers crash. A module that the compile makes
/// one of ThinLTO runs those that follow.
static void skipOptionalPasses(llvm::PassBuilder &Builder) {
  auto Skips = std::make_shared<std::optional<bool>>();
  Builder.getPassInstrumentationCallbacks()
      ->registerShouldRunOptionalPassCallback(
          [Skips](llvm::StringRef, llvm::Any IR) {
            if (auto *M = llvm::any_cast<const llvm::Module *>(&IR)) {
              if (!*Skips)
                *Skips = (*M)->ifunc_empty() &&
                         llvm::none_of(**M, [](const llvm::Function &F) {
                           return F.isPresplitCoroutine();
                         });
              if (mlgo::isSeparate(**M))
                *Skips = false;
            }
            return !Skips->value_or(false);
          });
}

/// Returns the pipe from which LLVM's interactive mode would read decisions, if
/// LLVM's options name one that does not exist, or "". LLVM reports it and then
/// dies of a null pointer (llvm/lib/Analysis/InteractiveModelRunner.cpp).
static std::string missingChannel(llvm::ArrayRef<std::string> LLVMArgs) {
  for (llvm::StringRef Argument : LLVMArgs) {
    auto [Option, Base] = Argument.ltrim('-').split('=');
    if (Base.empty() || (Option != "inliner-interactive-channel-base" &&
                         Option != "regalloc-evict-interactive-channel-base"))
      continue;
    if (!llvm::sys::fs::exists(Base + ".in"))
      return (Base + ".in").str();
  }
  return "";
}

/// Returns an option of LLVM's that names a policy for development mode but has
/// no effect, because that mode is not asked for, or "".
static llvm::StringRef uselessPolicy(llvm::ArrayRef<std::string> LLVMArgs) {
  constexpr llvm::StringLiteral Options[][2] = {
      {"ml-inliner-model-under-training", "enable-ml-inliner=development"},
      {"regalloc-model", "regalloc-enable-advisor=development"}};
  for (const auto &[Policy, Mode] : Options) {
    bool HasPolicy = false, HasMode = false;
    for (llvm::StringRef Argument : LLVMArgs) {
      HasPolicy |= Argument.ltrim('-').split('=').first == Policy;
      HasMode |= Argument.ltrim('-') == Mode;
    }
    if (HasPolicy && !HasMode)
      return Mode;
  }
  return "";
}

/// Makes an object in place of bitcode if an option of the file is not in its
/// bitcode: the link would compile the file without it.
static void compileWhatBitcodeLacks(CompilerInvocation &Compile) {
  CodeGenOptions &Options = Compile.getCodeGenOpts();
  FrontendOptions &Frontend = Compile.getFrontendOpts();
  const llvm::Triple Target(Compile.getTargetOpts().Triple);
  if (!mlgo::hasReleaseDefaults() || !isForFullLTO(Options) ||
      Options.EmulatedTLS == Target.hasDefaultEmulatedTLS() ||
      Frontend.ProgramAction != frontend::EmitBC ||
      llvm::StringRef(Frontend.OutputFile).ends_with(".bc"))
    return;
  Frontend.ProgramAction = frontend::EmitObj;
  Options.PrepareForLTO = false;
}

/// Returns an option of LLVM's that has no effect because the passes which read
/// it run in the link, or "". Those of the policies are known there, and those
/// of code generation that clang's driver gives for its own.
static llvm::StringRef optionOfLink(llvm::ArrayRef<std::string> LLVMArgs) {
  for (llvm::StringRef Argument : LLVMArgs)
    if (llvm::StringRef Name = Argument.ltrim('-');
        !Name.starts_with("mlgo-") && !Name.starts_with("enable-ml-inliner") &&
        !Name.starts_with("regalloc-enable-advisor") &&
        !Name.starts_with("enable-machine-outliner") &&
        !Name.starts_with("global-isel"))
      return Argument;
  return "";
}

CompilerInstance *mlgo::prepareCompile(CompilerInstance *Clang) {
  compileWhatBitcodeLacks(Clang->getInvocation());
  CodeGenOptions &Options = Clang->getCodeGenOpts();
  const FrontendOptions &Frontend = Clang->getFrontendOpts();
  const bool MayLeavePasses =
      isForFullLTO(Options) && Options.OptimizeSize > 0 &&
      !needsPasses(Options, Clang->getLangOpts(), Frontend.LLVMArgs);
  // LLVM's options are parsed by the time that these run.
  Options.PassBuilderCallbacks.push_back([Clang, MayLeavePasses,
                                          IsProgram = compilesProgram(
                                              Clang->getInvocation())](
                                             llvm::PassBuilder &Builder) {
    if (IsProgram)
      compileAsProgram();
    registerSizePasses(Builder);
    registerOutlining(Builder);
    if (Clang->getCodeGenOpts().PrepareForLTO && compilesWholePrograms())
      registerFileSemantics(Builder, fileOptions(Clang->getInvocation()));
    else
      registerLinkedSemantics(Builder);
    if (!MayLeavePasses || !compilesWholePrograms())
      return;
    if (isPlanGiven && isPlanGiven())
      Clang->getDiagnostics().Report(diag::warn_fe_backend_plugin)
          << "-mlgo-inline-plan has no effect: the linker inlines, and takes "
             "a plan of programs from -Wl,-mllvm,-mlgo-inline-plan=FILE; to "
             "inline here, pass -mllvm -mlgo-whole-program=0";
    if (llvm::StringRef Option =
            optionOfLink(Clang->getFrontendOpts().LLVMArgs);
        !Option.empty())
      Clang->getDiagnostics().Report(diag::warn_fe_backend_plugin)
          << ("-mllvm " + Option +
              " has no effect on the passes of this file, which the linker "
              "runs; pass -Wl,-mllvm," +
              Option + " to the link, or compile the file with -fno-lto")
                 .str();
    registerInlineExportPass(Builder);
    skipOptionalPasses(Builder);
  });
  if (std::string Channel = missingChannel(Frontend.LLVMArgs); !Channel.empty())
    Clang->getDiagnostics().Report(diag::err_fe_backend_plugin)
        << "the interactive mode has no pipe " + Channel +
               ", which its host makes before the compile; `mlgo interactive` "
               "is one";
  if (llvm::StringRef Mode = uselessPolicy(Frontend.LLVMArgs); !Mode.empty())
    Clang->getDiagnostics().Report(diag::warn_fe_backend_plugin)
        << ("the policy has no effect without -mllvm -" + Mode).str();
  auto Variants = requestedVariants(Frontend.LLVMArgs, /*IsProgram=*/false);
  if (!Variants) {
    Clang->getDiagnostics().Report(diag::err_fe_backend_plugin)
        << toString(Variants.takeError());
  } else if (Frontend.ProgramAction == frontend::EmitObj &&
             !Variants->empty()) {
    if (!registerVariantAdvisor)
      warnOfNoVariants("this clang has no inlining policy");
    else if (Options.OptimizeSize == 0)
      warnOfNoVariants("the level is not -Oz or -Os");
    else if (!writesOneObject(*Clang))
      warnOfNoVariants("the compile writes more than an object, or not to a "
                       "file");
    else if (expectVariants(Frontend.OutputFile, std::move(*Variants)))
      Options.PassBuilderCallbacks.push_back(registerVariantAdvisor);
  }
  return Clang;
}

bool mlgo::finishCompile(bool Success) { return finishVariants(Success); }
