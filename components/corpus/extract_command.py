"""mlgo corpus extract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from components.console import UserError, say
from components.console.number_types import JOBS
from components.corpus.command_edits import edit_commands, edit_options, edits_of
from components.corpus.extract import ExtractConfig, extract_objects
from components.corpus.finish import announce, finish, split_config
from components.corpus.inputs import INPUT_TYPES, InputType, read_input
from components.corpus.options import PATH, output_option, split_options
from components.corpus.outcome import EXTRACTED, FILTERED, MISSING
from components.corpus.profiles import bring_profiles
from components.corpus.report import OUTSIDE, Report, make_report
from components.corpus.thinlto import BUILDS, INDEX_LOST, ThinLto
from components.formats.corpus import write_description
from components.storage import publish
from components.storage.options import FILE, TREE

_EMBED = {
    None: "build the project with clang and -Xclang -fembed-bitcode=all (no -flto), then run this again",
    "distributed": "give -mllvm -lto-embed-bitcode=post-merge-pre-opt to clang -fthinlto-index=, then run this again",
    "local": "link with clang -fuse-ld=lld -Wl,--save-temps=import -Wl,--thinlto-emit-index-files, then run this again",
}


@click.command()
@click.option("--compile-commands", type=FILE, help="compile_commands.json of a finished build; as --input.")
@click.option("--input", "source", help="What names the objects: a file, or a directory that holds them.")
@click.option(
    "--input-type", type=click.Choice(INPUT_TYPES),
    help="compile_commands.json; the linker's params file; directory of .o files; JSON of bazel aquery. Default: json.",
)
@output_option
@click.option(
    "--thinlto-build", "thinlto", type=click.Choice(BUILDS),
    help="The build's ThinLTO. local: lld saved the modules below --obj-base-dir; there is no --input.",
)
@click.option(
    "--default-args",
    help="Of local: what all modules are compiled with, cc1's arguments behind -cc1, or else clang's.",
)
@click.option("--cmd-filter", help="Keep modules of which one cc1 argument matches this regular expression.")
@click.option(
    "--obj-base-dir", type=PATH,
    help="Directory that modules are named relative to; with a linker's arguments, where it ran (default: here).",
)
@click.option("--cmd-section-name", default=".llvmcmd", show_default=True, help="ELF section of the arguments.")
@click.option("--bitcode-section-name", default=".llvmbc", show_default=True, help="ELF section of the bitcode.")
@click.option("--num-workers", type=JOBS, help="Threads. Default: all processors.")
@edit_options
@split_options
def extract(
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
    num_workers: int | None,
    cmd_add: tuple[str, ...],
    cmd_remove: tuple[str, ...],
    cmd_replace: tuple[tuple[str, str], ...],
    **split: Any,
) -> None:
    """Extracts the modules of a build that embedded or saved its bitcode.

    Profiles that they were compiled with (-fprofile-use=, -fprofile-sample-use=) become part of the corpus.

    \b
    Example: only what was compiled at -Oz
      python -m components.corpus extract --compile-commands build/compile_commands.json \\
        --cmd-filter '^-Oz$' --output corpus
    Example: what bazel links, compiled with ThinLTO, at any of two levels
      python -m components.corpus extract --input aquery.json --input-type bazel_aquery \\
        --obj-base-dir "$(bazel info execution_root)" --thinlto-build distributed \\
        --cmd-filter '^-O2$|^-O3$' --output corpus
    Example: what lld compiled and saved
      python -m components.corpus extract --thinlto-build local --obj-base-dir build \\
        --default-args "-O2 -fPIC -ffunction-sections" --output corpus
    """
    splits = split_config(split)
    edits = edits_of(cmd_add, cmd_remove, cmd_replace)
    kind, path, base = _place(compile_commands, source, input_type, thinlto, obj_base_dir)
    if thinlto == "local" and cmd_filter is not None:
        raise UserError("--cmd-filter has nothing to filter: local ThinLTO saves no arguments", "leave it out")
    if thinlto != "local" and default_args is not None:
        raise UserError("--default-args is for --thinlto-build local: objects have their own arguments", "leave it out")
    if thinlto == "local" and edits:
        raise UserError("local ThinLTO saves no arguments to change", "give the right ones in --default-args")
    config = ExtractConfig(cmd_filter, cmd_section_name, bitcode_section_name, num_workers, thinlto)
    found = read_input(kind, path, base)
    with publish(output) as partial:
        outcomes = extract_objects(found.objects, partial, config)
        report = make_report(found.project, outcomes, found.left)
        names = [outcome.object.name for outcome in outcomes if outcome.kind == EXTRACTED]
        if not names:
            details = "\n".join(report.examples())
            raise UserError(f"{path} yields no module: {report.line()}\n{details}", _remedy(report, kind, thinlto))
        write_description(partial, names, thinlto, default_args.split() if default_args else None)
        if thinlto != "local":
            edit_commands(partial, names, edits)
            bring_profiles(partial, names, {item.object.name: item.object.directory for item in outcomes})
        done = finish(partial, splits, report)
    announce(output, report, done)
    lost = sum(outcome.detail == INDEX_LOST for outcome in outcomes)
    if lost:
        say(f"{lost} modules are {INDEX_LOST}: they compile to other code; pass --thinlto-build distributed")


def _place(
    compile_commands: Path | None,
    source: str | None,
    input_type: InputType | None,
    thinlto: ThinLto | None,
    base: Path | None,
) -> tuple[InputType, Path, Path | None]:
    """The one input that the flags name: its kind, its place, and the directory that names are relative to."""
    if compile_commands is not None:
        for flag in ("--input", source), ("--input-type", input_type if input_type != "json" else None):
            if flag[1] is not None:
                raise UserError(f"--compile-commands and {flag[0]} {flag[1]} name two inputs", "leave one of them out")
    if thinlto == "local":
        if compile_commands is not None or input_type not in (None, "directory") or (source and not input_type):
            raise UserError(
                "--thinlto-build local takes no list of objects: lld saves the modules beside them",
                "leave the input out, and pass --obj-base-dir with the directory that holds the *.3.import.bc files",
            )
        return "saved", _tree(source) if source else base or Path(), base if source else None
    if compile_commands is not None:
        return "json", compile_commands, base
    if source is None:
        raise UserError(
            "there is nothing to extract from",
            "pass --compile-commands FILE, or --input PLACE with --input-type, or --thinlto-build local",
        )
    kind: InputType = input_type or "json"
    return kind, _tree(source) if kind == "directory" else FILE.convert(source, None, None), base


def _tree(source: str) -> Path:
    return TREE.convert(source, None, None)


def _remedy(report: Report, kind: InputType, thinlto: ThinLto | None) -> str:
    left = {item.kind for item in report.left}
    if left <= {MISSING, OUTSIDE} and kind in ("params", "bazel_aquery"):
        return "pass --obj-base-dir with the directory that the linker ran in (bazel info execution_root)"
    if FILTERED in left:
        return (
            "build at a level that the problem is one at, or pass mlgo corpus extract another --cmd-filter: it is"
            " searched for in each argument on its own"
        )
    return _EMBED[thinlto]
