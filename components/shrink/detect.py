"""Finds out how a source tree is built, where the user does not say it."""

from __future__ import annotations

from pathlib import Path

from components.platform.errors import UserError

_CONFIGURE = "./configure && make -j$JOBS"
_BUILDS = (
    # The first whose files are all there. A released tree with configure has configure.ac, too.
    (("CMakeLists.txt",), "cmake -S . -B mlgo-build -DCMAKE_BUILD_TYPE=Release && cmake --build mlgo-build -j$JOBS"),
    (("meson.build",), "meson setup mlgo-build --buildtype=release && ninja -C mlgo-build -j$JOBS"),
    (("Makefile",), "make -j$JOBS"),
    (("makefile",), "make -j$JOBS"),
    (("GNUmakefile",), "make -j$JOBS"),
    (("configure",), _CONFIGURE),
    (("autogen.sh",), f"NOCONFIGURE=1 ./autogen.sh && {_CONFIGURE}"),
    (("configure.ac",), f"autoreconf -fi && {_CONFIGURE}"),
    (("MODULE.bazel",), "bazel build -c opt //..."),
    (("WORKSPACE",), "bazel build -c opt //..."),
    (("debian/rules",), "debian/rules build"),
)
"""Files of a source tree -> its usual build. A Makefile is one that configure has made, or needs no configure."""


def detect_build(source: Path) -> str:
    """Return the shell command that builds a source tree; $JOBS is the number of parallel compiles.

    Raises:
        UserError: no file of a known build system is in the tree.
    """
    for names, command in _BUILDS:
        if all((source / name).is_file() for name in names):
            return command
    raise UserError(
        f"{source} has no file of a known build system ({', '.join(names[0] for names, _ in _BUILDS)})",
        "name the build: mlgo shrink -- make -C src",
    )
