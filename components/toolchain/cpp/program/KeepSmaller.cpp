#include "program/KeepSmaller.h"

#include "inlining/InlinePlan.h"
#include "program/SizePipeline.h"
#include "support/JSON.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/LineIterator.h"
#include "llvm/Support/MD5.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/WithColor.h"

#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;
using namespace mlgo;

static constexpr char OptionName[] = "mlgo-keep-smaller";
static constexpr char VariantsOption[] = "mlgo-variants";
static constexpr char ExperimentalOption[] = "mlgo-experimental";
static constexpr char ChoicesOption[] = "mlgo-choices";
static constexpr char PlanOption[] = "mlgo-inline-plan";
static constexpr char DefaultVariants[] = "heuristic,policy";
static constexpr char PlannedVariants[] = "heuristic,policy,plan";

// These are read by requestedVariants, before LLVM parses its options.
static cl::opt<bool>
    KeepSmaller(OptionName, cl::Hidden,
                cl::desc("Compile several variants, by default with the "
                         "heuristic and with the policy, and keep the smallest "
                         "object or program"));

static cl::opt<std::string> VariantList(
    VariantsOption, cl::Hidden,
    cl::desc(
        "The variants of -mlgo-keep-smaller, which this option implies, "
        "separated by commas or colons; each is heuristic, policy or plan, "
        "and more words with +: outline, no-outline, everywhere, fold, "
        "no-fold, ipra, ir-outliner"));

static cl::opt<bool> Experimental(
    ExperimentalOption, cl::Hidden,
    cl::desc("Allow variants with what LLVM has off in its own pipelines (ipra "
             "and ir-outliner), for programs whose tests run afterwards"));

static cl::opt<std::string> ChoicesFile(
    ChoicesOption, cl::Hidden,
    cl::desc("With -mlgo-keep-smaller: append each choice to this file, and "
             "take the choices that it has without compiling again"));

namespace {
/// A variant's file, moved away from the place of the output.
struct VariantFile {
  size_t Index; ///< Of the variant.
  std::string Path;
};

struct Session {
  std::string Output;
  bool IsProgram = false;
  std::vector<Variant> Variants; ///< The first is this process.
  bool IsChild = false;
  bool IsDecided = false;   ///< Forked, or compiled as one variant.
  std::string Name, Digest; ///< In a record of choices.
  std::vector<VariantFile> Files;
};
} // namespace

static std::optional<Session> Current;

static void warn(const Twine &Message) {
  WithColor::warning() << "-" << OptionName << ": " << Message << "\n";
}

void mlgo::warnOfNoVariants(const Twine &Reason) {
  warn("only one variant is compiled: " + Reason);
}

/// Returns whether a variant can be renamed to \p Output; warns if not.
static bool isReplaceable(const std::string &Output) {
  struct stat Status;
  if (Output != "-" &&
      (lstat(Output.c_str(), &Status) != 0 || S_ISREG(Status.st_mode)))
    return true;
  warnOfNoVariants(Output + " is not a regular file");
  return false;
}

bool mlgo::expectVariants(std::string Output, std::vector<Variant> Variants) {
  if (!isReplaceable(Output))
    return false;
  Current =
      Session{std::move(Output), /*IsProgram=*/false, std::move(Variants)};
  return true;
}

void mlgo::expectProgramVariants(std::vector<Variant> Variants) {
  Current = Session{"", /*IsProgram=*/true, std::move(Variants)};
}

void mlgo::nameProgram(std::string Output, StringRef Obstacle) {
  if (!Current || !Current->IsProgram)
    return;
  if (!Obstacle.empty())
    warnOfNoVariants(Obstacle);
  if (!Obstacle.empty() || !isReplaceable(Output))
    Current.reset();
  else
    Current->Output = std::move(Output);
}

bool mlgo::expectsVariants() { return Current.has_value(); }

