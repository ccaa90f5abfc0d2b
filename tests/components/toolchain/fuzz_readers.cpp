// Fuzzes what clang reads of a plan and of a policy, under sanitizers. The
// first byte of an input says what the others are: P a plan, F a file of forced
// decisions, C choices, D what policy.so says about itself, O output_spec.json,
// M model.tflite.
//
// Checksums are 0 here, so that mutations get beyond them. One file includes
// the readers, because parsing LLVM's headers takes most of the time.
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/CRC.h"

static uint32_t noChecksum(llvm::ArrayRef<uint8_t>) { return 0; }

#define crc32 noChecksum
#include "inlining/InlinePlan.cpp"
#undef crc32
#include "decisions/ForcedDecisions.cpp"
#include "decisions/PolicySampling.cpp"
#include "inlining/features/ExtendedFeatures.cpp"
#include "inlining/features/TrainedRanges.cpp"
#include "ir2vec/NoIR2VecEmbedding.cpp"
#include "policy/PolicyModel.cpp"
#include "policy/PolicyRunner.cpp"
#include "program/KeepSmaller.cpp"
#include "program/Variants.cpp"

#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/Support/SourceMgr.h"

#include <dlfcn.h>

static constexpr char Assembly[] = R"(
  define i32 @main() { ret i32 0 }
  define i32 @f() { ret i32 0 }
  define internal i32 @g() { ret i32 0 }
  declare i32 @h()
)";
static constexpr const char *Names[] = {"main", "f", "g", "h", "\1f", ""};
static std::string Directory, Description, Outputs;

// NativePolicy.cpp loads the functions of policy.so.
static const char *describe() { return Description.c_str(); }
static void computeLogits(const void *const *, float *) {}
static void *openPolicy(const char *, int) { return &Description; }
static void *lookUp(void *, StringRef Name) {
  return Name == "mlgo_policy_describe"
             ? reinterpret_cast<void *>(describe)
             : reinterpret_cast<void *>(computeLogits);
}
#define dlopen openPolicy
#define dlsym lookUp
#include "policy/NativePolicy.cpp"
#undef dlopen
#undef dlsym

bool mlgo::isProgram(const Module &M) {
  return M.getSourceFileName() == "program";
}

static std::unique_ptr<Module> makeModule(LLVMContext &Context,
                                          StringRef SourceFile) {
  SMDiagnostic Problem;
  auto M = parseAssemblyString(Assembly, Problem, Context);
  M->setSourceFileName(SourceFile);
  return M;
}

static void write(StringRef Name, StringRef Content) {
  std::error_code EC;
  raw_fd_ostream(Directory + Name.str(), EC) << Content;
  if (EC)
    abort();
}

/// Counts what is accepted: without it, a fuzzer may not get anywhere.
static size_t Accepted[128];

/// Returns whether there is a result; an error has to say what is wrong.
template <typename T> static bool isRead(Expected<T> &Result) {
  if (Result)
    return true;
  if (toString(Result.takeError()).empty())
    abort();
  return false;
}

static void take(Expected<ForcedDecisions> Decisions) {
  if (!isRead(Decisions))
    return;
  for (int Round = 0; Round < 2; ++Round, Decisions->startSecondRound())
    for (StringRef Caller : Names)
      for (StringRef Callee : Names)
        for (int I = 0; I < 3; ++I)
          if (auto Action = Decisions->next(Caller, Callee); Action && *Action < 0)
            abort();
  if (Decisions->matched() > Decisions->size())
    abort();
}

static bool readPlan(StringRef Content) {
  static LLVMContext Context;
  static std::unique_ptr<Module> Modules[] = {makeModule(Context, "a/a.c"),
                                              makeModule(Context, "b/a.c"),
                                              makeModule(Context, "program")};
  write("/plan", Content);
  Expected<Plan> P = Plan::read(Directory + "/plan");
  if (!isRead(P))
    return false;
  for (auto &M : Modules)
    if (auto Decisions = P->decisionsOf(*M); isRead(Decisions) && *Decisions)
      take(std::move(**Decisions));
  findChoice(MemoryBufferRef(P->choices().str(), "plan"), Names[1]);
  return true;
}

static bool readDecisions(StringRef Content) {
  bool Result = false;
  for (StringRef Problem : {"inlining", "regalloc"})
    if (auto Rows = parseDecisionRows(Content, "file", Problem); isRead(Rows)) {
      take(ForcedDecisions::create(*Rows, "file"));
      Result = true;
    }
  return Result;
}

static bool readPolicy(bool IsModel = false) {
  LLVMContext Context;
  std::string Messages;
  Context.setDiagnosticHandlerCallBack(
      [](const DiagnosticInfo *Info, void *Text) {
        raw_string_ostream Stream(*static_cast<std::string *>(Text));
        DiagnosticPrinterRawOStream Printer(Stream);
        Info->print(Printer);
      },
      &Messages);
  const std::string Policy = IsModel ? "/model" : "/native";
  write(Policy + "/output_spec.json", Outputs);
  auto Runner = PolicyRunner::load(Context, Directory + Policy, DecisionName,
                                   inliningFeatures());
  if (!Runner == Messages.empty())
    abort();
  if (!Runner)
    return false;
  Runner->evaluate<int64_t>();
  for (size_t I = 0; I < Runner->loggedOutputs().size(); ++I) {
    const auto *Values = static_cast<const char *>(Runner->loggedOutput(I));
    const size_t Size = Runner->loggedOutputs()[I].getTotalTensorBufferSize();
    if (Size && Values[0] + Values[Size - 1] == 1)
      abort();
  }
  return true;
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  SmallString<128> Path;
  if (sys::fs::createUniqueDirectory("fuzz", Path))
    return 1;
  Directory = Path.str().str();
  if (sys::fs::create_directory(Directory + "/model") ||
      sys::fs::create_directory(Directory + "/native"))
    return 1;
  write("/native/policy.so", "");
  atexit([] {
    sys::fs::remove_directories(Directory);
    errs() << "accepted:";
    for (char Kind : {'P', 'F', 'C', 'D', 'O', 'M'})
      errs() << " " << Kind << " " << Accepted[static_cast<int>(Kind)];
    errs() << "\n";
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *Data, size_t Size) {
  if (Size == 0)
    return -1;
  StringRef Content(reinterpret_cast<const char *>(Data) + 1, Size - 1);
  const char Kind = Data[0];
  Outputs = R"([{"logging_name": "inlining_decision", "tensor_spec":
    {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t",
     "shape": [1]}}])";
  Description = R"({"num_actions": 2, "features": []})";
  bool IsRead = false;
  switch (Kind) {
  case 'P':
    IsRead = readPlan(Content);
    break;
  case 'F':
    IsRead = readDecisions(Content);
    break;
  case 'C':
    IsRead = findChoice(MemoryBufferRef(Content.str(), "file"), Names[1])
                 .has_value();
    break;
  case 'D':
    Description = Content.str();
    IsRead = readPolicy();
    break;
  case 'O':
    Outputs = Content.str();
    IsRead = readPolicy();
    break;
  case 'M':
    write("/model/model.tflite", Content);
    IsRead = readPolicy(/*IsModel=*/true);
    break;
  default:
    return -1;
  }
  Accepted[static_cast<int>(Kind)] += IsRead;
  return 0;
}
