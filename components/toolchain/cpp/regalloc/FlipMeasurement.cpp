#include "regalloc/FlipMeasurement.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;
using namespace mlgo;

static cl::opt<std::string> FlipsFile(
    "mlgo-measure-flips", cl::Hidden, cl::value_desc("FILE"),
    cl::desc("Score each alternative decision in FILE; writes FILE.scores"));

[[noreturn]] static void fail(const Twine &Message) {
  report_fatal_error("-mlgo-measure-flips: " + Message,
                     /*gen_crash_diag=*/false);
}

std::unique_ptr<FlipMeasurement> FlipMeasurement::load(StringRef Problem) {
  if (FlipsFile.empty())
    return nullptr;
  auto Decisions = readDecisionRows(FlipsFile, Problem);
  if (!Decisions)
    report_fatal_error(Decisions.takeError(), /*gen_crash_diag=*/false);
  std::unique_ptr<FlipMeasurement> Result(new FlipMeasurement(FlipsFile));
  for (auto [Row, Decision] : enumerate(Decisions->Rows))
    Result->Flips[Decisions->Names[Decision.Caller]][Decision.Ordinal]
        .push_back({Decision.Action, Row});
  const size_t Count = Decisions->Rows.size();
  if (Count == 0)
    return Result;
  void *Memory = mmap(nullptr, Count * sizeof(float), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (Memory == MAP_FAILED)
    fail("cannot allocate shared memory: " + Twine(strerror(errno)));
  Result->Scores = {static_cast<float *>(Memory), Count};
  std::fill(Result->Scores.begin(), Result->Scores.end(),
            std::numeric_limits<float>::quiet_NaN());
  return Result;
}

FlipMeasurement::~FlipMeasurement() {
  if (!Scores.empty())
    munmap(Scores.data(), Scores.size() * sizeof(float));
}

std::optional<int64_t> FlipMeasurement::atDecision(StringRef Function) {
  if (isFlipped())
    return std::nullopt;
  auto OfFunction = Flips.find(symbolName(Function));
  if (OfFunction == Flips.end())
    return std::nullopt;
  auto OfDecision = OfFunction->second.find(Ordinals[Function]++);
  if (OfDecision == OfFunction->second.end())
    return std::nullopt;
  const pid_t Parent = getpid();
  for (const Flip &F : OfDecision->second) {
    const pid_t Child = fork();
    if (Child < 0)
      fail("cannot fork: " + Twine(strerror(errno)));
    if (Child == 0) {
      // The driver knows and kills only the parent; do not outlive it.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != Parent)
        _exit(1);
      Current = F.Row;
      return F.Action;
    }
    int Status = 0;
    while (waitpid(Child, &Status, 0) < 0 && errno == EINTR)
      ;
    if (!WIFEXITED(Status) || WEXITSTATUS(Status) != 0)
      fail("action " + Twine(F.Action) + " in " + Function + " failed");
  }
  return std::nullopt;
}

void FlipMeasurement::finish(float Score) {
  Scores[Current] = Score;
  _exit(0);
}

Error FlipMeasurement::write() const {
  const std::string ScoresPath = Path + ".scores";
  std::error_code EC;
  raw_fd_ostream OS(ScoresPath, EC);
  if (!EC) {
    OS << "{\"version\":1,\"decisions\":" << Scores.size() << "}\n";
    support::endian::Writer Writer(OS, endianness::little);
    for (float Score : Scores)
      Writer.write(Score);
    OS.close();
    EC = OS.error();
    OS.clear_error();
  }
  if (EC)
    return createStringError(EC, "cannot write " + ScoresPath + ": " +
                                     EC.message());
  return Error::success();
}
