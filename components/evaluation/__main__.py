"""Command line of the evaluation step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from components.core import problems
from components.core.compiler.options import ALLOW_CC1_OPTION
from components.core.formats.corpus import Part
from components.core.formats.policy import PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.objectives import OBJECTIVES
from components.core.projects.flags.options import RowNames
from components.core.projects.option import CORPUS, RECIPE, TRUST_CORPUS
from components.evaluation.config import MATCHING, RELEASE_IF, RELINK, THRESHOLDS, EvaluationConfig
from components.evaluation.projects import commands
from components.evaluation.report import terminal_report
from components.evaluation.report.formatting import projects_line
from components.evaluation.report.policy_choice import release_notes
from components.platform.command import run_step
from components.platform.console import preset_option, say
from components.platform.console.number_types import FINITE_FLOAT, FRACTION, JOBS, REDUCTION_PERCENT, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT, OUTPUT, PROGRAM, UNMANAGED_FILES, ArtifactOr
from components.platform.workers.factory import HELP as WORKERS_HELP

_POLICY = click.option(
    "--policy",
    type=ArtifactOr(*PRETRAINED_NAMES),
    required=True,
    help=f"Policy to evaluate, one of yours or a pretrained one ({PRETRAINED_HELP}).",
)
_MAX_FAILED_FRACTION = click.option(
    "--max-failed-fraction", type=FRACTION, default=0.05, show_default=True, help="Maximum fraction of failed modules."
)


class _DefaultCommand(click.Group):
    """A group whose default command is "run", so that the step is called like every other step."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultCommand)
def main() -> None:
    """Evaluate a policy on code that it was not trained on."""


