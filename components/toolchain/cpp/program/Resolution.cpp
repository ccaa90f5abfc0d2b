#include "program/Resolution.h"

#include "lld/Common/CommonLinkerContext.h"
#include "program/FileSemantics.h"
// Private headers of lld, whose state is global up to LLVM 19.
#include "lld/ELF/Config.h"
#include "lld/ELF/InputFiles.h"
#include "lld/ELF/SymbolTable.h"
#include "lld/ELF/Symbols.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/BinaryFormat/Magic.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/LTO/LTO.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;
using lld::elf::BitcodeFile;
using lld::elf::InputFile;
using lld::elf::Symbol;

#if LLVM_VERSION_MAJOR >= 20 // never compiled
static lld::elf::Ctx &context() {
  return static_cast<lld::elf::Ctx &>(lld::commonContext());
}
static lld::elf::SymbolTable &symbolTable() { return *context().symtab; }
static const lld::elf::Config &options() { return context().arg; }
#else
static lld::elf::Ctx &context() { return lld::elf::ctx; }
static lld::elf::SymbolTable &symbolTable() { return lld::elf::symtab; }
static const lld::elf::Config &options() { return lld::elf::config.c; }
#endif

/// Gives access to a private member: an explicit instantiation may name it.
template <auto Files> struct PrivateFiles {
  friend auto &inputFiles(lld::elf::LinkerDriver &Driver) {
    return Driver.*Files;
  }
};
auto &inputFiles(lld::elf::LinkerDriver &Driver);
template struct PrivateFiles<&lld::elf::LinkerDriver::files>;

namespace {
/// Which symbols a reference that LTO's object adds would be resolved to as if
/// the compile of a file had made it.
class Resolution {
public:
  Resolution();

  /// Returns whether a function \p Name is there when LTO's object refers to
  /// it, and is the one that an earlier reference would have got.
  bool isUsable(StringRef Name);

private:
  /// What an archive's native object needs and defines.
  struct Member {
    std::vector<InputFile *> Needed; ///< Further members.
    bool IsUsable = true; ///< As far as the object itself is concerned.
  };

  const Member &member(InputFile *File);
  bool isExtractable(InputFile *File);

  DenseMap<InputFile *, Member> Members;
  DenseSet<InputFile *> Extractable;
  DenseSet<const Symbol *> InArchives; ///< Defined by a member not taken.
};
} // namespace

/// Returns whether bitcode defines \p S. lld has made such symbols undefined
/// for LTO; so are those of -u that nothing defines.
static bool isOfBitcode(const Symbol &S) {
  return S.isUndefined() && (!S.file || S.file == context().internalFile);
}

Resolution::Resolution() {
  for (InputFile *File : inputFiles(context().driver))
    if (File->lazy)
      for (const Symbol *S : File->getSymbols())
        if (S)
          InArchives.insert(S);
}

/// Reads the symbols of an object that lld has not parsed yet.
const Resolution::Member &Resolution::member(InputFile *File) {
  auto [Found, IsNew] = Members.try_emplace(File);
  Member &Result = Found->second;
  if (!IsNew)
    return Result;
  auto Object = object::ObjectFile::createObjectFile(File->mb);
  if (!Object) {
    consumeError(Object.takeError());
    Result.IsUsable = false;
    return Result;
  }
  for (const object::SymbolRef &Ref : (*Object)->symbols()) {
    Expected<uint32_t> Flags = Ref.getFlags();
    Expected<StringRef> Name = Ref.getName();
    if (!Flags || !Name) {
      consumeError(Flags.takeError());
      consumeError(Name.takeError());
      Result.IsUsable = false;
      continue;
    }
    if (!(*Flags & object::SymbolRef::SF_Global) || Name->empty())
      continue;
    const bool IsWeak = *Flags & object::SymbolRef::SF_Weak;
    const Symbol *S = symbolTable().find(*Name);
    if (!(*Flags & object::SymbolRef::SF_Undefined)) {
      // Two strong definitions are an error.
      if (!IsWeak && S && (S->isDefined() || isOfBitcode(*S)))
        Result.IsUsable = false;
      continue;
    }
    if (S && S->isLazy() && !IsWeak) {
      if (isa<BitcodeFile>(S->file))
        Result.IsUsable = false;
      else
        Result.Needed.push_back(S->file);
    } else if (S && isOfBitcode(*S)) {
      // LTO may remove what no native code refers to.
      Result.IsUsable &= S->isUsedInRegularObj;
    } else if (!S || S->isUndefined()) {
      Result.IsUsable &= IsWeak;
    }
  }
  return Result;
}

