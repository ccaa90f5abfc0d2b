"""Builds an LLVM SDK from source: LLVM, clang and lld as static libraries, from which clangs are linked.

For an LLVM that nobody packages. It takes hours on a laptop, so it is an artifact of its own: built once for a version
of LLVM, it serves every training and every release (`--sdk`). CMake and ninja keep their build tree in the cache; a
build that was interrupted continues, and ccache is used if it is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from components.platform.console import say
from components.platform.console.interrupts import continues_when_rerun
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_memory
from components.platform.storage import publish
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.platform.storage.uri import display_path
from components.toolchain.build import run_build_tool
from components.toolchain.config import ENABLE_PROJECTS, FIXED_DEFINITIONS, SdkConfig
from components.toolchain.sdk import apt_line, find_sdk, missing_build_tools
from components.toolchain.source import (
    BUNDLED,
    VERSION_FILE,
    fetch_whole_source,
    read_code_generators,
    read_source_version,
    source_files,
)

DESCRIPTION = "sdk.json"
"""File in the SDK's prefix that records its sources and options."""
_COMPONENTS = (
    "clang;clang-resource-headers;clang-headers;clang-libraries;clang-cmake-exports;"
    "lld;llvm-headers;llvm-libraries;cmake-exports"
)
_LLD_ARCHIVES = ("lldELF", "lldCommon")
"""Archives of the linker for LTO; LLVM's distributions cannot contain them and their headers, so both are copied."""
_LLD_HEADERS = "lld/include/lld"
_INSTALLED = "LLVM_DISTRIBUTION_COMPONENTS"
_DEFAULTS = {
    "CMAKE_BUILD_TYPE": "Release",
    "LLVM_ENABLE_ASSERTIONS": "OFF",
    "LLVM_INCLUDE_BENCHMARKS": "OFF",
    "LLVM_INCLUDE_DOCS": "OFF",
    "LLVM_INCLUDE_EXAMPLES": "OFF",
    "LLVM_INCLUDE_TESTS": "OFF",
    "CLANG_INCLUDE_DOCS": "OFF",
    "CLANG_INCLUDE_TESTS": "OFF",
    # The version of a tree that is not a release ends in "git", and the commit is part of it.
    "LLVM_VERSION_SUFFIX": "",
    "LLVM_APPEND_VC_REV": "OFF",
}
_LINK_JOBS = "LLVM_PARALLEL_LINK_JOBS"
_NATIVE = ("host", "Native")
"""LLVM's own words for this machine's target."""
_STAGED = "install"
"""Prefix below the build tree, from where the SDK is moved."""
_MEMORY_OF_A_LINK = 4 << 30
"""Bytes that a link of clang takes at most, with some reserve."""


def make_sdk(config: SdkConfig) -> Path:
    """Build the SDK that `config` describes, publish it as `config.output`, and return that.

    Raises:
        UserError: the source is missing or has an unsupported version, or the build failed.
    """
    if packages := missing_build_tools():
        raise UserError(f"{' and '.join(sorted(packages))} missing, which LLVM is built with", apt_line(packages))
    source = fetch_whole_source(config.llvm_source, config.llvm_major, config.cache)
    _require_targets(config.targets, source)
    if absent := [name for name in config.projects if not (source / name / "CMakeLists.txt").is_file()]:
        raise UserError(f"--projects {absent[0]}: {source} has no such project", "see its directories for the names")
    version = read_source_version(source / VERSION_FILE)
    definitions = cmake_definitions(config)
    # The number of links at a time changes nothing that is built: an interrupted build may continue with other --jobs.
    built = {name: value for name, value in definitions.items() if name != _LINK_JOBS}
    identity = json.dumps([str(source), built], sort_keys=True)
    name = f"sdk-{version}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    tree = config.cache.absolute() / "build" / name
    tree.mkdir(parents=True, exist_ok=True)
    with (
        continues_when_rerun(),
        exclusive_lock(tree.with_name(f"{name}.lock"), f"waiting for another build in {tree}"),
        publish(config.output, "SDK") as partial,
    ):
        _build(tree, source, definitions, config.jobs)
        _install(tree, source, partial, config.llvm_major)
        (partial / DESCRIPTION).write_text(
            json.dumps(
                {"version": 1, "llvm_version": version, "llvm_source": config.llvm_source, "cmake": definitions},
                indent=1,
            )
            + "\n"
        )
        find_sdk(config.llvm_major, partial)
    say(f"LLVM SDK {version}: {display_path(config.output)}")
    return config.output