Expected<std::vector<Variant>>
mlgo::requestedVariants(ArrayRef<std::string> Arguments, bool IsProgram) {
  std::optional<bool> IsRequested;
  bool AllowsExperimental = false, HasChoices = false, HasPlan = false;
  std::optional<StringRef> List;
  for (StringRef Argument : Arguments) {
    for (StringRef Prefix : {"-plugin-opt=", "--plugin-opt=", "-mllvm="})
      Argument.consume_front(Prefix);
    auto [Name, Value] = Argument.ltrim('-').split('=');
    const bool IsOn =
        Value.empty() || Value == "1" || Value.equals_insensitive("true");
    if (!Argument.starts_with("-"))
      continue;
    if (Name == OptionName)
      IsRequested = IsOn;
    else if (Name == ExperimentalOption)
      AllowsExperimental = IsOn;
    else if (Name == VariantsOption)
      List = Value;
    else if (Name == ChoicesOption)
      HasChoices = true;
    else if (Name == PlanOption)
      HasPlan = true;
  }
  std::vector<Variant> Variants;
  if (List || IsRequested == true) {
    auto Parsed = parseVariants(
        List.value_or(IsProgram && HasPlan ? PlannedVariants : DefaultVariants),
        AllowsExperimental);
    if (Parsed && !(IsProgram && HasPlan) &&
        any_of(*Parsed, [](const Variant &V) { return V.Plan; }))
      return createStringError(inconvertibleErrorCode(),
                               "-mlgo-variants: the variant plan is for the "
                               "link of a program with -mlgo-inline-plan");
    if (!Parsed || IsRequested.value_or(true))
      return Parsed;
  }
  if (HasChoices)
    WithColor::warning() << "-" << ChoicesOption << " has no effect without -"
                         << OptionName << "\n";
  return Variants;
}

/// Returns a digest of \p M, by which choices are found: names of files repeat
/// in a project.
static std::string digestOf(const Module &M) {
  SmallVector<char, 0> Bitcode;
  raw_svector_ostream Stream(Bitcode);
  WriteBitcodeToFile(M, Stream);
  return MD5::hash(arrayRefFromStringRef({Bitcode.data(), Bitcode.size()}))
      .digest()
      .str()
      .str();
}

/// Returns the variant that \p Choices, lines of JSON, name last for
/// \p Digest.
static std::optional<Variant> findChoice(MemoryBufferRef Choices,
                                         StringRef Digest) {
  std::optional<Variant> Result;
  for (line_iterator Line(Choices); !Line.is_at_end(); ++Line) {
    auto Parsed = parseJSON(*Line);
    if (!Parsed) {
      consumeError(Parsed.takeError());
      continue;
    }
    const json::Object *Choice = Parsed->getAsObject();
    if (!Choice || Choice->getString("digest") != Digest)
      continue;
    auto Name = Choice->getString("variant");
    auto V = parseVariant(Name.value_or(""), Experimental);
    if (V)
      Result = std::move(*V);
    else
      warn("a recorded choice is not taken: " + toString(V.takeError()));
  }
  return Result;
}

/// Returns the variant that the choices file or, if that does not know \p M,
/// the plan names for it.
static std::optional<Variant> recordedChoice(Module &M) {
  const bool HasPlan = isPlanGiven && isPlanGiven();
  if (ChoicesFile.empty() && !HasPlan)
    return std::nullopt;
  Current->Digest = digestOf(M);
  if (!ChoicesFile.empty())
    // Read, not mapped: other compiles append to it, and behind the end of a
    // mapped file that grows there is no null character.
    if (auto File = MemoryBuffer::getFile(ChoicesFile, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/true,
                                          /*IsVolatile=*/true))
      if (auto Chosen = findChoice(**File, Current->Digest))
        return Chosen;
  if (!HasPlan)
    return std::nullopt;
  const std::string Choices = loadPlannedChoices(M);
  return findChoice(MemoryBufferRef(Choices, "plan"), Current->Digest);
}

/// Returns the descriptor of the temporary file that clang renames to
/// \p Output when the compile ends, and its path.
static std::optional<std::pair<int, std::string>>
findTemporaryFile(StringRef Output) {
  SmallString<128> Absolute(Output);
  if (sys::fs::make_absolute(Absolute))
    return std::nullopt;
  SmallString<128> Directory;
  if (sys::fs::real_path(sys::path::parent_path(Absolute), Directory))
    return std::nullopt;
  const std::string Stem = (sys::path::stem(Output) + "-").str();
  std::error_code EC;
  for (sys::fs::directory_iterator I("/proc/self/fd", EC), End; I != End && !EC;
       I.increment(EC)) {
    SmallString<128> Path;
    int Descriptor;
    if (sys::path::filename(I->path()).getAsInteger(10, Descriptor) ||
        sys::fs::real_path(I->path(), Path))
      continue;
    if (sys::path::parent_path(Path) == Directory &&
        sys::path::filename(Path).starts_with(Stem) && Path.ends_with(".tmp"))
      return std::pair(Descriptor, Path.str().str());
  }
  return std::nullopt;
}

