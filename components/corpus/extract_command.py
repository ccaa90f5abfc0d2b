"""The command `mlgo corpus extract`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.formats.corpus import write_description
from components.core.formats.strategy import DEFAULT_LLVM_MAJOR
from components.core.projects.compile_commands import DATABASE
from components.core.projects.extraction_options import INPUT_TYPES, THINLTO_BUILDS, ThinLto, Unit
from components.core.projects.link_recorder.recorder import read_links
from components.core.projects.option import COMPILE_COMMANDS
from components.corpus.build_links import write_build_links
from components.corpus.command_edits import CommandEdits, edit_commands, edit_options, parse_edits
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome, describe_newer_llvm
from components.corpus.options import PATH, UNIT, output_option, split_options
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.profiles import copy_profiles
from components.corpus.report import CorpusReport, make_report
from components.corpus.sources.inputs import InputType, read_input
from components.corpus.sources.programs import ProgramConfig, announce_programs, extract_programs
from components.corpus.sources.project_name import name_project
from components.corpus.sources.thinlto import MISSING_INDEX_WARNING
from components.corpus.split import SplitConfig
from components.corpus.write_split_and_report import announce, split_config, write_split_and_report
from components.platform.console import say
from components.platform.console.number_types import JOBS, LLVM_MAJOR
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.manifest import list_names
from components.platform.storage.options import FILE, TREE

_EMBED_REMEDY = {
    None: "build the project with the compilers that mlgo corpus compilers writes, or with clang and "
    "-Xclang -fembed-bitcode=all (no -flto), then run this again",
    "distributed": "pass -mllvm -lto-embed-bitcode=post-merge-pre-opt to clang -fthinlto-index=, then run this again",
    "local": "link with clang -fuse-ld=lld -Wl,--save-temps=import -Wl,--thinlto-emit-index-files, then run this again",
}
_REMEDIES: dict[str, str] = {
    OutcomeKind.MISSING: "build the project, so that these objects exist, and run this again",
    OutcomeKind.OTHER_COMPILER: "build the project with the compilers that mlgo corpus compilers writes (CC and CXX)",
    OutcomeKind.LINKED: "compile and link in separate commands (clang -c), so that there are objects with bitcode",
    OutcomeKind.NOT_RESTORED: "install opt of the LLVM that compiled the objects (Debian: llvm-19), or extract the "
    "objects that linked ones were made of, then run this again",
    OutcomeKind.INSTRUMENTED: "build without --coverage and -fprofile-arcs, then run this again",
    OutcomeKind.NEWER_LLVM: "build with the compilers that mlgo corpus compilers writes; or train with the newer LLVM: "
    "--llvm-major N (22: mlgo run --strategy plugin)",
    OutcomeKind.NO_OUTPUT: "compile to objects that stay (clang -c) and record the build again",
    OutcomeKind.NOT_A_COMPILE: "pass a database of the commands that compile C or C++ (CMake's, or that of "
    "bear -- make)",
    OutcomeKind.OUTSIDE: "pass --obj-base-dir with a directory that has all objects, or omit it",
}


@click.command()
@click.option(
    "--unit",
    type=UNIT,
    default="object",
    show_default=True,
    help="What a module is. program: a linked program or shared library, from the links that the compilers of "
    "mlgo corpus compilers --unit program recorded; --input is their directory.",
)
@click.option(
    "--compile-commands",
    type=COMPILE_COMMANDS,
    help="compile_commands.json of a finished build, or its directory; same as --input.",
)
@click.option("--input", "source", help="File that lists the objects, or directory that holds them; see --input-type.")
@click.option(
    "--input-type",
    type=click.Choice(INPUT_TYPES),
    help="json: compile_commands.json; params: the linker's params file; directory: directory of .o files; "
    "bazel_aquery: JSON of bazel aquery. Default: json.",
)
@output_option
@click.option(
    "--thinlto-build",
    "thinlto",
    type=click.Choice(THINLTO_BUILDS),
    help="Kind of the ThinLTO build. local: lld saved the modules below --obj-base-dir, and --input is not needed.",
)
@click.option(
    "--default-args",
    help="Arguments that all modules of local ThinLTO are compiled with: cc1's if they start with -cc1, else clang's.",
)
@click.option("--cmd-filter", help="Keep only modules with a cc1 argument that matches this regular expression.")
@click.option(
    "--obj-base-dir",
    type=PATH,
    help="Directory that module names are relative to; with a linker's arguments, the directory that the linker ran in "
    "(default: the current one).",
)
@click.option("--cmd-section-name", default=".llvmcmd", show_default=True, help="ELF section of the arguments.")
@click.option("--bitcode-section-name", default=".llvmbc", show_default=True, help="ELF section of the bitcode.")
@click.option(
    "--llvm-major",
    type=LLVM_MAJOR,
    help="Version N of the training clang's LLVM: leave out modules of a newer one, which it does not read.",
)
@click.option(
    "--compilers",
    type=TREE,
    help="Directory of the compilers of mlgo corpus compilers: they recorded the build's links, which the report on "
    "linked programs repeats.  [default: that of the compilers in compile_commands.json, else one in the current "
    "directory, in that of the build, or next to that]",
)
@click.option("--num-workers", type=JOBS, help="Threads. Default: all processors.")
@edit_options
@split_options
def extract(
    unit: Unit,
    compile_commands: Path | None,
    source: str | None,
    input_type: InputType | None,
    output: Path,
    thinlto: ThinLto | None,
    default_args: str | None,
    cmd_filter: str | None,
    obj_base_dir: Path | None,
    cmd_section_name: str,
    bitcode_section_name: str,
    llvm_major: int | None,
    compilers: Path | None,
    num_workers: int | None,
    cmd_add: tuple[str, ...],
    cmd_remove: tuple[str, ...],
    cmd_replace: tuple[tuple[str, str], ...],
    **split: Any,
) -> None:
    """Extract the modules of a build that embedded or saved its bitcode.

    Profiles that they were compiled with (-fprofile-use=, -fprofile-sample-use=) are copied to the corpus.

    \b
    Example: only modules that were compiled at -Oz
      mlgo corpus extract --compile-commands build/compile_commands.json \\
        --cmd-filter '^-Oz$' --output corpus
    Example: the objects of a bazel target, compiled with ThinLTO at -O2 or -O3
      mlgo corpus extract --input aquery.json --input-type bazel_aquery \\
        --obj-base-dir "$(bazel info execution_root)" --thinlto-build distributed \\
        --cmd-filter '^-O2$|^-O3$' --output corpus
    Example: modules of local ThinLTO that lld saved
      mlgo corpus extract --thinlto-build local --obj-base-dir build \\
        --default-args "-O2 -fPIC -ffunction-sections" --output corpus
    Example: the programs and shared libraries of a build, each as one module
      mlgo corpus extract --unit program --input compilers --output corpus
    """
    splits = split_config(split)
    edits = parse_edits(cmd_add, cmd_remove, cmd_replace)
    if unit == "program":
        object_options = {
            "--compile-commands": compile_commands,
            "--thinlto-build": thinlto,
            "--default-args": default_args,
            "--input-type": input_type if input_type != "directory" else None,
            "--compilers": compilers,
        }
        links = _require_links(source, [name for name, value in object_options.items() if value is not None])
        programs = ProgramConfig(cmd_filter, llvm_major)
        _extract_programs(links, output, programs, obj_base_dir, edits, splits)
        return
    kind, path, base = _resolve_input(compile_commands, source, input_type, thinlto, obj_base_dir)
    if thinlto == "local" and cmd_filter is not None:
        raise UserError("--cmd-filter needs arguments, and local ThinLTO saves none", "omit --cmd-filter")
    if thinlto != "local" and default_args is not None:
        raise UserError(
            "--default-args is only for --thinlto-build local: objects contain their arguments", "omit --default-args"
        )
    if thinlto == "local" and llvm_major is not None:
        raise UserError("--llvm-major is only for objects, and local ThinLTO saves modules", "omit --llvm-major")
    if thinlto == "local" and edits:
        raise UserError("local ThinLTO saves no arguments to edit", "pass the final arguments in --default-args")
    config = ExtractConfig(cmd_filter, cmd_section_name, bitcode_section_name, num_workers, llvm_major, thinlto)
    contents = read_input(kind, path, base)
    with publish(output, "corpus") as partial:
        about_links = ""
        outcomes = extract_objects(contents.objects, partial, config)
        report = make_report(contents.project, outcomes, contents.left)
        names = [outcome.object.name for outcome in outcomes if outcome.kind == OutcomeKind.EXTRACTED]
        if not names:
            filtered = [f"  {item.name}: {item.detail}" for item in report.skipped if item.kind == OutcomeKind.FILTERED]
            details = "\n".join([f"{path} yields no module: {report.line()}", *report.examples(), *filtered[:1]])
            raise UserError(details, _remedy(report, kind, thinlto))
        write_description(partial, names, thinlto, default_args.split() if default_args else None)
        if thinlto != "local":
            edit_commands(partial, names, edits)
            copy_profiles(partial, names, {item.object.name: item.object.directory for item in outcomes})
        if thinlto is None and kind in ("json", "directory"):
            about_links = write_build_links(partial, outcomes, path, compilers)
        done = write_split_and_report(partial, splits, report)
    announce(output, report, done)
    if about_links:
        say(about_links)
    _announce_newer(outcomes)
    lost = sum(outcome.detail == MISSING_INDEX_WARNING for outcome in outcomes)
    if lost:
        remedy = "they compile to different code; pass --thinlto-build distributed"
        say(f"{lost} modules are {MISSING_INDEX_WARNING}: {remedy}")


def _require_links(source: str | None, unused: list[str]) -> Path:
    """Return the directory of recorded links. UserError if options of other inputs are given."""
    if unused:
        raise UserError(f"{unused[0]} is not for --unit program, whose input is a build's links", f"omit {unused[0]}")
    if source is None:
        raise UserError(
            "extract has no input",
            "pass --input DIR, the directory that mlgo corpus compilers --unit program wrote, after a build with it",
        )
    return _tree(source)


def _extract_programs(
    source: Path, output: Path, config: ProgramConfig, base: Path | None, edits: CommandEdits, splits: SplitConfig
) -> None:
    links = read_links(source)
    with publish(output, "corpus") as partial:
        done = extract_programs(links, partial, config, base.absolute() if base else None)
        project = name_project(base or source)
        report = make_report(project, done.outcomes, shared_functions=done.shared_functions)
        names = [outcome.object.name for outcome in done.outcomes if outcome.kind == OutcomeKind.EXTRACTED]
        if not names:
            details = "\n".join([f"{source} yields no program: {report.line()}", *report.examples()])
            raise UserError(details, "build the project with these compilers, so that it links, and run this again")
        write_description(partial, names)
        edit_commands(partial, names, edits)
        split = write_split_and_report(partial, splits, report)
    announce(output, report, split)
    announce_programs(done)
    _announce_newer(done.outcomes)


def _announce_newer(outcomes: Iterable[Outcome]) -> None:
    """Print which modules a training clang of the default version does not read."""
    newer: dict[int, list[str]] = {}
    for outcome in outcomes:
        if outcome.llvm_major > DEFAULT_LLVM_MAJOR:
            newer.setdefault(outcome.llvm_major, []).append(outcome.object.name)
    for major, names in sorted(newer.items()):
        say(
            f"{describe_newer_llvm([major], DEFAULT_LLVM_MAJOR)}: {list_names(names)}; "
            f"train with --llvm-major {major} or later, or leave them out with --llvm-major {DEFAULT_LLVM_MAJOR}"
        )


def _resolve_input(
    compile_commands: Path | None,
    source: str | None,
    input_type: InputType | None,
    thinlto: ThinLto | None,
    base: Path | None,
) -> tuple[InputType, Path, Path | None]:
    """Return the input that the options select: its kind, its path, and the directory that names are relative to."""
    if compile_commands is not None:
        for flag in ("--input", source), ("--input-type", input_type if input_type != "json" else None):
            if flag[1] is not None:
                raise UserError(f"--compile-commands and {flag[0]} {flag[1]} name two inputs", "omit one of them")
    if thinlto == "local":
        if compile_commands is not None or input_type not in (None, "directory") or (source and not input_type):
            raise UserError(
                "--thinlto-build local takes no list of objects: lld saves the modules next to them",
                "omit the input, and pass --obj-base-dir with the directory that holds the *.3.import.bc files",
            )
        return "saved", _tree(source) if source else base or Path(), base if source else None
    if compile_commands is not None:
        return "json", compile_commands, base
    if source is None:
        raise UserError(
            "extract has no input",
            "pass --compile-commands FILE, or --input PATH with --input-type, or --thinlto-build local",
        )
    kind: InputType = input_type or "json"
    if kind == "directory":
        return kind, _tree(source), base
    if kind == "json":
        if os.path.isdir(source) and not os.path.isfile(os.path.join(source, DATABASE)):
            raise UserError(
                f"--input {source} is a directory without a {DATABASE}",
                "pass --input-type directory for the objects in it, or the database of the build",
            )
        return kind, COMPILE_COMMANDS.convert(source, None, None), base
    return kind, FILE.convert(source, None, None), base


def _tree(source: str) -> Path:
    return TREE.convert(source, None, None)


def _remedy(report: CorpusReport, kind: InputType, thinlto: ThinLto | None) -> str:
    kinds = Counter(item.kind for item in report.skipped if item.kind != OutcomeKind.ASSEMBLY)
    if set(kinds) <= {OutcomeKind.MISSING, OutcomeKind.OUTSIDE} and kind in ("params", "bazel_aquery"):
        return "pass --obj-base-dir with the directory that the linker ran in (bazel info execution_root)"
    cause = kinds.most_common(1)[0][0] if kinds else ""
    if cause in _REMEDIES:
        return _REMEDIES[cause]
    if cause == OutcomeKind.FILTERED:
        levels = ", ".join(f"{name} {problems.get(name).cmd_filter}" for name in problems.names())
        return (
            f"build at the level of the problem ({levels}; mlgo run --problem). If the project appends its own level, "
            "as CMake's build types do (RelWithDebInfo -O2, Release -O3; a project may set one itself), run mlgo "
            "corpus compilers --output DIR and build with -DCMAKE_C_COMPILER=$PWD/DIR/clang "
            "-DCMAKE_CXX_COMPILER=$PWD/DIR/clang++ (or CC and CXX), whose level wins. To take these modules as they "
            "are, pass another --cmd-filter to mlgo corpus extract: it is searched for in each argument separately"
        )
    return _EMBED_REMEDY[thinlto]
