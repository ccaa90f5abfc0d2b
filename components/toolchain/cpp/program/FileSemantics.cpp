#include "program/FileSemantics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;
using namespace mlgo;

/// The attribute of a function that is nounwind only by its language.
static constexpr char LanguageNoUnwind[] = "mlgo-language-nounwind";

/// Returns whether \p GO is in a section that the source names.
static bool hasNamedSection(const GlobalObject &GO) {
  if (GO.hasSection())
    return true;
  if (auto *F = dyn_cast<Function>(&GO))
    return F->hasFnAttribute("implicit-section-name");
  auto *GV = dyn_cast<GlobalVariable>(&GO);
  return GV && GV->hasImplicitSection();
}

/// Keeps what the object of \p M would have in sections of their own names.
/// What an optimizing compile of the file may drop is not kept.
static void keepNamedSections(Module &M) {
  SmallVector<GlobalValue *, 8> Kept, Used;
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/false);
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/true);
  for (GlobalObject &GO : M.global_objects())
    if (!GO.isDeclarationForLinker() && !GO.isDiscardableIfUnused() &&
        hasNamedSection(GO) && !GO.getName().starts_with("llvm.")) {
      // Another file's loads would be folded, which no compile of a file does.
      if (auto *GV = dyn_cast<GlobalVariable>(&GO); GV && GV->isConstant())
        GV->setExternallyInitialized(true);
      if (is_contained(Used, &GO))
        continue;
      Kept.push_back(&GO);
      if (auto *F = dyn_cast<Function>(&GO))
        F->addFnAttr(InNamedSection);
    }
  // Not llvm.used, which marks sections so that --gc-sections keeps them.
  appendToCompilerUsed(M, Kept);
}

/// Keeps the functions of \p M that only code generation calls, as options of
/// any file demand, and LLVM does not count among its library functions.
static void keepCalledByCodeGen(Module &M) {
  static constexpr StringLiteral Names[] = {"mcount",
                                            "_mcount",
                                            "__mcount",
                                            "__fentry__",
                                            "__cyg_profile_func_enter",
                                            "__cyg_profile_func_enter_bare",
                                            "__cyg_profile_func_exit",
                                            "__x86_return_thunk",
                                            "__morestack",
                                            "__morestack_non_split",
                                            "__emutls_get_address",
                                            "__safestack_pointer_address",
                                            "__safestack_unsafe_stack_ptr"};
  SmallVector<GlobalValue *, 4> Kept;
  for (GlobalValue &GV : M.global_values())
    if (StringRef Name = GlobalValue::dropLLVMManglingEscape(GV.getName());
        !GV.isDeclarationForLinker() && !GV.hasLocalLinkage() &&
        (is_contained(Names, Name) ||
         Name.starts_with("__x86_indirect_thunk_")))
      Kept.push_back(&GV);
  appendToCompilerUsed(M, Kept);
}

/// Calls \p Visit with each statement of \p Assembly.
static void forEachStatement(StringRef Assembly,
                             function_ref<void(StringRef)> Visit) {
  while (!Assembly.empty()) {
    const size_t End = Assembly.find_first_of("\n;");
    StringRef Statement = Assembly.take_front(End).trim();
    Assembly = Assembly.substr(End).drop_front(End != StringRef::npos);
    if (!Statement.empty() && !Statement.starts_with("#"))
      Visit(Statement);
  }
}

/// Returns the first word of \p Statement and removes it.
static StringRef takeWord(StringRef &Statement) {
  StringRef Word = Statement.take_until(
      [](char C) { return isSpace(C) || C == ':' || C == '='; });
  Statement = Statement.drop_front(Word.size()).ltrim();
  return Word;
}

/// Returns whether \p Statement, of a function's assembly, defines a label, a
/// macro or a value that another file may define, too. A label with %= or of
/// digits has no such name.
static bool definesName(StringRef Statement) {
  if (Statement.contains("${:uid}"))
    return false;
  StringRef Word = takeWord(Statement);
  if (Statement.starts_with(":"))
    return !all_of(Word, isDigit);
  return Statement.starts_with("=") ||
         StringSwitch<bool>(Word)
             .Cases(".macro", ".set", ".equ", ".equiv", ".altmacro", true)
             .Default(false);
}

