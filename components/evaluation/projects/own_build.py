"""Links the programs of the user's own build again, from modules compiled by stock clang and by the release clang.

The user's tree is only read: compilers and linkers may write in the directory of the work alone. Objects are compiled
from the corpus' bitcode, so neither sources nor headers nor generated files are needed; what is not in the corpus is
linked as the user's build left it. What the build's flags compile for link-time optimization is compiled to bitcode and
linked by it, although the compilers that embed bitcode append -fno-lto.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.clang_programs import clangxx, llvm_binutils
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.compiler.replay.command_line import require_replayable
from components.core.formats.corpus import Corpus, Module
from components.core.formats.links import BuildLinks, Link, ModuleLto
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import (
    HEURISTIC,
    BuildVariant,
    build_variants,
    by_heuristic,
    find_stock_clang,
)
from components.core.projects.flags.linked_files import copy_links
from components.core.projects.flags.section_sizes import MeasuredBinary, measure
from components.core.projects.response_files import write_response_file
from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics_types import FULL_LTO, KeptObjects, OwnBuild
from components.evaluation.projects.link_replay import (
    Archive,
    NotReplayed,
    ReplayPlan,
    has_sources,
    names_linker,
    rewrite,
)
from components.evaluation.projects.linked_binaries import Binary
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.workers.factory import make_pool

LINK_VARIANT = "default"
_LINK_TIMEOUT_S = 1800.0
_BUILDS = ("stock", "policy", "heuristic")
_QUIET = "-Qunused-arguments"
_OBJECTS, _TREE, _TEMPORARY = "objects", "tree", "tmp"
_FAILURE = re.compile(r"\berror:|undefined reference|undefined symbol|cannot find|multiple definition")
_MAX_REASON = 300
_MAX_KEPT_NAMES = 20
_NOT_COMPILED = "that do not compile from the bitcode of the corpus"
_MAX_FAILED_FRACTION = 1.0
"""A module that does not compile stays as the user's build has it, in both builds."""


@dataclass(frozen=True)
class RelinkedBuild:
    """The user's programs and libraries of both builds.

    Attributes:
        project: name of the corpus' project.
        binaries: their sizes.
        summary: how they were linked.
        trees: directory of the linked files of stock clang and of the release clang, at their paths relative to the
            user's build; below the work directory.
    """

    project: str
    binaries: list[Binary]
    summary: OwnBuild
    trees: tuple[Path, Path]


@dataclass
class _Built:
    """Linked files of one of the builds, by the path of the user's.

    Attributes:
        files: real path of the user's file -> ours.
        measured: path of the user's file -> kind and sizes of ours.
        failed: path of the user's file -> why there is none of ours.
    """

    files: dict[str, Path] = field(default_factory=dict)
    measured: dict[str, MeasuredBinary] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def _compile_for_all(
    stock: Compiler, release: Compiler, directories: tuple[Path, ...], request: Request
) -> tuple[float, ...]:
    """Compile a module for all builds, one right after the other, so that their times are comparable."""
    name = _object_name(request.module.name)
    default = replace(request, advisor=Advisor("default"))
    heuristic = replace(default, extra_flags=HEURISTIC)
    builds = zip(((stock, default), (release, request), (release, heuristic)), directories, strict=True)
    return tuple(compiler.make_object(asked, folder / name) for (compiler, asked), folder in builds)


def relink(
    links: BuildLinks, corpus: Corpus, config: EvaluationConfig, release: Toolchain, work: Path
) -> RelinkedBuild:
    """Link the build's programs and shared libraries with the objects of stock clang and of the release clang.

    A link is left out, with the reason, if it fails with either, or has no module of the corpus.

    Args:
        work: directory of both builds; the caller removes it.

    Raises:
        UserError: a compiler is missing, or modules have options that are refused on replay.
    """
    stock_clang = find_stock_clang(release, config.stock_clang)
    stock, policy = build_variants(stock_clang, release, config.problem)
    variants = (stock, policy, by_heuristic(policy))
    by_name = {module.name: module for module in corpus}
    known = {digest: name for digest, name in links.modules.items() if name in by_name}
    plan = ReplayPlan(msgspec.structs.replace(links, modules=known))
    needed = sorted({name for link in plan.order for name in plan.modules(link)})
    roots = tuple(work.absolute() / build for build in _BUILDS)
    for root in roots:
        for name in (_OBJECTS, _TREE, _TEMPORARY):
            (root / name).mkdir(parents=True)
    failed, seconds = _compile([by_name[name] for name in needed], plan.links.lto or {}, config, variants, roots)
    level = problems.get(config.problem).optimization
    built = []
    with Progress("linking your build", len(variants) * len(plan.order)) as progress:
        for variant, root in zip(variants, roots, strict=True):
            replay = _Replay(plan, variant, level, root, failed, stock_clang)
            built.append(replay.link_all(progress))
    project = next(iter(corpus.project_titles().values()))
    summary = OwnBuild(source=links.source, stock_s=seconds[0], policy_s=seconds[1])
    splits = corpus.splits()
    return _compare(project, plan, built, failed, {*splits.train, *splits.validation}, summary, roots)