/// Opens a new file at \p Path as \p Descriptor, whose present file a child has
/// written.
static bool reopen(int Descriptor, const std::string &Path) {
  struct stat Status;
  const mode_t Mode = fstat(Descriptor, &Status) == 0 ? Status.st_mode : 0600;
  unlink(Path.c_str());
  const int New =
      open(Path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, Mode & 0777);
  if (New < 0)
    return false;
  const bool IsReopened = dup3(New, Descriptor, O_CLOEXEC) >= 0;
  close(New);
  return IsReopened;
}

/// Becomes \p V in a child; returns false there. In the parent returns true
/// after the child has written the output, which it moves to \p Aside, or has
/// failed.
static bool runInChild(const Variant &V, size_t Index, std::string Aside) {
  const pid_t Parent = getpid();
  outs().flush();
  errs().flush();
  const pid_t Child = fork();
  if (Child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // What it would report, this process reports, too.
    const int Null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (getppid() != Parent || Null < 0 || dup2(Null, STDERR_FILENO) < 0 ||
        dup2(Null, STDOUT_FILENO) < 0)
      _exit(1);
    Current->IsChild = true;
    // The files of other variants are the parent's, and a variant that crashes
    // ends here: clang would write a report of it.
    for (const VariantFile &Other : Current->Files)
      sys::DontRemoveFileOnSignal(Other.Path);
    for (int Signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP})
      signal(Signal, SIG_DFL);
    sys::Process::PreventCoreFiles();
    applyVariant(V);
    return false;
  }
  int Status = 0;
  if (Child < 0) {
    warn("cannot fork: " + Twine(strerror(errno)));
    return true;
  }
  while (waitpid(Child, &Status, 0) < 0 && errno == EINTR)
    ;
  if (!WIFEXITED(Status) || WEXITSTATUS(Status) != 0)
    return true; // If this process fails, too, it says why.
  if (std::error_code EC = sys::fs::rename(Current->Output, Aside)) {
    warn("cannot rename " + Current->Output + ": " + EC.message());
    return true;
  }
  sys::RemoveFileOnSignal(Aside);
  Current->Files.push_back({Index, std::move(Aside)});
  return true;
}

void mlgo::forkVariants(Module &M, bool IsFolded) {
  if (!Current || Current->IsDecided || !registerVariantAdvisor)
    return;
  // Only LTO's merged module is a program of this link.
  if (Current->IsProgram && (!isProgram(M) || Current->Output.empty()))
    return;
  const std::vector<Variant> &Variants = Current->Variants;
  if (!IsFolded) {
    Current->Name =
        Current->IsProgram ? Current->Output : M.getSourceFileName();
    if (auto Chosen = recordedChoice(M)) {
      Current->IsDecided = true;
      return applyVariant(std::move(*Chosen));
    }
    if (none_of(Variants, [](const Variant &V) { return V.Fold.has_value(); }))
      return; // They share the folding.
  }
  Current->IsDecided = true;
  // The threads of the linker would not exist in a child.
  if (Current->IsProgram && parallel::strategy.ThreadsRequested != 1)
    return warnOfNoVariants("the link runs on several threads");
  std::optional<std::pair<int, std::string>> Temporary;
  if (!Current->IsProgram) {
    Temporary = findTemporaryFile(Current->Output);
    if (!Temporary)
      return warnOfNoVariants("clang's temporary file is not found");
  }
  for (size_t I = 1; I < Variants.size(); ++I) {
    std::string Aside =
        (Current->Output + ".mlgo-" + Twine(I) + "-" + Twine(getpid())).str();
    if (!runInChild(Variants[I], I, std::move(Aside)))
      return;
    if (Temporary && !reopen(Temporary->first, Temporary->second))
      report_fatal_error("cannot create " + Twine(Temporary->second) + ": " +
                             strerror(errno),
                         /*gen_crash_diag=*/false);
  }
  applyVariant(Variants[0]);
}

