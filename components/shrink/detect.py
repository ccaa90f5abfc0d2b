"""Finds out how a source tree is built, where the user does not say it."""

from __future__ import annotations

from pathlib import Path

from components.platform.errors import UserError
from components.shrink.bazel import WORKSPACE_FILES

_CONFIGURE = "./configure && make -j$JOBS"
_BUILDS = (
    # The most usual first. A Makefile next to configure is what configure made of the tree itself.
    ("CMakeLists.txt", "cmake -S . -B mlgo-build -DCMAKE_BUILD_TYPE=Release && cmake --build mlgo-build -j$JOBS"),
    ("meson.build", "meson setup mlgo-build --buildtype=release && ninja -C mlgo-build -j$JOBS"),
    *((name, "bazel build -c opt --jobs=$JOBS //...") for name in WORKSPACE_FILES),
    ("configure", _CONFIGURE),
    ("Makefile", "make -j$JOBS"),
    ("makefile", "make -j$JOBS"),
    ("GNUmakefile", "make -j$JOBS"),
    ("autogen.sh", f"NOCONFIGURE=1 ./autogen.sh && {_CONFIGURE}"),
    ("configure.ac", f"autoreconf -fi && {_CONFIGURE}"),
    ("Cargo.toml", "cargo build --release"),
    ("debian/rules", "debian/rules build"),
)
"""A file of a source tree -> its usual build."""


def detect_builds(source: Path) -> list[str]:
    """Return the shell commands that may build a source tree, the most usual first; $JOBS is the number of parallel
    compiles. UserError if no file of a known build system is in the tree.

    A distribution's patches may leave a tree that only its own rules build.
    """
    found = list(dict.fromkeys(command for name, command in _BUILDS if (source / name).is_file()))
    if not found:
        raise UserError(
            f"{source} has no file of a known build system ({', '.join(name for name, _ in _BUILDS)})",
            "name the build: mlgo shrink -- make -C src",
        )
    return found
