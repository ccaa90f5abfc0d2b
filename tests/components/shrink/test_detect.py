"""The usual build of a source tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.shrink.detect import detect_builds


@pytest.mark.parametrize(
    ("names", "start"),
    [
        (("CMakeLists.txt", "Makefile"), "cmake -S . -B mlgo-build"),
        (("meson.build",), "meson setup mlgo-build"),
        (("MODULE.bazel", "Makefile"), "bazel build -c opt"),
        (("WORKSPACE", "configure"), "bazel build -c opt"),
        (("Makefile", "configure"), "./configure && make"),
        (("Makefile",), "make "),
        (("configure", "configure.ac"), "./configure && make"),
        (("autogen.sh", "configure.ac"), "NOCONFIGURE=1 ./autogen.sh && ./configure && make"),
        (("configure.ac",), "autoreconf -fi && ./configure && make"),
        (("Cargo.toml", "Makefile"), "make "),
        (("Cargo.toml",), "cargo build --release"),
        (("debian/rules",), "debian/rules build"),
    ],
)
def test_the_build_system_decides(tmp_path: Path, names: tuple[str, ...], start: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert detect_builds(tmp_path)[0].startswith(start)


def test_every_build_of_a_tree_is_named_once(tmp_path: Path) -> None:
    for name in ("debian/rules", "Makefile", "GNUmakefile", "configure.ac"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    make, configure, debian = detect_builds(tmp_path)
    assert make == "make -j$JOBS" and configure.startswith("autoreconf -fi && ") and debian == "debian/rules build"


def test_unknown_build_system_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build.rs").touch()
    with pytest.raises(UserError, match="build system") as error:
        detect_builds(tmp_path)
    assert "the build" in error.value.remedy