/// Returns whether the assembler is the same after the top-level assembly of a
/// file, and defines only global names in it: the assembly of several files can
/// be merged then.
static bool isMergeable(StringRef Assembly) {
  StringSet<> Global;
  forEachStatement(Assembly, [&](StringRef Statement) {
    StringRef Word = takeWord(Statement);
    if (Word == ".globl" || Word == ".global" || Word == ".weak") {
      SmallVector<StringRef> Names;
      Statement.split(Names, ',');
      for (StringRef Name : Names)
        Global.insert(Name.trim());
    }
  });
  bool Result = true;
  unsigned Sections = 0;
  forEachStatement(Assembly, [&](StringRef Statement) {
    StringRef Word = takeWord(Statement);
    while (Statement.consume_front(":")) {
      Result &= all_of(Word, isDigit) || Global.contains(Word);
      Statement = Statement.ltrim();
      Word = takeWord(Statement);
    }
    if (Word == ".pushsection") {
      ++Sections;
    } else if (Word == ".popsection") {
      Result &= Sections > 0;
      Sections -= Sections > 0;
    } else if (Statement.starts_with("=")) {
      Result = false;
    } else if (Word.starts_with(".")) {
      Result &= StringSwitch<bool>(Word)
                    .Cases(".globl", ".global", ".weak", ".symver", true)
                    .Cases(".hidden", ".internal", ".protected", true)
                    .Cases(".type", ".size", ".p2align", ".balign", true)
                    .Cases(".byte", ".word", ".short", ".int", ".long", true)
                    .Cases(".quad", ".ascii", ".asciz", ".string", true)
                    .Cases(".zero", ".skip", ".space", true)
                    .StartsWith(".cfi_", true)
                    .Case(".text", true)
                    .Default(false);
      // The section in which the next file begins.
      Result &= Word != ".text" || Sections == 0;
    }
  });
  return Result && Sections == 0;
}

static bool isPartOfName(char C) {
  return isAlnum(C) || C == '_' || C == '.' || C == '$' || !isASCII(C);
}

/// Returns the symbol that \p Statement calls, jumps to or addresses by its
/// name, or "".
static StringRef referencedSymbol(StringRef Statement) {
  StringRef Word = takeWord(Statement), Name;
  if (StringSwitch<bool>(Word)
          .Cases("call", "callq", "jmp", "jmpq", "b", "bl", true)
          .Default(false)) {
    Name = Statement.take_while(isPartOfName);
  } else if (size_t End = Statement.find("(%rip)"); End != StringRef::npos) {
    Statement = Statement.take_front(End);
    Name =
        Statement
            .substr(Statement.find_last_of(" \t,*") + 1) // 0 if there is none
            .take_while(isPartOfName);
  }
  return !Name.empty() && (isAlpha(Name.front()) || Name.front() == '_') ? Name
                                                                         : "";
}

/// Adds to \p Named the values of \p M that the operands of \p Statement or its
/// label name.
static void findNames(StringRef Statement, const Module &M,
                      SetVector<GlobalValue *> &Named) {
  StringRef First = takeWord(Statement);
  auto Add = [&](StringRef Name) {
    GlobalValue *GV = M.getNamedValue(Name);
    if (!GV) // the name is given by an asm label
      GV = M.getNamedValue(("\1" + Name).str());
    if (GV && !GV->getName().starts_with("llvm."))
      Named.insert(GV);
  };
  if (Statement.starts_with(":") || Statement.starts_with("="))
    Add(First);
  while (!Statement.empty()) {
    if (Statement.consume_front("${")) { // an operand of the function
      Statement = Statement.drop_until([](char C) { return C == '}'; });
      continue;
    }
    if (!isPartOfName(Statement.front())) {
      const bool IsRegister = Statement.front() == '%';
      Statement = Statement.drop_front();
      if (IsRegister)
        Statement = Statement.drop_while(isPartOfName);
      continue;
    }
    StringRef Name = Statement.take_while(isPartOfName);
    Statement = Statement.drop_front(Name.size());
    Add(Name.ltrim('$')); // an immediate of x86
  }
}

