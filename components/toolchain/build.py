"""Compiles and links a clang in a build tree that is kept, so that the next build compiles only what differs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from components.core import problems
from components.core.formats.strategy import Targets
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail, run_logged
from components.platform.storage import MANIFEST, digest
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.toolchain.config import Embed
from components.toolchain.sdk import SYSTEM_LIBRARIES, Sdk, apt_line

PROJECT = Path(__file__).parent / "cmake"
PLUGIN_PROJECT = PROJECT / "plugin"
_TAIL_LINES = 30
_LINKS = ("project", "llvm")
"""Links in a build tree to our sources and to LLVM's. As all paths are below the tree (CCACHE_BASEDIR), ccache finds
objects that another tree, machine or container has compiled."""


@contextmanager
def build_tree(cache: Path, sdk: Sdk, source: Path | None, targets: Targets) -> Iterator[Path]:
    """Yield the build tree for this SDK and source below `cache`, locked against other builds in it.

    Without a source it is the tree of the plugin. Another SDK at the same path has another tree: its libraries may be
    older than what was linked before.
    """
    project = PROJECT if source else PLUGIN_PROJECT
    content = [digest(sdk.prefix)] if (sdk.prefix / MANIFEST).is_file() else []
    identity = "\0".join([sdk.version, *map(str, (sdk.prefix, source, project)), targets, *content, *_LINKS])
    tree = cache.absolute() / "build" / f"llvm-{sdk.version}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    tree.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(tree.with_name(f"{tree.name}.lock"), f"waiting for another build in {tree}"):
        yield tree


def build(
    tree: Path,
    target: str,
    sdk: Sdk,
    source: Path,
    targets: Targets,
    jobs: int,
    policies: Mapping[str, Path],
    embed: Embed,
) -> Path:
    """Build `target` of cmake/CMakeLists.txt ("training", "release", "plain") and return the path of the executable.

    Args:
        targets: code generators to link.
        policies: problem -> directory, the value of MLGO_POLICY_*. Files in it must never change: a different policy
            must have a different path because ninja compares modification times, and a policy may be older than the one
            built before.

    Raises:
        UserError: CMake or a compiler failed; the message has the end of its output and the path of the log.
    """
    linked = _link(tree, "llvm", source)
    definitions: dict[str, object] = {"LLVM_SOURCE": linked, "MLGO_TARGETS": targets, "MLGO_EMBED": embed}
    definitions |= {f"MLGO_POLICY_{name.upper()}": policies.get(name, "") for name in problems.names()}
    _configure_and_build(PROJECT, tree, target, sdk, jobs, definitions)
    return tree / target


def build_plugin(
    tree: Path, target: str, sdk: Sdk, jobs: int, policies: Mapping[str, Path], vocabulary: Path | None = None
) -> None:
    """Build `target` of cmake/plugin/CMakeLists.txt ("training", "release") in the plugin's build tree.

    Arguments and errors are those of `build`; `vocabulary` is a directory with ir2vec.plugin.HEADER, for embeddings.
    """
    definitions = {
        "MLGO_CLANG_DIRECTORY": sdk.prefix / "bin",
        "MLGO_POLICY_INLINING": policies.get("inlining", ""),
        "MLGO_IR2VEC_VOCABULARY": vocabulary or "",
    }
    _configure_and_build(PLUGIN_PROJECT, tree, target, sdk, jobs, definitions)


def _configure_and_build(
    project: Path, tree: Path, target: str, sdk: Sdk, jobs: int, definitions: Mapping[str, object]
) -> None:
    log = tree / "build.log"
    log.write_bytes(b"")
    linked = _link(tree, "project", PROJECT.parent) / project.relative_to(PROJECT.parent)
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_PREFIX_PATH": sdk.prefix,
        "CMAKE_C_COMPILER": sdk.clang,
        "CMAKE_CXX_COMPILER": sdk.prefix / "bin" / "clang++",
        "MLGO_CCACHE_DIR": os.environ.get("CCACHE_DIR") or tree.parents[1] / "ccache",
        **definitions,
    }
    say(f"configuring against LLVM {sdk.version} in {sdk.prefix}")
    configure = ["cmake", "-G", "Ninja", *(f"-D{name}={value}" for name, value in definitions.items())]
    run_build_tool([*configure, "-S", str(linked), "-B", str(tree)], log, "configure clang", None)
    run_build_tool(
        ["cmake", "--build", str(tree), "--target", target, "--parallel", str(jobs)],
        log,
        "build clang",
        f"building {target}",
    )


def _link(tree: Path, name: str, target: Path) -> Path:
    """Return a link in the build tree to a directory; what has that name there is such a link, too."""
    link = tree / name
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return link


def read_allocator(tree: Path) -> str:
    """Return the allocator of the clangs of this tree: "jemalloc" if its static library was found, else "libc"."""
    library = re.search(r"^JEMALLOC:FILEPATH=(.*)$", (tree / "CMakeCache.txt").read_text(), re.MULTILINE)
    return "jemalloc" if library and not library[1].endswith("NOTFOUND") else "libc"


def run_build_tool(command: list[str], log: Path, action: str, progress: str | None) -> None:
    """Run `command` and append its output to `log`; show ninja's "[done/total]" as a progress line named `progress`.

    Args:
        action: what the command does, for the error: "configure clang".

    Raises:
        UserError: the program is missing or fails; the message has the end of its output and the path of the log.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{command[0]} is not installed; it is needed to build clang", apt_line({command[0]}))
    with ExitStack() as shown:
        bar: Progress | None = None

        def watch(line: str) -> None:
            nonlocal bar
            match = re.match(r"\[(\d+)/(\d+)\]", line)
            if progress and match:
                bar = bar or shown.enter_context(Progress(progress, int(match[2])))
                bar.advance(int(match[1]) - bar.done)

        status = run_logged(command, log.parent, log, on_line=watch)
    if status != 0:
        remedy = f"see {log}; if a library is missing: {apt_line(set(SYSTEM_LIBRARIES.split()))}"
        tail = log_tail(log, _TAIL_LINES)
        raise UserError(f"{command[0]} failed to {action} (status {status}):\n{tail}", remedy)
