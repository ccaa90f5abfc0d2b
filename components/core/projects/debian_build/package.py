"""Builds one source package by its own rules and returns its results, or the binaries that it ships."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.compiler.clang_programs import clang_version
from components.core.projects.debian_build.privileged import run_privileged
from components.core.projects.link_recorder.recorder import COMPILE_FLAGS, link_flags, write_recorder
from components.core.projects.recipe import Recipe, Source
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.platform.storage.shared_state.stale_directories import create_locked

SCRIPTS = Path(__file__).parent
_BASE_SCRIPTS = ("make-base", "compiler")
WORK = "build-"
"""Prefix of the directories in which packages are built."""
SOURCE = "/build/source"
"""Directory in the root in which a package is built."""
_RECORDER, _LINKS = "/mlgo/recorder", "/build/links"
"""Directories in the root of the script that records links, and of the records."""
TIMEOUT_S = 1800.0
DISK_GIB = 12
_BASE_TIMEOUT_S = 1800.0
_TIMED_OUT = 124
_SYSTEM = Path("/usr")

# The optimization level overrides the package's, and nothing else differs from the shipped build. Errors of clang that
# GCC 12 does not have are warnings, because the package was never built with such a compiler.
FLAGS = tuple(
    """
    -g0 -fno-lto -Wno-error -Wno-unknown-warning-option -Wno-ignored-optimization-argument
    -Wno-unused-command-line-argument -Wno-error=implicit-function-declaration -Wno-error=implicit-int
    -Wno-error=int-conversion -Wno-error=incompatible-function-pointer-types -Wno-error=format-security
    -Wno-error=register -Wno-c++11-narrowing -Wno-error=enum-constexpr-conversion -Wno-reserved-user-defined-literal
    """.split()
)

_HINTS = {
    "No space left on device": "it filled the disk that it was given",
    "Temporary failure in name resolution": "it wants the network, which a build has not",
    "Could not resolve": "it wants the network, which a build has not",
    "Network is unreachable": "it wants the network, which a build has not",
}
_LASTING = ("unpack", "build", "collect")
_PHASES = {
    "prepare": "its root cannot be made",
    "fetch": "its source cannot be fetched",
    "unpack": "its source cannot be unpacked",
    "dependencies": "its build dependencies cannot be installed",
    "build": "its build failed",
    "collect": "what it built cannot be collected",
}


@dataclass(frozen=True)
class DebianBuild:
    """How packages are built.

    Attributes:
        clang_major: major version of Debian's clang in the root.
        toolchain: an install tree of another clang that compiles, None for Debian's own.
        compile_flags: appended to the package's flags in every compile. object_flags: in compiles to an object.
        link_flags: in every link. Files that these flags name, as -OPTION=FILE with an absolute path, are in the root.
        records_links: compile to bitcode and record each link, see core/projects/link_recorder.
        jobs: number of parallel compiles.
        timeout_s: limit for a package, from its download to the last link. disk_gib: capacity of its root.
    """

    clang_major: int = 19
    toolchain: Path | None = None
    compile_flags: tuple[str, ...] = ()
    object_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    records_links: bool = False
    jobs: int = 2
    timeout_s: float = TIMEOUT_S
    disk_gib: int = DISK_GIB


@dataclass(frozen=True)
class PackageBuild:
    """The results of a package's build.

    Attributes:
        version: Debian's version, "" if the source was not fetched.
        work: directory for derived files.
        objects: directory of its objects, at their paths below the source tree.
        binaries: directory of the programs and libraries of its binary packages, by package.
        links: directory of the records of its links, if they were recorded.
        failure: the reason of a failure, "" if the build succeeded.
        lasting: a repetition would end the same way; false, for example, if a mirror did not answer.
    """

    version: str
    work: Path
    objects: Path
    binaries: Path
    links: Path
    failure: str
    lasting: bool


def base_root(cache: Path, clang_major: int) -> Path:
    """Return the root that builds start from; the first call makes it (two minutes, 1 GB).

    Raises:
        UserError: it cannot be made.
    """
    suite = _suite()
    made_by = hashlib.sha256(b"".join((SCRIPTS / name).read_bytes() for name in _BASE_SCRIPTS)).hexdigest()
    base = cache.absolute() / "debian" / f"{suite}-clang-{clang_major}-{made_by[:12]}"
    base.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(base.with_name(f"{base.name}.lock")):
        if not base.is_dir():
            say(f"making the root that Debian packages are built in: {suite} with clang-{clang_major}")
            partial, log = base.with_name(f"{base.name}.partial"), base.with_name(f"{base.name}.log")
            log.unlink(missing_ok=True)
            scripts = base.with_name(f"{base.name}.scripts")
            scripts.mkdir(exist_ok=True)
            for name in _BASE_SCRIPTS:
                shutil.copy2(SCRIPTS / name, scripts / name)
            command = [scripts / "make-base", partial, suite, str(clang_major)]
            if run_privileged(command, base.parent, log, _BASE_TIMEOUT_S) != 0:
                raise UserError(
                    f"the root for Debian packages cannot be made; the end of {log}:\n{log_tail(log)}",
                    "check the network, apt's sources (/etc/apt) and that debootstrap is installed",
                )
            partial.rename(base)
    return base


@contextmanager
def build_package(
    recipe: Recipe, base: Path, config: DebianBuild, target: Literal["objects", "binary"], log: Path
) -> Iterator[PackageBuild]:
    """Build a package in its own root and yield the results, which are removed afterwards.

    Args:
        recipe: recipe with a source package, or a directory with debian/, which is copied.
        base: root from `base_root`.
        target: `objects` compiles only, `binary` also makes what the binary packages ship.
        log: file for the build's output, and nothing else.

    Raises:
        CommandStopped: `stop_running` was called.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    # Next to the root, so that one container sees both.
    work, held = create_locked(base.parent, f"{WORK}{recipe.name}-", base.parent)
    try:
        yield _build(recipe.source, work, base, config, target, log)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(held)