def _require_targets(targets: str, source: Path) -> None:
    """Raise UserError if `targets` names a code generator that the source does not have."""
    generators = read_code_generators(source)
    names = [] if targets in ("native", "all") else targets.split(",")
    if generators and (unknown := [name for name in names if name not in (*generators, *_NATIVE)]):
        raise UserError(
            f"--targets {unknown[0]}: LLVM in {source} has no such code generator",
            f"pass native, all, or some of {', '.join(generators)}; experimental ones are built by --define "
            "LLVM_EXPERIMENTAL_TARGETS_TO_BUILD=NAME",
        )


def cmake_definitions(config: SdkConfig) -> dict[str, str]:
    components = [_COMPONENTS, config.definitions.get(_INSTALLED, "")]
    detected = {
        "CMAKE_C_COMPILER": _find_compiler("CC", "clang"),
        "CMAKE_CXX_COMPILER": _find_compiler("CXX", "clang++"),
    }
    compiler = Path(detected["CMAKE_CXX_COMPILER"]).resolve()
    if compiler.name.startswith("clang") and (compiler.with_name("ld.lld").exists() or shutil.which("ld.lld")):
        detected["LLVM_USE_LINKER"] = "lld"
    if shutil.which("ccache"):
        detected["LLVM_CCACHE_BUILD"] = "ON"
    targets = {"native": "host", "all": "all"}.get(config.targets, config.targets.replace(",", ";"))
    return {
        **_DEFAULTS,
        **{name: value for name, value in detected.items() if value},
        "LLVM_TARGETS_TO_BUILD": targets,
        _LINK_JOBS: str(max(1, min(config.jobs, available_memory() // _MEMORY_OF_A_LINK))),
        **config.definitions,
        ENABLE_PROJECTS: ";".join(dict.fromkeys(("clang", "lld", *config.projects))),
        _INSTALLED: ";".join(filter(None, components)),
        **FIXED_DEFINITIONS,
    }


def _find_compiler(variable: str, name: str) -> str:
    """Return the compiler of an environment variable, or else the newest clang; "" leaves the choice to CMake."""
    if compiler := os.environ.get(variable):
        return compiler
    names = [name, *(f"{name}-{major}" for major in range(30, 14, -1))]
    return next((compiler for name in names if (compiler := shutil.which(name))), "")


def _build(tree: Path, source: Path, definitions: dict[str, str], jobs: int) -> None:
    log = tree / "build.log"
    log.write_bytes(b"")
    say(f"configuring LLVM in {source}")
    prefix = {"CMAKE_INSTALL_PREFIX": str(tree / _STAGED)}
    variables = [f"-D{name}={value}" for name, value in (definitions | prefix).items()]
    run_build_tool(
        ["cmake", "-G", "Ninja", "-S", str(source / "llvm"), "-B", str(tree), *variables], log, "configure LLVM", None
    )
    say(f"building LLVM with {jobs} jobs; log: {log}. If interrupted, the same command continues.")
    run_build_tool(
        ["cmake", "--build", str(tree), "--parallel", str(jobs), "--target", "distribution", *_LLD_ARCHIVES],
        log,
        "build LLVM",
        "building LLVM",
    )


def _install(tree: Path, source: Path, prefix: Path, major: int) -> None:
    """Install what was built, and the source files that toolchains compile, into `prefix`."""
    staged = tree / _STAGED
    shutil.rmtree(staged, ignore_errors=True)
    # Each library is a component of its own, so only LLVM's target installs all of them, and only to the prefix that
    # was configured. The installed CMake files are relocatable.
    run_build_tool(
        ["cmake", "--build", str(tree), "--target", "install-distribution-stripped"],
        tree / "build.log",
        "install LLVM",
        "installing LLVM",
    )
    for entry in staged.iterdir():
        shutil.move(entry, prefix / entry.name)
    for archive in _LLD_ARCHIVES:
        shutil.copyfile(tree / "lib" / f"lib{archive}.a", prefix / "lib" / f"lib{archive}.a")
    shutil.copytree(source / _LLD_HEADERS, prefix / "include" / "lld")
    for name in source_files(major):
        copy = prefix / BUNDLED / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, copy)