/// Returns the absolute path of a file that assembly includes, or \p Name.
static std::string includedFile(StringRef Name,
                                ArrayRef<std::string> IncludePaths) {
  SmallString<128> Path = Name;
  for (size_t I = 0; !sys::fs::exists(Path); ++I) {
    if (I == IncludePaths.size() || sys::path::is_absolute(Name))
      return Name.str();
    Path = IncludePaths[I];
    sys::path::append(Path, Name);
  }
  if (sys::fs::make_absolute(Path))
    return Name.str();
  return Path.str().str();
}

/// Makes the paths absolute of the files that the top-level assembly of \p M
/// includes.
static void findIncludedFiles(Module &M, ArrayRef<std::string> IncludePaths) {
  StringRef Rest = M.getModuleInlineAsm();
  static const Regex Includes("^(.*\\.(incbin|include)[ \t]*\")([^\"\\]+)\"",
                              Regex::Newline);
  std::string Result;
  SmallVector<StringRef, 4> Match;
  while (Includes.match(Rest, &Match)) {
    Result.append(Rest.begin(), Match[3].begin());
    Result += includedFile(Match[3], IncludePaths);
    Rest = StringRef(Match[3].end(), Rest.end() - Match[3].end());
  }
  if (!Result.empty())
    M.setModuleInlineAsm((Result + Rest).str());
}

/// Gives the static functions and variables of \p M, a module of ThinLTO, names
/// that no other file has, except those that assembly has \p Named. Where
/// modules import from each other, ThinLTO makes statics global, under names
/// that end in a hash of their module, which only the writer of ThinLTO's own
/// compiles gives it.
static void makeStaticNamesUnique(Module &M,
                                  const SetVector<GlobalValue *> &Named) {
  SmallVector<char, 0> Bitcode;
  raw_svector_ostream Stream(Bitcode);
  WriteBitcodeToFile(M, Stream);
  const std::string Suffix =
      "." + utohexstr(xxh3_64bits(StringRef(Bitcode.data(), Bitcode.size())),
                      /*LowerCase=*/true);
  for (GlobalValue &GV : M.global_values())
    if (GV.hasLocalLinkage() && GV.hasName() && !Named.contains(&GV) &&
        !GV.getName().starts_with("llvm.") && !GV.getName().starts_with("\1"))
      GV.setName(GV.getName() + Suffix);
}

/// Keeps the names that the assembly of \p M means.
static void keepAssembly(Module &M, bool ChecksTypes) {
  bool Separates = !isMergeable(M.getModuleInlineAsm());
  SetVector<GlobalValue *> Named;
  forEachStatement(M.getModuleInlineAsm(), [&](StringRef Statement) {
    findNames(Statement, M, Named);
  });
  for (const Function &F : M)
    for (const Instruction &I : instructions(F))
      if (auto *Call = dyn_cast<CallBase>(&I); Call && Call->isInlineAsm()) {
        StringRef Assembly =
            cast<InlineAsm>(Call->getCalledOperand())->getAsmString();
        forEachStatement(Assembly, [&](StringRef Statement) {
          Separates |= definesName(Statement);
          findNames(Statement, M, Named);
          // The front end emits no declaration of what no other code uses.
          StringRef Symbol = referencedSymbol(Statement);
          if (!Symbol.empty() && !M.getNamedValue(Symbol) &&
              !M.getNamedValue(("\1" + Symbol).str()) &&
              !Assembly.contains((Symbol + ":").str()))
            Named.insert(new GlobalVariable(
                M, Type::getInt8Ty(M.getContext()), /*isConstant=*/false,
                GlobalValue::ExternalLinkage, nullptr, Symbol));
        });
      }
  if (!Named.empty())
    appendToCompilerUsed(M, Named.getArrayRef());
  Separates |= any_of(
      Named, [](const GlobalValue *GV) { return GV->hasLocalLinkage(); });
  // clang adds the flag for full LTO; the writer of bitcode reads it.
  if (!Separates || ChecksTypes || !M.getModuleFlag("ThinLTO"))
    return;
  auto SetFlag = [&M](StringRef Name, unsigned Value) {
    M.setModuleFlag(Module::Error, Name,
                    ConstantAsMetadata::get(ConstantInt::get(
                        Type::getInt32Ty(M.getContext()), Value)));
  };
  SetFlag("ThinLTO", 1);
  // Full LTO's modules are one unit. Where types are checked, LLVM reports that
  // this one is not part of it.
  SetFlag("EnableSplitLTOUnit", 0);
  makeStaticNamesUnique(M, Named);
}

