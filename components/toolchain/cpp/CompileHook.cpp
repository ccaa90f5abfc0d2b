#include "CompileHook.h"

#include "KeepSmaller.h"
#include "Outlining.h"
#include "SizePipeline.h"

using namespace clang;

/// Returns whether the passes that run before the link do more than optimize:
/// instrument, or apply a profile or a language's rules.
static bool needsPasses(const CodeGenOptions &Options,
                        const LangOptions &Language) {
  return !Language.Sanitize.empty() || Language.ObjCAutoRefCount ||
         Options.getProfileInstr() != CodeGenOptions::ProfileNone ||
         Options.getProfileUse() != CodeGenOptions::ProfileNone ||
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
  return Frontend.ProgramAction == frontend::EmitObj && Frontend.UseTemporary &&
         !Frontend.OutputFile.empty() && Frontend.OutputFile != "-" &&
         Options.SplitDwarfOutput.empty() && Options.OptRecordFile.empty();
}

CompilerInstance *mlgo::prepareCompile(CompilerInstance *Clang) {
  CodeGenOptions &Options = Clang->getCodeGenOpts();
  const std::vector<std::string> &Arguments = Clang->getFrontendOpts().LLVMArgs;
  const bool IsProgram = isProgram(Arguments);
  Options.PassBuilderCallbacks.push_back(
      [IsProgram](llvm::PassBuilder &Builder) {
        registerSizePasses(Builder, IsProgram);
        registerOutlining(Builder);
        if (IsProgram)
          setProgramOptions();
      });
  if (Options.PrepareForLTO && !Options.PrepareForThinLTO && !Options.FatLTO &&
      Options.OptimizeSize > 0 && leavesPassesToLinker(Arguments) &&
      !needsPasses(Options, Clang->getLangOpts()))
    Options.DisableLLVMPasses = true;
  const FrontendOptions &Frontend = Clang->getFrontendOpts();
  if (registerVariantAdvisor && asksForVariants(Arguments) &&
      Options.OptimizeSize > 0 && writesOneObject(*Clang)) {
    Options.PassBuilderCallbacks.push_back(registerVariantAdvisor);
    expectVariants(Frontend.OutputFile, /*IsProgram=*/false);
  }
  return Clang;
}

bool mlgo::finishCompile(bool Success) { return finishVariants(Success); }
