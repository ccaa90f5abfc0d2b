// Runs the installed clang with the inlining plugin of this toolchain,
// ../lib/mlgo-inliner.so, so that an unmodified clang takes the options of our
// clangs. Installed as bin/clang, bin/clang++ and so on: the name decides which
// driver runs.
//
// Linked statically, without the C++ library: it starts before every compile.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits.h>
#include <unistd.h>

static const char *nameOf(const char *Path) {
  const char *Slash = strrchr(Path, '/');
  return Slash ? Slash + 1 : Path;
}

static bool isFile(const char *Path) { return access(Path, R_OK) == 0; }

int main(int Argc, char **Argv) {
  char Own[PATH_MAX], Plugin[PATH_MAX + 32], Clang[PATH_MAX];
  ssize_t Length = readlink("/proc/self/exe", Own, sizeof(Own) - 1);
  if (Length < 0) {
    perror("error: /proc/self/exe cannot be read");
    return 1;
  }
  Own[Length] = 0;
  *strrchr(Own, '/') = 0;
  snprintf(Plugin, sizeof(Plugin), "%s/../lib/mlgo-inliner.so", Own);
  // Names like clang++-22 are the distribution's, and not in its directory.
  char Name[NAME_MAX + 1];
  snprintf(Name, sizeof(Name), "%s", nameOf(Argv[0]));
  if (char *Version = strrchr(Name, '-'))
    if (strspn(Version + 1, "0123456789") == strlen(Version + 1))
      *Version = 0;
  snprintf(Clang, sizeof(Clang), "%s/%s", MLGO_CLANG_DIRECTORY, Name);
  if (!isFile(Clang) || !isFile(Plugin)) {
    fprintf(stderr,
            "error: %s is missing; install it, or build this toolchain again "
            "with: mlgo toolchain --strategy plugin\n",
            isFile(Plugin) ? Clang : Plugin);
    return 1;
  }

  // The driver loads the plugin's options by -fplugin, cc1 by -load.
  char Options[sizeof(Plugin) + 16], Passes[sizeof(Plugin) + 16];
  snprintf(Options, sizeof(Options), "-fplugin=%s", Plugin);
  snprintf(Passes, sizeof(Passes), "-fpass-plugin=%s", Plugin);
  char Load[] = "-load";
  const char *Mode = Argc > 1 ? Argv[1] : "";
  const bool IsCC1 = strcmp(Mode, "-cc1") == 0;

  constexpr int MostAdded = 3;
  auto **Arguments =
      static_cast<char **>(malloc((Argc + MostAdded + 1) * sizeof(char *)));
  char **Next = Arguments;
  *Next++ = Clang;
  int First = 1;
  if (IsCC1) {
    *Next++ = Argv[First++];
    *Next++ = Load;
    *Next++ = Plugin;
    *Next++ = Passes;
  } else if (strcmp(Mode, "-cc1as") != 0) {
    *Next++ = Options;
    *Next++ = Passes;
  }
  for (int I = First; I < Argc; ++I)
    *Next++ = Argv[I];
  *Next = nullptr;
  execv(Clang, Arguments);
  fprintf(stderr, "error: %s does not run: %s\n", Clang, strerror(errno));
  return 1;
}