def _compile(
    modules: Sequence[Module],
    lto: Mapping[str, ModuleLto],
    config: EvaluationConfig,
    variants: Sequence[BuildVariant],
    roots: Sequence[Path],
) -> tuple[set[str], list[float]]:
    """Compile the modules for all builds, those of `lto` to bitcode as -flto does; return those that failed, and the
    seconds of each build."""
    require_replayable(modules, config.allowed_options)
    stock, release = (
        Compiler(variant.clang, config.problem, config.timeout_s, config.allowed_options) for variant in variants[:2]
    )
    compile_each = partial(_compile_for_all, stock, release, tuple(root / _OBJECTS for root in roots))
    quarantine = Quarantine(_MAX_FAILED_FRACTION, len(modules))
    kinds = {name: kind for name, kind in lto.items() if kind != "mixed"}
    requests = [Request(module, Advisor("release"), lto=kinds.get(module.name)) for module in modules]
    total_s = [0.0] * len(variants)
    with (
        closing(make_pool(f"local:{config.jobs}")) as pool,
        Progress("compiling your build", len(requests)) as progress,
    ):
        for _request, seconds in compile_all(pool, compile_each, requests, quarantine, progress):
            total_s = [total + more for total, more in zip(total_s, seconds, strict=True)]
    return {module.name for module in modules if module.name in quarantine}, total_s


@dataclass
class _Replay:
    """Links everything for one build.

    Attributes:
        level: optimization level of the modules, which links by LTO get: the build's compilers append it to all calls.
        root: directory of the build.
        failed: modules that did not compile, whose objects stay as they are.
    """

    plan: ReplayPlan
    variant: BuildVariant
    level: str
    root: Path
    failed: set[str]
    stock_clang: Path
    _built: _Built = field(default_factory=_Built)
    _archives: dict[str, Path] = field(default_factory=dict)

    def link_all(self, progress: Progress) -> _Built:
        """Repeat the links that have a module of the corpus."""
        built = self._built
        for link in self.plan.order:
            progress.advance()
            if not self.plan.changes(link):
                continue
            try:
                output = self._link(link)
                built.files[os.path.realpath(link.output)] = output
                built.measured[link.output] = measure(output)
            except NotReplayed as error:
                built.failed[link.output] = str(error)
            except UserError as error:
                built.failed[link.output] = error.problem
        return built

    def _link(self, link: Link) -> Path:
        """Repeat a link; return the linked file. NotReplayed if the link cannot be repeated, or fails."""
        if not os.path.isdir(link.directory):
            raise NotReplayed(f"its directory {link.directory} is not here")
        plan, root = self.plan, self.root
        replacements: dict[str, Path] = {}
        for path in plan.inputs(link):
            piece, real = plan.piece(path), plan.real(path)
            if isinstance(piece, Link):
                if real in self._built.files:
                    replacements[real] = self._built.files[real]
                elif piece.output in self._built.failed:
                    raise NotReplayed(f"{plan.within(piece.output)}, which it uses, is not linked")
            elif isinstance(piece, Archive):
                if real not in self._archives:
                    self._archives[real] = self._make_archive(path, piece)
                replacements[real] = self._archives[real]
            elif piece and piece not in self.failed:
                replacements[real] = root / _OBJECTS / _object_name(piece)
        output = root / _TREE / plan.within(link.output)
        self._make_directory(output.parent)
        arguments = rewrite(link, output, replacements, self._library_directories(link, replacements))
        libraries = {path.parent for path in replacements.values() if path.is_relative_to(root / _TREE)}
        arguments += [f"-Wl,-rpath-link,{directory}" for directory in sorted(libraries)]
        arguments += self._flags(link)
        clang = clangxx(self.variant.clang) if link.cxx else self.variant.clang
        command = ["/usr/bin/env", f"TMPDIR={root / _TEMPORARY}", str(clang), *arguments]
        done = self._run(command, Path(link.directory), f"its link takes more than {_LINK_TIMEOUT_S:g} s")
        done.require_disk_space(root)
        if done.returncode != 0 or not output.is_file():
            raise NotReplayed(_reason(done.stderr) or f"its link ends with status {done.returncode}")
        if Path(link.output).parent.is_dir():
            copy_links(Path(link.output), output)
        return output

    def _run(self, command: list[str], cwd: Path, slow: str) -> supervision.Completed:
        """Run a program that may write below the root. NotReplayed, with the reason `slow`, if it takes too long."""
        try:
            return supervision.run(command, _LINK_TIMEOUT_S, cwd=cwd, writable=self.root, makes_programs=True)
        except supervision.ProcessTimeout:
            raise NotReplayed(slow) from None

    def _flags(self, link: Link) -> list[str]:
        if self.plan.optimizes(link):
            return [self.level, _QUIET]
        return [*(self.variant.flags if has_sources(link) else []), "-fno-lto", _QUIET]

    def _library_directories(self, link: Link, replacements: Mapping[str, Path]) -> dict[str, Path]:
        """Return directory of the user's libraries -> ours, with the libraries by the names that -l looks for."""
        directories: dict[str, Path] = {}
        for path in self.plan.inputs(link):
            real = self.plan.real(path)
            name = os.path.basename(path)
            if real not in replacements or not name.startswith("lib"):
                continue
            directory = os.path.normpath(os.path.dirname(path))
            ours = self.root / "libraries" / self.plan.within(directory)
            self._make_directory(ours)
            if not (ours / name).is_symlink():
                (ours / name).symlink_to(replacements[real])
            directories[directory] = ours
        return directories

    def _make_directory(self, directory: Path, exist_ok: bool = True) -> None:
        """Make a directory below the root. NotReplayed if an earlier link left symbolic links on the way to it."""
        if directory.resolve() != self.root.resolve() / directory.relative_to(self.root):
            raise NotReplayed(f"an earlier link left a symbolic link in place of {directory} or a directory above it")
        directory.mkdir(parents=True, exist_ok=exist_ok)

    def _make_archive(self, path: str, archive: Archive) -> Path:
        """Make a static library with the objects of this build in place of the members that are in the corpus."""
        output = self.root / "archives" / self.plan.within(path)
        members = output.with_name(f"{output.name}.members")
        self._make_directory(members, exist_ok=False)
        names = []
        for number, (member, module) in enumerate(archive.members):
            file = members / f"{number}-{member.name}"
            if module and module not in self.failed:
                shutil.copyfile(self.root / _OBJECTS / _object_name(module), file)
            elif member.content is None:
                shutil.copyfile(member.path, file)
            else:
                file.write_bytes(member.content)
            names.append(file.name)
        # In a response file: large libraries have more members than a command line holds.
        write_response_file(members / "all", names)
        command = [str(llvm_binutils(self.stock_clang)["ar"]), "qcs", str(output), "@all"]
        name = self.plan.within(path)
        try:
            done = self._run(command, members, f"{name} takes more than {_LINK_TIMEOUT_S:g} s to make again")
        finally:
            shutil.rmtree(members)
        if done.returncode != 0:
            raise NotReplayed(f"{name} cannot be made again: {_reason(done.stderr)}")
        return output


