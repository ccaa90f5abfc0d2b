"""LLVM's source, whole or only the files to recompile: from Debian's source package, a git tag, or a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import MANIFEST, publish
from components.platform.storage.downloads.debsource import download_deb_source
from components.platform.storage.downloads.git import require_git, run_git
from components.platform.storage.object_storage.fetch import fetch_tree
from components.platform.storage.uri import ObjectUri, parse_location
from components.toolchain.sdk import Sdk

VERSION_FILE = "cmake/Modules/LLVMVersion.cmake"
_FILES = (
    VERSION_FILE,
    "clang/tools/driver/cc1_main.cpp",
    "clang/tools/driver/cc1as_main.cpp",
    "clang/tools/driver/cc1gen_reproducer_main.cpp",
    "clang/tools/driver/driver.cpp",
    "lld/ELF/Config.h",
    "lld/ELF/InputFiles.h",
    "lld/ELF/SymbolTable.h",
    "lld/ELF/Symbols.h",
    "llvm/lib/Analysis/InlineAdvisor.cpp",
    "llvm/lib/Analysis/MLInlineAdvisor.cpp",
    "llvm/lib/Analysis/ModelUnderTrainingRunner.cpp",
    "llvm/lib/CodeGen/AllocationOrder.h",
    "llvm/lib/CodeGen/InterferenceCache.h",
    "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp",
    "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.h",
    "llvm/lib/CodeGen/MachineOutliner.cpp",
    "llvm/lib/CodeGen/RegAllocBase.h",
    "llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp",
    "llvm/lib/CodeGen/RegAllocGreedy.h",
    "llvm/lib/CodeGen/RegAllocScore.h",
    "llvm/lib/CodeGen/SplitKit.h",
    "llvm/lib/LTO/LTOBackend.cpp",
)
_PRIVATE_BEFORE_20 = (
    "llvm/lib/CodeGen/RegAllocEvictionAdvisor.h",
    "llvm/lib/CodeGen/RegAllocPriorityAdvisor.h",
    "llvm/lib/CodeGen/SpillPlacement.h",
)
"""Headers that later versions install."""


def source_files(major: int) -> tuple[str, ...]:
    """Return the files of a version of LLVM that cmake/CMakeLists.txt compiles, and private headers that they include.

    Paths are relative to llvm-project.
    """
    return _FILES if major >= 20 else (*_FILES, *_PRIVATE_BEFORE_20)


PARTS = ("llvm", "clang", "lld", "cmake", "third-party", "libunwind")
"""Folders of llvm-project that LLVM, clang and lld are built from."""
_TESTS = ("*/test", "*/unittests")

BUNDLED = Path("share/mlgo/llvm-project")
"""The `source_files` in the prefix of an SDK that this project built: it needs no other source."""

REPOSITORY = "https://github.com/llvm/llvm-project.git"


def fetch_source_files(origin: str, sdk: Sdk, cache: Path) -> Path:
    """Return a directory with the `source_files` of the SDK's version.

    Args:
        origin: "deb", "git:TAG", or a path or URI of an llvm-project tree.
        cache: directory for downloads, so that each is fetched once.

    Raises:
        UserError: the files cannot be fetched, or have another version than the SDK.
    """
    if origin == "deb":
        source = _fetch_from_deb(sdk, cache)
    elif origin.startswith("git:"):
        source = _fetch_from_git(origin.removeprefix("git:"), sdk, cache)
    else:
        source = _fetch_folder(origin)
    check_source(source, sdk, origin)
    return source


def find_bundled_source(sdk: Sdk) -> Path | None:
    """Return the directory of source files that an SDK brings; None if it brings none.

    Raises:
        UserError: an earlier version of this project built the SDK, without all of the files.
    """
    source = sdk.prefix / BUNDLED
    if not source.is_dir():
        return None
    if not _is_complete(source, sdk.major):
        (first, *_) = (name for name in source_files(sdk.major) if not (source / name).is_file())
        raise UserError(
            f"the SDK in {sdk.prefix} lacks LLVM's {first}: an earlier version of mlgo built it",
            "build it again with mlgo toolchain --mode sdk",
        )
    return source


def fetch_whole_source(origin: str, major: int, cache: Path) -> Path:
    """Return an llvm-project tree that LLVM, clang and lld can be built from.

    Args:
        origin: "deb", "git:TAG", or a path or URI of an llvm-project tree.
        major: major version that the tree must have.
        cache: directory for downloads, so that each is fetched once.

    Raises:
        UserError: the tree cannot be fetched, is incomplete, or has another version.
    """
    if origin == "deb":
        source = _fetch_whole_deb(major, cache)
    elif origin.startswith("git:"):
        source = _fetch_whole_git(origin.removeprefix("git:"), cache)
    else:
        source = _fetch_folder(origin)
    _require_files(
        source, (*source_files(major), *(f"{part}/CMakeLists.txt" for part in ("llvm", "clang", "lld"))), origin
    )
    version = read_source_version(source / VERSION_FILE)
    if version.partition(".")[0] != str(major):
        raise UserError(
            f"--llvm-source {origin} is LLVM {version}, but {major} was requested",
            f"pass the source of an LLVM {major}, or --llvm-major {version.partition('.')[0]}",
        )
    return source


def check_source(source: Path, sdk: Sdk, origin: str) -> None:
    """Check that all `source_files` are in `source`, and that their version is the SDK's.

    Raises:
        UserError: a file is missing, or the versions differ.
    """
    _require_files(source, source_files(sdk.major), origin)
    version = read_source_version(source / VERSION_FILE)
    if version != sdk.version:
        raise UserError(
            f"--llvm-source {origin} is LLVM {version}, but the installed SDK in {sdk.prefix} is LLVM {sdk.version}",
            f"pass --llvm-source git:llvmorg-{sdk.version}, or upgrade the installed packages",
        )


def read_code_generators(source: Path) -> tuple[str, ...]:
    """Return the names of the targets that LLVM's CMake project in `source` builds; () if it does not list them."""
    text = (source / "llvm" / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace")
    targets = re.search(r"^set\(LLVM_ALL_TARGETS\s([^)$]*)\)", text, re.MULTILINE)
    return tuple(re.sub("#.*", "", targets[1]).split()) if targets else ()


def _require_files(source: Path, names: Iterable[str], origin: str) -> None:
    """Raise UserError if a file is missing in `source`."""
    for name in names:
        if not (source / name).is_file():
            raise UserError(
                f"--llvm-source {origin}: {source} is not an LLVM source tree: {name} is missing",
                "pass deb, git:TAG (git:llvmorg-19.1.7), or the directory or URI of llvm-project",
            )


def read_source_version(path: Path) -> str:
    """Return the version in LLVMVersion.cmake, such as "19.1.7". UserError if the file has no version."""
    parts = [re.search(rf"set\(LLVM_VERSION_{part} (\d+)\)", path.read_text()) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise UserError(f"{path} does not state the LLVM version", "pass another --llvm-source")
    return ".".join(part[1] for part in parts if part)


def _fetch_folder(origin: str) -> Path:
    """Return the directory of an llvm-project tree; one in object storage is downloaded, once a version."""
    location = parse_location(origin)
    return fetch_tree(location) if isinstance(location, ObjectUri) else location.absolute()


def _fetch_from_deb(sdk: Sdk, cache: Path) -> Path:
    into = cache.absolute() / "llvm-source" / f"deb-{sdk.version}"
    if _is_complete(into, sdk.major):
        return into
    archive = _download_deb_archive(sdk.major, cache)
    names = source_files(sdk.major)
    say(f"unpacking {len(names)} files of {archive.name}")
    with publish(into, "LLVM source tree") as partial:
        # Stop after the last file.
        unpack(archive, partial, names, ["--occurrence=1"])
        # The directory is named after the SDK's version, so it must not hold another version.
        check_source(partial, sdk, "deb")
    return into


def _fetch_whole_deb(major: int, cache: Path) -> Path:
    archive = _download_deb_archive(major, cache)
    into = cache.absolute() / "llvm-source" / f"whole-{_top_directory(archive)}"
    if not (into / MANIFEST).is_file():
        say(f"unpacking {archive.name}")
        with publish(into, "LLVM source tree") as partial:
            unpack(archive, partial, PARTS, [f"--exclude={name}" for name in _TESTS])
    return into


def _download_deb_archive(major: int, cache: Path) -> Path:
    """Return the archive of LLVM's source in Debian's package."""
    package = f"llvm-toolchain-{major}"
    for file in download_deb_source(package, cache):
        if re.search(r"\.orig\.tar\.\w+$", file.name):
            return file
    raise UserError(f"the Debian source package {package} has no .orig.tar archive", "pass --llvm-source git:TAG")


def _top_directory(archive: Path) -> str:
    """Return the name of the archive's top directory, which is named after it: llvm-toolchain-19_VERSION."""
    return re.sub(r"\.orig\.tar\.\w+$", "", archive.name)


def unpack(archive: Path, into: Path, names: Sequence[str], options: Sequence[str] = ()) -> None:
    """Unpack files and folders of the archive's top directory; `options` are of tar.

    Debian's patches touch none of `source_files`; a whole tree is LLVM's own, without them.
    """
    # Decompression takes all of the time: run xz on all processors (-T0).
    command = ["tar", "--extract", *options, "--strip-components=1", "--no-same-owner", f"--file={archive}"]
    done = subprocess.run(
        [*command, f"--directory={into}", *(f"{_top_directory(archive)}/{name}" for name in names)],
        env={**os.environ, "XZ_OPT": "-T0"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise UserError(
            f"cannot unpack {archive}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'tar failed'}",
            f"check the free disk space; if the archive is damaged, remove {archive.parent}",
        )


def _fetch_from_git(tag: str, sdk: Sdk, cache: Path) -> Path:
    into = _git_directory(cache, "git", tag)
    if not _is_complete(into, sdk.major):
        with publish(into, "LLVM source tree") as partial:
            _clone(tag, partial, source_files(sdk.major))
            check_source(partial, sdk, f"git:{tag}")
    return into


def _fetch_whole_git(tag: str, cache: Path) -> Path:
    into = _git_directory(cache, "whole-git", tag)
    if not (into / MANIFEST).is_file():
        with publish(into, "LLVM source tree") as partial:
            _clone(tag, partial, PARTS)
    return into


def _git_directory(cache: Path, prefix: str, tag: str) -> Path:
    return cache.absolute() / "llvm-source" / f"{prefix}-{re.sub(r'[^A-Za-z0-9._-]', '_', tag)}"


def _clone(tag: str, into: Path, names: Sequence[str]) -> None:
    """Fetch files and folders at a tag, without the history and the content of other files."""
    require_git("--llvm-source git:TAG needs it")
    say(f"fetching LLVM's source at {tag} from {REPOSITORY}")
    clone = into / "clone"
    quiet = ("clone", "-q", "--depth=1", "--filter=blob:none", "--no-checkout", "-c", "advice.detachedHead=false")
    _git(tag, *quiet, f"--branch={tag}", REPOSITORY, str(clone))
    _git(tag, "-C", str(clone), "sparse-checkout", "set", "--no-cone", *(f"/{name}" for name in names))
    _git(tag, "-C", str(clone), "checkout", "-q")
    for name in names:
        if (clone / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(clone / name, into / name)
    shutil.rmtree(clone)


def _git(tag: str, *arguments: str) -> None:
    remedy = "check the tag (llvmorg-19.1.7) and the network, or use --llvm-source deb"
    run_git(arguments, f"fetch --llvm-source git:{tag}", remedy)


def _is_complete(directory: Path, major: int) -> bool:
    return all((directory / name).is_file() for name in source_files(major))
