// Runs the installed clang with the inlining plugin of this toolchain,
// ../lib/mlgo-inliner.so, so that an unmodified clang takes the options of our
// clangs. Installed as bin/clang, bin/clang++ and so on: the name decides which
// driver runs.
//
// It starts before every compile, so it uses no more of a C library than
// MinimalLibc.cpp has.
#include <cerrno>
#include <cstring>
#include <limits.h>
#include <unistd.h>

namespace {
/// Text of limited length; what does not fit is cut off.
class Text {
public:
  template <typename... Part> explicit Text(const Part *...Parts) {
    (append(Parts, strlen(Parts)), ...);
  }
  void append(const char *Part, size_t Length) {
    if (Length > sizeof(Characters) - 1 - End)
      Length = sizeof(Characters) - 1 - End;
    memcpy(Characters + End, Part, Length);
    End += Length;
    Characters[End] = 0;
  }
  char *get() { return Characters; }

private:
  char Characters[2 * PATH_MAX];
  size_t End = 0;
};
} // namespace

/// Returns the length of the directory in \p Path, with the slash.
static size_t directoryLength(const char *Path) {
  size_t Length = strlen(Path);
  while (Length && Path[Length - 1] != '/')
    --Length;
  return Length;
}

/// Returns the length of \p Name without a version at its end: names like
/// clang++-22 are the distribution's, and not in clang's directory.
static size_t lengthWithoutVersion(const char *Name) {
  size_t End = strlen(Name);
  size_t Length = End;
  while (Length && Name[Length - 1] >= '0' && Name[Length - 1] <= '9')
    --Length;
  return Length && Name[Length - 1] == '-' ? Length - 1 : End;
}

static bool isEqual(const char *A, const char *B) {
  for (; *A && *A == *B; ++A)
    ++B;
  return *A == *B;
}

/// Returns what \p Error, a value of errno, means. strerror() would bring in
/// the C library's translations.
static Text causeOf(int Error) {
  switch (Error) {
  case E2BIG:
    return Text("its arguments and environment are too long");
  case EACCES:
    return Text("permission denied");
  case ENOENT:
    return Text("it, or the loader that it names, does not exist");
  case ENOEXEC:
    return Text("it is no program for this machine");
  case ENOMEM:
    return Text("out of memory");
  }
  char Digits[12] = {};
  char *First = Digits + sizeof(Digits) - 1;
  do
    *--First = static_cast<char>('0' + Error % 10);
  while (Error /= 10);
  return Text("error ", First);
}

static int fail(Text Message) {
  const ssize_t Written =
      write(STDERR_FILENO, Message.get(), strlen(Message.get()));
  (void)Written;
  return 1;
}

/// Reports that access() refused \p File.
static int failToUse(const char *File) {
  Text Cause = errno == ENOENT
                   ? Text(" is missing")
                   : Text(" cannot be used: ", causeOf(errno).get());
  return fail(Text("error: ", File, Cause.get(),
                   "; install it, or build this toolchain again with: mlgo "
                   "toolchain --strategy plugin\n"));
}

int main(int Argc, char **Argv, char **Environment) {
  char Own[PATH_MAX];
  const ssize_t Length = readlink("/proc/self/exe", Own, sizeof(Own) - 1);
  if (Length < 0)
    return fail(Text("error: /proc/self/exe cannot be read\n"));
  Own[Length] = 0;
  Own[directoryLength(Own)] = 0;
  Text Plugin(Own, "../lib/mlgo-inliner.so");
  const char *Name = Argv[0] + directoryLength(Argv[0]);
  Text Clang(MLGO_CLANG_DIRECTORY "/");
  Clang.append(Name, lengthWithoutVersion(Name));
  if (access(Clang.get(), X_OK) != 0)
    return failToUse(Clang.get());
  if (access(Plugin.get(), R_OK) != 0)
    return failToUse(Plugin.get());

  // The driver loads the plugin's options by -fplugin, cc1 by -load.
  Text Options("-fplugin=", Plugin.get()),
      Passes("-fpass-plugin=", Plugin.get());
  char Load[] = "-load";
  const char *Mode = Argc > 1 ? Argv[1] : "";
  const bool IsCC1 = isEqual(Mode, "-cc1");

  constexpr int MostAdded = 3;
  auto **Arguments = static_cast<char **>(
      __builtin_alloca((Argc + MostAdded + 1) * sizeof(char *)));
  char **Next = Arguments;
  *Next++ = Clang.get();
  int First = 1;
  if (IsCC1) {
    *Next++ = Argv[First++];
    *Next++ = Load;
    *Next++ = Plugin.get();
    *Next++ = Passes.get();
  } else if (!isEqual(Mode, "-cc1as")) {
    *Next++ = Options.get();
    *Next++ = Passes.get();
  }
  for (int I = First; I < Argc; ++I)
    *Next++ = Argv[I];
  *Next = nullptr;
  execve(Clang.get(), Arguments, Environment);
  return fail(Text("error: ", Clang.get(),
                   " does not run: ", causeOf(errno).get(), "\n"));
}