def _compare(
    project: str,
    plan: ReplayPlan,
    built: Sequence[_Built],
    failed: set[str],
    trained: set[str],
    summary: OwnBuild,
    roots: Sequence[Path],
) -> RelinkedBuild:
    """Return the files that both builds have, and why others are missing."""
    stock, policy, plain = built
    binaries: list[Binary] = []
    left_out: dict[str, str] = {}
    linked: list[Link] = []
    for link in plan.order:
        name = plan.within(link.output)
        if not os.path.isdir(link.directory):
            left_out[name] = f"its directory {link.directory} is not here"
            continue
        if not plan.changes(link):
            left_out[name] = "no object of it is in the corpus"
            continue
        if reason := stock.failed.get(link.output, policy.failed.get(link.output, "")):
            left_out[name] = reason
            continue
        before, after = stock.measured[link.output], policy.measured[link.output]
        linked.append(link)
        if before.kind == "object":
            continue
        lto = plan.lto(link)
        title = FULL_LTO if lto == "full" else LINK_VARIANT
        known = plain.measured.get(link.output)
        heuristic = None if known is None else known.sizes
        binaries.append(
            Binary(project, name, after.kind, after.language, title, before.sizes, after.sizes, heuristic=heuristic)
        )
        summary.thin_lto += lto == "thin"
        summary.full_lto += lto == "full"
        summary.two_linkers += lto is not None and not names_linker(link)
        summary.as_built += lto is None and _has_sizes(link.output, before)
    modules = {module for link in linked for module in plan.modules(link)}
    summary.modules = len(modules - failed)
    summary.trained_modules = len((modules - failed) & trained)
    kept = plan.kept_objects(linked)
    if failures := sorted(modules & failed):
        kept[_NOT_COMPILED] = failures
    summary.kept_objects = sum(map(len, kept.values()))
    summary.kept = {reason: KeptObjects(len(names), names[:_MAX_KEPT_NAMES]) for reason, names in kept.items()}
    summary.left_out = left_out
    if not binaries:
        name, reason = next(iter(left_out.items()), ("", plan.links.problem))
        summary.need = f"{name}: {reason}" if name else reason
    return RelinkedBuild(project, binaries, summary, (roots[0] / _TREE, roots[1] / _TREE))


def _reason(stderr: str) -> str:
    """Return the line of a linker's messages that says what failed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in lines if "linker command failed" not in line]
    return next((line for line in said if _FAILURE.search(line)), said[0] if said else "")[:_MAX_REASON]


def _has_sizes(path: str, measured: MeasuredBinary) -> bool:
    try:
        return measure(Path(path)).sizes == measured.sizes
    except (OSError, UserError):
        return False


def _object_name(module: str) -> str:
    """Return the file name of a module's object: short, and without directories, which would have to be made."""
    return f"{hashlib.sha256(module.encode()).hexdigest()[:32]}.o"
