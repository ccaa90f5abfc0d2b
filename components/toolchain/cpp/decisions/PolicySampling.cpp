// Samples a policy several times while compiling only once up to the first
// decision.
//
// Everything before the first decision (for the inliner: reading the bitcode
// and the passes that simplify functions; for the register allocator: the whole
// optimizer) is the same for every sample of a module. So the process forks
// there: each child continues with its own seed, shares the memory by
// copy-on-write, and writes its own files.
#include "decisions/PolicySampling.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace llvm;
using namespace mlgo;

static cl::opt<uint64_t>
    Seed("mlgo-seed", cl::Hidden,
         cl::desc("Draw the policy's decisions with this seed; without it the "
                  "policy is greedy"));
static cl::opt<unsigned> Samples(
    "mlgo-samples", cl::Hidden, cl::init(0),
    cl::desc("Compile the module this many times, sharing the passes before "
             "the first decision, sample i with the seed -mlgo-seed + i; needs "
             "-mlgo-sample-prefix and -o -"));
static cl::opt<std::string> SamplePrefix(
    "mlgo-sample-prefix", cl::Hidden,
    cl::desc("Sample i writes PREFIX.i.o, PREFIX.i.log and PREFIX.i.calls"));
static cl::opt<unsigned>
    SampleJobs("mlgo-sample-jobs", cl::Hidden, cl::init(1),
               cl::desc("Compile this many samples at the same time"));
static cl::opt<bool>
    SampleLogs("mlgo-sample-logs", cl::Hidden, cl::init(true),
               cl::desc("Whether samples log their decisions; sizes and scores "
                        "are reported without it"));

static unsigned SampleIndex = 0;

bool mlgo::isSamplingPolicy() { return Seed.getNumOccurrences() > 0; }

uint64_t mlgo::policySeed() { return Seed + SampleIndex; }

namespace {
/// SplitMix64 (Steele, Lea, Flood 2014): generates a stream from one word of
/// seed, so that equal seeds give equal decisions.
struct SplitMix64 {
  uint64_t State;
  uint64_t next() {
    uint64_t Z = (State += 0x9e3779b97f4a7c15ULL);
    Z = (Z ^ (Z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    Z = (Z ^ (Z >> 27)) * 0x94d049bb133111ebULL;
    return Z ^ (Z >> 31);
  }
  double nextUnit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
};
} // namespace

static uint64_t SampleKey = 0;

void mlgo::setSampleKey(uint64_t Hash) { SampleKey = Hash; }

static std::optional<uint64_t> Restart;

void mlgo::restartDraws(uint64_t Hash) { Restart = Hash; }

double mlgo::sampleUniform() {
  // Initialized after the fork, when the seed is the sample's.
  static SplitMix64 Stream{policySeed()};
  if (Restart) {
    // Equal or neighboring seeds must not give overlapping streams.
    Stream.State = SplitMix64{policySeed() ^ *Restart}.next();
    Restart.reset();
  }
  if (SampleKey == 0 || policySeed() % 2 == 0)
    return Stream.nextUnit();
  SplitMix64 KeyStream{policySeed() ^ SampleKey};
  return KeyStream.nextUnit();
}

[[noreturn]] static void leave(int Status, const Twine &Message = "") {
  if (Status)
    errs() << "error: -mlgo-samples: " << Message << "\n";
  errs().flush();
  _exit(Status);
}

/// Waits for one of the children in \p Running, which are samples by process,
/// and removes it. Does not return if it has failed.
static void waitForSample(DenseMap<pid_t, unsigned> &Running) {
  int Status = 0;
  pid_t Child;
  while ((Child = wait(&Status)) < 0 && errno == EINTR)
    ;
  if (Child < 0)
    leave(1, Twine("cannot wait: ") + strerror(errno));
  auto Sample = Running.find(Child);
  if (Sample == Running.end())
    return; // started before the compile
  if (!WIFEXITED(Status) || WEXITSTATUS(Status) != 0)
    leave(1, "sample " + Twine(Sample->second) +
                 (WIFSIGNALED(Status)
                      ? " died of signal " + Twine(WTERMSIG(Status))
                      : Twine(" failed")));
  Running.erase(Sample);
}

std::optional<SampleFiles> mlgo::forkIntoSamples() {
  if (Samples == 0)
    return std::nullopt;
  static bool IsSample = false;
  if (std::exchange(IsSample, true))
    leave(1, "the inliner and the register allocator cannot both be in "
             "development mode");
  if (SamplePrefix.empty())
    leave(1, "-mlgo-sample-prefix is missing");
  outs().flush();
  pid_t Parent = getpid();
  DenseMap<pid_t, unsigned> Running;
  for (SampleIndex = 0; SampleIndex < Samples; ++SampleIndex) {
    while (Running.size() >= std::max(1u, SampleJobs.getValue()))
      waitForSample(Running);
    std::string Base = SamplePrefix + "." + std::to_string(SampleIndex);
    pid_t Child = fork();
    if (Child < 0)
      leave(1, Twine("cannot fork: ") + strerror(errno));
    if (Child == 0) {
      // The driver knows and kills only the parent; do not outlive it.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != Parent)
        _exit(1);
      int Object = open((Base + ".o").c_str(),
                        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      if (Object < 0 || dup2(Object, STDOUT_FILENO) < 0)
        leave(1, "cannot write " + Base + ".o: " + strerror(errno));
      close(Object);
      return SampleFiles{SampleIndex,
                         Base + ".o",
                         SampleLogs ? Base + ".log" : "",
                         SampleLogs ? Base + ".calls" : "",
                         Base + ".forced",
                         Base + ".scores"};
    }
    Running[Child] = SampleIndex;
  }
  while (!Running.empty())
    waitForSample(Running);
  leave(0);
}
