// Runs the installed clang with the inlining plugin of this toolchain,
// ../lib/mlgo-inliner.so, so that an unmodified clang takes the options of our
// clangs. Installed as bin/clang, bin/clang++ and so on: the name decides which
// driver runs.
//
// It starts before every compile. A static program does so in half the time of
// a dynamic one.
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

/// Returns \p Name without a version at its end: names like clang++-22 are the
/// distribution's, and not in clang's directory.
static std::string withoutVersion(const std::string &Name) {
  const size_t Last = Name.find_last_not_of("0123456789");
  return Last != Name.npos && Name[Last] == '-' ? Name.substr(0, Last) : Name;
}

static int fail(const std::string &Message) {
  std::fprintf(stderr, "error: %s\n", Message.c_str());
  return 1;
}

int main(int Argc, char **Argv, char **Environment) {
  char Path[PATH_MAX];
  const ssize_t Length = readlink("/proc/self/exe", Path, sizeof(Path));
  if (Length < 0)
    return fail("/proc/self/exe cannot be read");
  const std::string Program(Path, Length), Name = Argv[0];
  std::string Plugin =
      Program.substr(0, Program.rfind('/')) + "/../lib/mlgo-inliner.so";
  std::string Clang = MLGO_CLANG_DIRECTORY "/" +
                      withoutVersion(Name.substr(Name.rfind('/') + 1));
  for (const auto &[File, Mode] : {std::pair(Clang, X_OK), {Plugin, R_OK}})
    if (access(File.c_str(), Mode) != 0) {
      const std::string Cause =
          errno == ENOENT ? " is missing"
                          : std::string(" cannot be used: ") + strerror(errno);
      return fail(File + Cause +
                  "; install it, or build this toolchain again with: mlgo "
                  "toolchain --strategy plugin");
    }

  // The driver loads the plugin's options by -fplugin, cc1 by -load.
  std::string Options = "-fplugin=" + Plugin,
              Passes = "-fpass-plugin=" + Plugin;
  char Load[] = "-load";
  std::vector<char *> Arguments(Argv, Argv + Argc);
  Arguments[0] = Clang.data();
  const std::string_view Mode = Argc > 1 ? Argv[1] : "";
  if (Mode == "-cc1")
    Arguments.insert(Arguments.begin() + 2,
                     {Load, Plugin.data(), Passes.data()});
  else if (Mode != "-cc1as")
    Arguments.insert(Arguments.begin() + 1, {Options.data(), Passes.data()});
  Arguments.push_back(nullptr);
  execve(Clang.c_str(), Arguments.data(), Environment);
  const std::string Cause = errno == ENOENT
                                ? "the loader that it names does not exist"
                                : strerror(errno);
  return fail(Clang + " does not run: " + Cause);
}