/// Returns whether LTO's object can still take \p Root from its archive.
bool Resolution::isExtractable(InputFile *Root) {
  DenseSet<InputFile *> Seen{Root};
  std::vector<InputFile *> Pending{Root};
  while (!Pending.empty()) {
    InputFile *File = Pending.back();
    Pending.pop_back();
    if (Extractable.contains(File))
      continue;
    const Member &M = member(File);
    if (!M.IsUsable)
      return false;
    for (InputFile *Next : M.Needed)
      if (Seen.insert(Next).second)
        Pending.push_back(Next);
  }
  Extractable.insert(Seen.begin(), Seen.end());
  return true;
}

bool Resolution::isUsable(StringRef Name) {
  const Symbol *S = symbolTable().find(Name);
  // --wrap, --defsym and assignments of linker scripts.
  if (!S || S->scriptDefined || S->isObject() || S->isTls())
    return false;
  switch (S->kind()) {
  case Symbol::DefinedKind:
    return true;
  case Symbol::SharedKind:
    // An earlier reference would have taken a member of an archive that stands
    // before the library.
    return S->visibility() == ELF::STV_DEFAULT && !InArchives.contains(S);
  case Symbol::LazyKind:
    return !isa<BitcodeFile>(S->file) && isExtractable(S->file);
  case Symbol::UndefinedKind:
    // Needed anyway, unless passes compute what calls of it return.
    return !isOfBitcode(*S) && !S->isWeak();
  default:
    return false;
  }
}

/// What passes call where the program does not, for other functions of the
/// library and for loops; test_library_calls.py has all library functions.
/// Code generation also calls functions, for intrinsics. lld takes those from
/// archives before LTO, and LLVM exports them.
static constexpr LibFunc Introduced[] = {
    LibFunc_bcmp,          LibFunc_calloc,
    LibFunc_fputc,         LibFunc_fputs,
    LibFunc_fwrite,        LibFunc_malloc,
    LibFunc_memccpy,       LibFunc_memchr,
    LibFunc_memcmp,        LibFunc_memcpy,
    LibFunc_memmove,       LibFunc_mempcpy,
    LibFunc_memrchr,       LibFunc_memset,
    LibFunc_putchar,       LibFunc_puts,
    LibFunc_snprintf,      LibFunc_sprintf,
    LibFunc_stpcpy,        LibFunc_stpncpy,
    LibFunc_strcat,        LibFunc_strchr,
    LibFunc_strcpy,        LibFunc_strdup,
    LibFunc_strlcat,       LibFunc_strlcpy,
    LibFunc_strlen,        LibFunc_strncat,
    LibFunc_strncmp,       LibFunc_strncpy,
    LibFunc_vsnprintf,     LibFunc_vsprintf,
    LibFunc_memcpy_chk,    LibFunc_memset_pattern16,
    LibFunc_iprintf,       LibFunc_siprintf,
    LibFunc_fiprintf,      LibFunc_small_printf,
    LibFunc_small_sprintf, LibFunc_small_fprintf};