/// Returns what the file at \p Path is worth: the bytes of the sections that
/// are loaded, equal functions of an object once, as a linker with --icf keeps
/// them.
static Expected<uint64_t> loadedBytes(StringRef Path) {
  auto Binary = object::ObjectFile::createObjectFile(Path);
  if (!Binary)
    return Binary.takeError();
  const object::ObjectFile &File = *Binary->getBinary();
  // The relocations of an object are sections of their own.
  DenseMap<uint64_t, std::vector<object::SectionRef>> Relocations;
  if (File.isRelocatableObject())
    for (const object::SectionRef &S : File.sections())
      if (auto Target = S.getRelocatedSection();
          Target && *Target != File.section_end())
        Relocations[(*Target)->getIndex()].push_back(S);
  StringSet<> Bodies;
  uint64_t Result = 0;
  for (const object::SectionRef &S : File.sections()) {
    if (File.isELF() && !(object::ELFSectionRef(S).getFlags() & ELF::SHF_ALLOC))
      continue;
    if (S.isVirtual() || S.isBSS())
      continue;
    if (S.isText() && File.isRelocatableObject()) {
      Expected<StringRef> Contents = S.getContents();
      if (!Contents)
        return Contents.takeError();
      std::string Body = Contents->str();
      raw_string_ostream OS(Body);
      for (const object::SectionRef &R : Relocations[S.getIndex()])
        for (const object::RelocationRef &Relocation : R.relocations()) {
          OS << Relocation.getOffset() << ' ' << Relocation.getType() << ' ';
          if (!File.isELF())
            ; // The addend is in the contents.
          else if (auto Addend =
                       object::ELFRelocationRef(Relocation).getAddend())
            OS << *Addend << ' ';
          else
            consumeError(Addend.takeError());
          auto Symbol = Relocation.getSymbol();
          if (Symbol != File.symbol_end())
            if (Expected<StringRef> Name = Symbol->getName())
              OS << *Name << ' ' << Symbol->getRawDataRefImpl().d.b << '\n';
            else
              consumeError(Name.takeError());
        }
      if (!Bodies.insert(Body).second)
        continue;
    }
    Result += S.getSize();
  }
  return Result;
}

static void record(size_t Chosen, ArrayRef<std::pair<size_t, uint64_t>> Sizes) {
  if (ChoicesFile.empty())
    return;
  json::Object Bytes;
  for (auto [I, Size] : Sizes)
    Bytes[Current->Variants[I].Name] = static_cast<int64_t>(Size);
  std::string Line;
  raw_string_ostream(Line) << json::Value(json::Object{
                                  {"name", Current->Name},
                                  {"digest", Current->Digest},
                                  {"variant", Current->Variants[Chosen].Name},
                                  {"bytes", std::move(Bytes)}})
                           << "\n";
  // One write: compiles in parallel append to the same file.
  const int File = open(ChoicesFile.c_str(),
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (File < 0 || write(File, Line.data(), Line.size()) !=
                      static_cast<ssize_t>(Line.size()))
    warn("cannot write " + ChoicesFile + ": " + Twine(strerror(errno)));
  if (File >= 0)
    close(File);
}

/// Moves the smallest of the output and \p Files to the output's place.
static void keepSmallest(ArrayRef<VariantFile> Files) {
  auto Size = loadedBytes(Current->Output);
  if (!Size)
    return consumeError(Size.takeError());
  std::vector<std::pair<size_t, uint64_t>> Sizes{{0, *Size}};
  uint64_t Smallest = *Size;
  const VariantFile *Best = nullptr;
  for (const VariantFile &File : Files) {
    auto Other = loadedBytes(File.Path);
    if (!Other) {
      consumeError(Other.takeError());
      continue;
    }
    Sizes.push_back({File.Index, *Other});
    if (*Other < Smallest) {
      Smallest = *Other;
      Best = &File;
    }
  }
  const bool Moved = Best && !sys::fs::rename(Best->Path, Current->Output);
  record(Moved ? Best->Index : 0, Sizes);
}

bool mlgo::finishVariants(bool Success) {
  if (!Current)
    return Success;
  if (Current->IsChild) {
    outs().flush();
    _exit(Success ? 0 : 1);
  }
  if (Success && !Current->IsDecided)
    warnOfNoVariants(Current->IsProgram
                         ? "no program of -Oz or -Os is linked by full LTO"
                         : "no function is compiled for size");
  auto Files = std::move(Current->Files);
  if (Success && !Files.empty())
    keepSmallest(Files);
  for (const VariantFile &File : Files) {
    sys::fs::remove(File.Path);
    sys::DontRemoveFileOnSignal(File.Path);
  }
  Current.reset();
  return Success;
}