/// Makes the functions of \p M that are nounwind only by their language ones
/// that may be unwound. What has no entry in the unwind table cannot be.
static void markLanguageNoUnwind(Module &M) {
  for (Function &F : M)
    if (!F.isDeclaration() && F.doesNotThrow() && F.hasUWTable()) {
      F.removeFnAttr(Attribute::NoUnwind);
      F.addFnAttr(LanguageNoUnwind);
    }
}

/// Gives variables that are zero, but not to be in .bss, the section that they
/// have with other values.
static void placeZeros(Module &M) {
  for (GlobalVariable &GV : M.globals())
    if (!GV.isDeclarationForLinker() && !GV.isConstant() &&
        !hasNamedSection(GV) && GV.getInitializer()->isNullValue() &&
        !GV.hasCommonLinkage())
      GV.setSection(((GV.isThreadLocal() ? ".tdata." : ".data.") +
                     GlobalValue::dropLLVMManglingEscape(GV.getName()))
                        .str());
}

/// Makes each alias of \p M that is one of another alias an alias of what that
/// is one of, which is what it is in an object, too: modules must not have
/// aliases of interposable ones, as those of -fsemantic-interposition are.
static void resolveAliases(Module &M) {
  for (GlobalAlias &Alias : M.aliases())
    while (auto *Other = dyn_cast<GlobalAlias>(Alias.getAliasee()))
      Alias.setAliasee(Other->getAliasee());
}

namespace {
struct FileSemanticsPass : PassInfoMixin<FileSemanticsPass> {
  FileSemanticsPass(const FileOptions &Options) : Options(Options) {}

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    resolveAliases(M);
    keepCalledByCodeGen(M);
    findIncludedFiles(M, Options.IncludePaths);
    keepAssembly(M, Options.ChecksTypes);
    keepNamedSections(M); // but what stays for another reason
    if (Options.HasNoExceptions)
      markLanguageNoUnwind(M);
    if (Options.ZerosAreData)
      placeZeros(M);
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; } // runs where no other passes do

private:
  FileOptions Options;
};

struct LinkedSemanticsPass : PassInfoMixin<LinkedSemanticsPass> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    const bool Catches =
        any_of(M, [](const Function &F) { return F.hasPersonalityFn(); });
    for (Function &F : M)
      if (F.hasFnAttribute(LanguageNoUnwind)) {
        F.removeFnAttr(LanguageNoUnwind);
        if (!Catches)
          F.setDoesNotThrow();
      }
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; } // also of functions with optnone
};
} // namespace

bool mlgo::isSeparate(const Module &M) {
  auto *Flag =
      mdconst::extract_or_null<ConstantInt>(M.getModuleFlag("ThinLTO"));
  return Flag && !Flag->isZero();
}

void mlgo::registerFileSemantics(PassBuilder &Builder,
                                 const FileOptions &Options) {
  Builder.registerPipelineStartEPCallback(
      [Options](ModulePassManager &Passes, OptimizationLevel) {
        Passes.addPass(FileSemanticsPass(Options));
      });
}

void mlgo::registerLinkedSemantics(PassBuilder &Builder) {
  auto Add = [](ModulePassManager &Passes, auto &&...) {
    Passes.addPass(LinkedSemanticsPass());
  };
  // The pipelines of a level, of full LTO, and of ThinLTO's backends.
  Builder.registerPipelineStartEPCallback(Add);
  Builder.registerFullLinkTimeOptimizationEarlyEPCallback(Add);
  Builder.registerPipelineEarlySimplificationEPCallback(Add);
}