/// The same for calls of functions and intrinsics that return floating point.
static constexpr LibFunc IntroducedMath[] = {
    LibFunc_acosf,  LibFunc_acoshf,         LibFunc_asinf,
    LibFunc_asinhf, LibFunc_atanf,          LibFunc_atanhf,
    LibFunc_cbrtf,  LibFunc_ceilf,          LibFunc_copysignf,
    LibFunc_cosf,   LibFunc_coshf,          LibFunc_exp10,
    LibFunc_exp10f, LibFunc_exp10l,         LibFunc_exp2,
    LibFunc_exp2f,  LibFunc_exp2l,          LibFunc_expf,
    LibFunc_expm1f, LibFunc_fabsf,          LibFunc_floorf,
    LibFunc_fmaxf,  LibFunc_fminf,          LibFunc_ldexp,
    LibFunc_ldexpf, LibFunc_ldexpl,         LibFunc_log10f,
    LibFunc_log1pf, LibFunc_log2f,          LibFunc_logbf,
    LibFunc_logf,   LibFunc_nearbyintf,     LibFunc_powf,
    LibFunc_rintf,  LibFunc_roundevenf,     LibFunc_roundf,
    LibFunc_sinf,   LibFunc_sinhf,          LibFunc_sqrt,
    LibFunc_sqrtf,  LibFunc_sqrtl,          LibFunc_tan,
    LibFunc_tanf,   LibFunc_tanhf,          LibFunc_tanl,
    LibFunc_truncf, LibFunc_sincospi_stret, LibFunc_sincospif_stret};

/// Returns the library functions that the passes of \p M may call or meet.
static BitVector relevantFunctions(const Module &M,
                                   const TargetLibraryInfoImpl &Impl) {
  BitVector Result(NumLibFuncs);
  for (LibFunc F : Introduced)
    Result.set(F);
  bool HasMath = false;
  for (const Function &F : M)
    HasMath |= F.isDeclaration() && F.getReturnType()->isFPOrFPVectorTy();
  if (HasMath)
    for (LibFunc F : IntroducedMath)
      Result.set(F);
  for (const GlobalValue &Value : M.global_values())
    if (LibFunc F; Value.hasName() && Impl.getLibFunc(Value.getName(), F))
      Result.set(F);
  return Result;
}

/// Returns the names of the library functions that the passes of \p M must
/// neither call nor know.
static std::vector<std::string> unusableLibraryFunctions(const Module &M) {
  TargetLibraryInfoImpl Impl(Triple(M.getTargetTriple()));
  TargetLibraryInfo Known(Impl);
  Resolution R;
  auto IsUsable = [&](LibFunc F) {
    const StringRef Name = Known.getName(F);
    const GlobalValue *Value = M.getNamedValue(Name);
    return (!Value || Value->isDeclarationForLinker()) && R.isUsable(Name);
  };
  BitVector Functions = relevantFunctions(M, Impl);
  for (unsigned I : Functions.set_bits()) {
    const auto F = static_cast<LibFunc>(I);
    if (!Known.has(F) || IsUsable(F))
      Functions.reset(I);
  }
  // LoopIdiomRecognize makes memmove where it looks for memcpy.
  if (Functions[LibFunc_memmove])
    Functions.set(LibFunc_memcpy);
  std::vector<std::string> Result;
  for (unsigned I : Functions.set_bits())
    Result.push_back(Known.getName(static_cast<LibFunc>(I)).str());
  return Result;
}

void mlgo::restrictLibraryCalls(Module &M) {
  // Another link resolves what bitcode with the passes' calls refers to.
  if (options().emitLLVM)
    return;
  static constexpr char Prefix[] = "no-builtin-";
  AttrBuilder Attributes(M.getContext());
  for (const std::string &Name : unusableLibraryFunctions(M)) {
    Attributes.addAttribute(Prefix + Name);
    // Else LLVM adds what it knows of the function to its declaration.
    if (Function *F = M.getFunction(Name); F && F->isDeclaration())
      F->addFnAttr(Prefix + Name);
  }
  for (Function &F : M)
    if (!F.isDeclaration())
      F.addFnAttrs(Attributes);
}

/// Returns whether a linker script places sections, and may keep them.
static bool placesSections() {
  return any_of(context().memoryBuffers, [](const auto &File) {
    return identify_magic(File->getBuffer()) == file_magic::unknown &&
           File->getBuffer().contains("SECTIONS");
  });
}