@contextmanager
def build_shipped_binaries(
    recipe: Recipe, clang: Path, flags: Sequence[str], link_flags: Sequence[str], cache: Path, jobs: int, log: Path
) -> Iterator[Path]:
    """Yield a directory with the ELF files of the package's binary packages, below each one's name.

    Args:
        clang: Debian's clang selects the same version in the root; any other is mounted there.
        flags, link_flags: appended to the package's own.

    Raises:
        UserError: the package cannot be built.
    """
    major, *_ = clang_version(clang, "pass another --clang")
    resolved = clang.resolve()
    toolchain = None if resolved.is_relative_to(_SYSTEM) else resolved.parent.parent
    build = DebianBuild(major, toolchain, compile_flags=tuple(flags), link_flags=tuple(link_flags), jobs=jobs)
    base = base_root(cache, major)
    say(f"building {recipe.name} by its own rules with {clang}")
    with build_package(recipe, base, build, "binary", log) as built:
        if built.failure:
            raise UserError(f"{recipe.name}: {built.failure}; the end of its log:\n{log_tail(log)}", f"see {log}")
        yield built.binaries


def _build(
    source: Source, work: Path, base: Path, config: DebianBuild, target: Literal["objects", "binary"], log: Path
) -> PackageBuild:
    if config.records_links:
        recorder = work / "recorder"
        recorder.mkdir()
        lld = f"/usr/lib/llvm-{config.clang_major}/bin/ld.lld"
        write_recorder(recorder, lld, _LINKS, " ".join(config.compile_flags))
        config = dataclasses.replace(
            config,
            object_flags=(*config.object_flags, *COMPILE_FLAGS),
            link_flags=(*config.link_flags, *COMPILE_FLAGS, *link_flags(_RECORDER)),
        )
    _write_settings(work / "compiler.conf", config)
    if config.toolchain is not None:
        (work / "toolchain").symlink_to(config.toolchain.absolute())
    # Files that flags such as -mlgo-inline-plan=FILE name.
    for flag in (*config.compile_flags, *config.object_flags, *config.link_flags):
        path = Path(flag.partition("=")[2])
        if path.is_absolute() and path.is_file():
            copy = work / "files" / path.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    script = work / "build-package"
    shutil.copy2(SCRIPTS / "build-package", script)
    if source.kind == "path":
        if not Path(source.location, "debian", "rules").is_file():
            problem = f"{source.location} has no debian/rules: it is no Debian source"
            raise UserError(problem, "correct path in the recipe")
        shutil.copytree(source.location, work / "source", symlinks=True, ignore=shutil.ignore_patterns(".git"))
    owner = f"{os.geteuid()}:{os.getegid()}"
    words = [script, base, work, source.location, target, str(config.jobs), str(config.disk_gib), owner]
    outside = [] if config.toolchain is None else [config.toolchain.absolute()]
    status = run_privileged(words, base.parent, log, config.timeout_s, outside)
    (work / "disk.img").unlink(missing_ok=True)
    out = work / "out"
    files = (out / "version", out / "phase")
    version, phase = (file.read_text(errors="replace").strip() if file.is_file() else "" for file in files)
    failure = _failure(status, phase, config, log)
    return PackageBuild(
        version, work, out / "objects", out / "binaries", out / "links", failure, not failure or phase in _LASTING
    )


def _failure(status: int, phase: str, config: DebianBuild, log: Path) -> str:
    if status == 0:
        return ""
    if status == _TIMED_OUT:
        return f"it took longer than {config.timeout_s:g} s"
    text = log.read_text(errors="replace") if log.exists() else ""
    hints = [hint for sign, hint in _HINTS.items() if sign in text] if phase != "fetch" else []
    return ": ".join([_PHASES.get(phase, f"it failed with status {status}"), *hints[:1]])


def _write_settings(path: Path, config: DebianBuild) -> None:
    """Write the settings that the script `compiler` reads, in shell syntax."""
    directory = "/mlgo/toolchain/bin" if config.toolchain is not None else f"/usr/lib/llvm-{config.clang_major}/bin"
    settings = {
        "CLANG": f"{directory}/clang",
        "CLANGXX": f"{directory}/clang++",
        "FLAGS": " ".join([*FLAGS, *config.compile_flags]),
        "COMPILE_FLAGS": " ".join(config.object_flags),
        "LINK_FLAGS": " ".join(config.link_flags),
        "MULTIARCH": f"{platform.machine()}-linux-gnu",
        "SOURCE": SOURCE,
        "OBJECTS": "/build/objects",
    }
    lines = [f"{name}='{value}'" for name, value in settings.items()]
    if any("'" in value or "\n" in value for value in settings.values()):
        raise UserError("a flag for the build of Debian packages has a quote in it", "leave it out")
    path.write_text("\n".join(lines) + "\n")


def _suite() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return release.get("VERSION_CODENAME", "bookworm") if release.get("ID") == "debian" else "bookworm"