@main.command("run")
@preset_option({"tiny": {"thresholds": "15"}})
@click.option("--corpus", type=CORPUS, required=True, help="Corpus whose held-out modules are compiled.")
@click.option(
    "--toolchain",
    "--training-toolchain",
    "toolchain",
    type=ARTIFACT,
    required=True,
    help="Training clang: compiles baseline, warmstart and sweep.",
)
@_POLICY
@click.option("--output", type=OUTPUT, required=True, help="Directory for report.csv, metrics.json and report.html.")
@click.option(
    "--release-toolchain",
    type=ARTIFACT,
    help="Release clang that embeds the policy. Without it, and always for scores, the training clang runs the policy.",
)
@click.option("--warmstart", type=ARTIFACT, help="Warmstart policy to compare with.")
@click.option(
    "--compare-with",
    type=ArtifactOr(*PRETRAINED_NAMES, MATCHING),
    help="Another policy to compare with; matching: the pretrained one that could replace the policy. A pretrained one "
    "is left out where it does not fit the training clang.",
)
@click.option(
    "--evaluation",
    type=ARTIFACT,
    help="Earlier evaluation by the training clang: its measurements are reused, only the release clang compiles. The "
    "policy may be the one that it evaluated, its warmstart policy, or the pretrained one that it compared with.",
)
@click.option(
    "--trace",
    type=ARTIFACT,
    help="Trace of the training: tells which functions of held-out modules training compiled, too.",
)
@click.option(
    "--release-if",
    type=click.Choice(RELEASE_IF),
    default="better",
    show_default=True,
    help="Verdict for which a release clang is to embed this policy; otherwise the one that training started from, or "
    "a pretrained one, takes its place, or none is built: `release_policy` in metrics.json. always: whatever the "
    "verdict, unless the policy is not better than its start.",
)
@click.option(
    "--ppo-root",
    type=UNMANAGED_FILES,
    help="Root directory of the training, for the curve of its rewards (training.csv).  [default: the policy]",
)
@click.option(
    "--recipe",
    type=RECIPE,
    help="Recipes of held-out projects: builds them and compares executed instructions and, for size, linked binaries.",
)
@click.option(
    "--stock-clang", type=PROGRAM, help="Clang of the baseline of whole builds.  [default: the installed clang-N]"
)
@click.option(
    "--min-reduction-percent",
    type=REDUCTION_PERCENT,
    help=f"Minimum reduction for the verdict `better`.  [default: {problems.describe_field('min_reduction_percent')}]",
)
@click.option(
    "--max-slowdown-percent",
    type=FINITE_FLOAT,
    help="Not `better` if the recipe's benchmarks, together or one of them, or --benchmark, execute this much more "
    "instructions.  "
    "[default: no limit]",
)
@commands.TIME_REPEATS
@click.option(
    "--relink",
    type=click.Choice(RELINK),
    default="yes",
    show_default=True,
    help="Whether to link the programs of your own build again, for stock clang and for the release clang, where a "
    "corpus knows how. no: the verdict is on the held-out modules.",
)
@click.option(
    "--benchmark",
    default="",
    metavar="COMMAND",
    help="Shell command that runs programs of your own build, which are linked again where a corpus knows how; counts "
    "its instructions. It runs in a directory with the linked files at their paths in the build directory, which is "
    "$BUILD.",
)
@click.option("--problem", default="inlining", show_default=True, help="Optimization problem.")
@click.option("--workers", default="local", show_default=True, help=WORKERS_HELP)
@click.option("--timeout-s", type=TIMEOUT_S, default=60.0, show_default=True, help="Time limit of one compile.")
@_MAX_FAILED_FRACTION
@click.option(
    "--thresholds",
    default=",".join(map(str, THRESHOLDS)),
    show_default=True,
    help="-inline-threshold sweep; '' for none. Problems with scores have no sweep.",
)
@click.option(
    "--jobs", type=JOBS, default=commands.PROCESSORS, help="Parallel compiles in whole builds.  [default: processors]"
)
@ALLOW_CC1_OPTION
@TRUST_CORPUS
@commands.LINK_VARIANT
@click.option(
    "--flag-rows",
    type=RowNames(),
    default="",
    metavar="NAMES",
    help="Also build the programs of --recipe under these rows of flags (separated by commas; all: every one), twice "
    "each, as `flags` does; `not better` if they are not smaller than by stock clang, each under its best "
    "row.  [default: none]",
)
@click.option(
    "--fail-if-not-better", is_flag=True, help=f"Exit status {commands.EXIT_NOT_BETTER} unless the verdict is 'better'."
)
@click.option("--quiet", is_flag=True, help="Do not print the table; `show` prints it later.")
@click.pass_context
def run(
    context: click.Context,
    policy: Path | str,
    thresholds: str,
    problem: str,
    fail_if_not_better: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Compile the held-out modules of a corpus and compare the policy with LLVM's heuristic.

    \b
    inlining: text size under -Oz's heuristic, under the warmstart policy, under the policy embedded in a
              release clang, and under -Oz with other inline thresholds.
    regalloc: LLVM's score of each function under its heuristic, under the warmstart policy and under the policy, all
              by the training clang; with --release-toolchain and --recipe also the instructions of whole programs.

    Results for unseen modules of known projects and for unseen projects are listed separately. The exit status is 0
    for every verdict, unless --fail-if-not-better is given.

    \b
    Example:
      mlgo evaluation --corpus runs/demo/corpus --toolchain runs/demo/training \\
          --release-toolchain runs/demo/release --policy runs/demo/policy \\
          --warmstart runs/demo/warmstart --output runs/demo/evaluation
      mlgo evaluation run --problem regalloc --corpus runs/ra/corpus --toolchain runs/ra/training \\
          --policy runs/ra/policy --warmstart runs/ra/warmstart --output runs/ra/evaluation
      mlgo evaluation run --corpus corpus --toolchain training --policy pretrained --output evaluation

    \b
    Other commands (each has its --help):
      mlgo evaluation compare-binaries   linked programs and libraries of whole projects
      mlgo evaluation compare-builds     two build trees of your own
      mlgo evaluation compare-programs   instructions that such programs execute
      mlgo evaluation modules            values of modules of any corpus, without a verdict
      mlgo evaluation flags              linked programs under rows of flags: LTO, ICF and others
      mlgo evaluation select-policy      copy the policy that a release clang is to embed
      mlgo evaluation show               print the table of a finished evaluation
    """
    sweep = _thresholds(thresholds)
    if not OBJECTIVES[problems.get(problem).objective].sweeps_thresholds:
        if sweep and context.get_parameter_source("thresholds") == ParameterSource.COMMANDLINE:
            raise UserError(
                f"--thresholds changes inlining, but the scores of {problem} are compared on the same inlined code",
                "leave --thresholds out",
            )
        sweep = ()
    # These imports take half a second (matplotlib, NumPy); --help does not need them.
    from components.evaluation.evaluate import evaluate
    from components.evaluation.inputs import find_pretrained
    from components.evaluation.tracking import track_evaluation

    if isinstance(policy, str):
        inputs = (options[name] for name in ("toolchain", "release_toolchain", "evaluation"))
        policy = find_pretrained(policy, problem, *inputs)
    config = EvaluationConfig(policy=policy, thresholds=sweep, problem=problem, **options)
    metrics = evaluate(config)
    track_evaluation(config.output, metrics)
    if quiet:
        # A server's log has no other verdict; `pipelines.finish` reads both lines.
        say(terminal_report.footer_lines(metrics, config.output.absolute())[0])
        if len(metrics.per_project) > 1:
            say(projects_line({name: part.reduction_percent for name, part in metrics.per_project.items()}))
    else:
        terminal_report.print_table(metrics, config.output.absolute())
    return commands.EXIT_NOT_BETTER if fail_if_not_better and metrics.verdict != "better" else 0


main.add_command(commands.compare_binaries)
main.add_command(commands.compare_builds)
main.add_command(commands.compare_programs)
main.add_command(commands.flags)


@main.command("modules", short_help="Values of modules of any corpus, as CSV, without a verdict.")
@click.option("--corpus", type=CORPUS, required=True, help="Corpus to compile, with or without a split.")
@click.option("--toolchain", type=ARTIFACT, required=True, help="Training clang.")
@_POLICY
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="CSV file to write.")
@click.option(
    "--part", type=click.Choice(get_args(Part)), default="all", show_default=True, help="Part of the split to compile."
)
@click.option(
    "--release-toolchain", type=ARTIFACT, help="Release clang that embeds the policy.  [default: the training clang]"
)
@click.option("--problem", default="inlining", show_default=True, help="Optimization problem.")
@click.option("--workers", default="local", show_default=True, help=WORKERS_HELP)
@click.option("--timeout-s", type=TIMEOUT_S, default=60.0, show_default=True, help="Time limit of one compile.")
@_MAX_FAILED_FRACTION
@ALLOW_CC1_OPTION
@TRUST_CORPUS
def modules(policy: Path | str, part: Part, problem: str, **options: Any) -> None:
    """Compile modules of a corpus under LLVM's heuristic and under a policy, and write both values of each.

    The CSV file has the columns of the performance report of ml-compiler-opt's demos: module, identifier, value under
    the heuristic (bytes of text, or the score of a function), value under the policy. There is no verdict: figures of
    modules that the policy was trained on say little about others.

    \b
    Example:
      mlgo evaluation modules --corpus corpus --toolchain training --policy pretrained --output sizes.csv
      mlgo evaluation modules --corpus runs/demo/corpus --part validation --toolchain runs/demo/training \\
          --policy runs/demo/policy --output validation.csv
    """
    from components.evaluation.inputs import find_pretrained
    from components.evaluation.measurements import POLICY
    from components.evaluation.module_values import measure_modules

    if isinstance(policy, str):
        policy = find_pretrained(policy, problem, options["toolchain"], options["release_toolchain"], None)
    config = EvaluationConfig(policy=policy, thresholds=(), problem=problem, **options)
    measured = measure_modules(config, part)
    quantity, reduction = measured.objective.labels.quantity, measured.compare(POLICY).reduction_percent
    change = "nothing to compare"
    if reduction is not None:
        change = f"{quantity} under the policy: {abs(reduction):.2f}% {'less' if reduction >= 0 else 'more'}"
    failed = f", {len(measured.excluded)} failed" if measured.excluded else ""
    say(f"{config.output}: {len(measured.modules)} modules{failed}; {change}")


@main.command("select-policy", short_help="Copy the policy that a release clang is to embed.")
@click.option("--evaluation", type=ARTIFACT, required=True, help="Evaluation of the trained policy.")
@click.option("--policy", type=ARTIFACT, required=True, help="The trained policy.")
@click.option("--start", type=ARTIFACT, required=True, help="Policy that training started from: the warmstart.")
@click.option("--toolchain", type=ARTIFACT, required=True, help="Training clang, which compiles a pretrained policy.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the copy.")
def select_policy(evaluation: Path, policy: Path, start: Path, toolchain: Path, output: Path) -> None:
    """Copy the policy that an evaluation chose for the release clang: `release_policy` in its metrics.json.

    \b
    Example:
      mlgo evaluation select-policy --evaluation runs/demo/evaluation --policy runs/demo/policy \\
          --start runs/demo/warmstart --toolchain runs/demo/training --output runs/demo/release_policy
    """
    from components.evaluation.release_policy import publish_release_policy

    chosen = publish_release_policy(evaluation, policy, start, toolchain, output)
    say(f"policy for the release clang: {chosen}")
    for note in release_notes(terminal_report.read_metrics(evaluation)):
        say(note)


@main.command("show")
@click.option("--metrics", type=ARTIFACT, required=True, help="An evaluation, or its metrics.json.")
def show(metrics: Path) -> None:
    """Print the table of a finished evaluation.

    \b
    Example:
      mlgo evaluation show --metrics runs/demo/evaluation
    """
    directory = metrics if metrics.is_dir() else metrics.parent
    terminal_report.print_table(terminal_report.read_metrics(metrics), directory.absolute())


def _thresholds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise UserError(f"--thresholds {text!r} is not a list of whole numbers", "write it as 0,5,15") from None


if __name__ == "__main__":
    run_step(main)