/// Returns whether lld keeps the section \p Name, which nothing refers to.
static bool isKept(StringRef Name) {
  return Name == ".init" || Name == ".fini" || Name == ".jcr" ||
         Name.starts_with(".init_array") || Name.starts_with(".ctors") ||
         Name.starts_with(".dtors") ||
         symbolTable().find(("__start_" + Name).str()) ||
         symbolTable().find(("__stop_" + Name).str());
}

/// Returns the symbols of the modules of ThinLTO, which are not in the linked
/// module.
static StringSet<> symbolsOfThinModules() {
  StringSet<> Result;
  for (BitcodeFile *File : context().bitcodeFiles) {
    auto Info = getBitcodeLTOInfo(File->mb);
    const bool IsThin = !Info || Info->IsThinLTO;
    consumeError(Info.takeError());
    if (IsThin)
      for (const Symbol *S : File->getSymbols())
        Result.insert(S->getName());
  }
  return Result;
}

/// Returns whether something else than bitcode may refer to \p S.
static bool isVisible(const Symbol &S) {
  return S.isUsedInRegularObj || S.referencedAfterWrap || S.scriptDefined ||
         (S.computeBinding() != ELF::STB_LOCAL &&
          (S.exportDynamic || S.inDynamicList));
}

void mlgo::releaseNamedSections(Module &M) {
  SmallSetVector<Function *, 8> Released;
  for (Function &F : M)
    if (F.hasFnAttribute(InNamedSection) && !F.isDeclaration())
      Released.insert(&F);
  if (Released.empty() || !options().gcSections || options().emitLLVM ||
      placesSections())
    return;
  // Where another file names the function in assembly, it is listed twice.
  SmallVector<GlobalValue *, 8> Used;
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/false);
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/true);
  StringSet<> Elsewhere = symbolsOfThinModules();
  for (const char *Name :
       lto::LTO::getRuntimeLibcallSymbols(Triple(M.getTargetTriple())))
    Elsewhere.insert(Name);
  Released.remove_if([&](const Function *F) {
    StringRef Section =
        F->hasSection()
            ? F->getSection()
            : F->getFnAttribute("implicit-section-name").getValueAsString();
    StringRef Name = GlobalValue::dropLLVMManglingEscape(F->getName());
    const Symbol *S = symbolTable().find(Name);
    return count(Used, F) > 1 || F->hasComdat() || isKept(Section) || !S ||
           isVisible(*S) || Elsewhere.contains(Name);
  });
  removeFromUsedLists(M, [&](Constant *C) {
    auto *F = dyn_cast<Function>(C->stripPointerCasts());
    return F && Released.contains(F);
  });
  for (Function *F : Released)
    F->setLinkage(GlobalValue::InternalLinkage);
}

mlgo::LinkOutput mlgo::linkOutput() {
  const lld::elf::Config &Options = options();
  const auto Obstacle = [&]() -> std::string {
    if (!Options.ltoObjPath.empty())
      return "--lto-obj-path writes a file of one";
    if (!Options.saveTempsArgs.empty())
      return "--save-temps writes files of one";
    if (!Options.optRemarksFilename.empty())
      return "--opt-remarks-filename writes a file of one";
    if (!Options.optStatsFilename.empty())
      return "--plugin-opt=stats-file writes a file of one";
    if (Options.emitLLVM || Options.ltoEmitAsm || Options.thinLTOIndexOnly)
      return "no object is linked";
    if (Options.oFormatBinary)
      return "--oformat=binary writes no sections, by which variants are "
             "compared";
    return "";
  };
  return {Options.outputFile.str(), Obstacle()};
}

mlgo::LinkStage mlgo::linkStage() {
  const lld::elf::Config &Options = options();
  if (Options.relocatable || Options.emitLLVM || Options.ltoEmitAsm)
    return LinkStage::Earlier;
  return Options.shared ? LinkStage::Library : LinkStage::Program;
}
