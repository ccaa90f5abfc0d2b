"""The tables of parameters, one for each pipeline. A new parameter is a row here and its use in the pipeline.

KFP wants the names and the defaults a second time, in the signature of the pipeline, and the arguments of the
components; a test compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from components.core import problems
from components.core.formats.embeddings import RANDOM
from components.core.formats.policy import HEURISTIC, PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.formats.strategy import DEFAULT_LLVM_MAJOR, LLVM_SOURCES, FeatureSet, Strategy, Targets
from components.core.projects.flags.options import RowNames
from components.evaluation.config import RELEASE_IF, RELINK
from components.platform.console import PRESETS
from components.platform.console.number_types import (
    FINITE_FLOAT,
    JOBS,
    LLVM_MAJOR,
    MINUTES,
    POSITIVE_MINUTES,
    REDUCTION_PERCENT,
    REPEATS,
    SEED,
)
from components.platform.storage.downloads.archive import USAGE as ARCHIVE_USAGE
from components.platform.storage.uri import Words
from components.ppo.config import Algorithm, CreditAssignment, SizeOf
from components.toolchain.option_types import CmakeDefinitions, CodeGenerators, ProjectNames
from pipelines.local.cache_inputs import identify_clang, identify_path
from pipelines.parameters.code import CODE
from pipelines.parameters.parameter import Option, Parameter, Reference
from pipelines.smoke.rows import FAIL_ONCE

START_WORDS = Words((HEURISTIC, *PRETRAINED_NAMES))
"""Values of `start_from` that are not the path or URI of a policy."""
TRAINING = (
    *CODE,
    Parameter(
        "problem",
        "Decision that the policy makes: `inlining`, for size, or `regalloc`, for speed.",
        type=click.Choice(problems.names()),
        default="inlining",
        example="inlining",
        option=Option(),
    ),
    Parameter(
        "preset",
        "Amount of training: `tiny` only shows that everything works, `demo` takes 20 minutes in total, `full` trains "
        "for an hour.",
        type=click.Choice(PRESETS),
        default="demo",
        example="demo",
        option=Option(),
    ),
    Parameter(
        "train_minutes",
        "Minutes of training, a number.",
        type=POSITIVE_MINUTES,
        empty="the preset's",
        example="60",
        option=Option("M"),
    ),
    Parameter(
        "strategy",
        "How a clang gets the policy. `sdk`: it is linked with it. `plugin`: the installed clang loads it as a pass "
        "plugin; inlining only. `external`: training uses {clang}, the release clang is one of these two.",
        type=click.Choice(get_args(Strategy)),
        default="sdk",
        example="plugin",
        option=Option(),
    ),
    Parameter(
        "targets",
        "Code generators of the clangs: `native`, or `all` for code of other processors.",
        type=click.Choice(get_args(Targets)),
        default="native",
        example="all",
        option=Option(),
    ),
    Parameter(
        "llvm_major",
        "Major version of LLVM whose clang is trained and released: 19; with {strategy=plugin} or {llvm_source} also "
        "22.",
        type=LLVM_MAJOR,
        default=DEFAULT_LLVM_MAJOR,
        example="19",
        option=Option("N"),
    ),
    Parameter(
        "llvm_source",
        "Source of LLVM's matching files: `deb`, `git:TAG`, a path or a URI.",
        default="deb",
        example="git:llvmorg-19.1.7",
        option=Option("deb|git:TAG|PATH|URI"),
        reference=Reference(identify_path, words=LLVM_SOURCES),
    ),
    Parameter(
        "sdk",
        "Path or URI of the LLVM that the clangs are linked from, built by `mlgo toolchain --mode sdk`.",
        empty="the installed one",
        option=Option("DIR|URI"),
        reference=Reference(identify_path),
    ),
    Parameter(
        "clang",
        "Path of a training clang that others built in LLVM's development mode, where all steps find it. Only for "
        "{strategy=external}.",
        option=Option("PATH"),
        reference=Reference(identify_clang, kind="program"),
    ),
    Parameter(
        "workers",
        "Where modules are compiled: `local` or `local:N`, N at a time; `ray:HOST:PORT`, a Ray cluster. `rayjob:N`, "
        "only in a pipeline on Kubernetes, applies to the training: a Ray cluster of up to N pods that KubeRay starts "
        "for it; all other steps then use `local`.",
        default="local",
        example="local:4",
        option=Option("KIND[:N]"),
    ),
    Parameter(
        "spot_node_label",
        "LABEL=VALUE, label (and taint) of the nodes that the workers of that Ray cluster run on.",
        empty="any node",
    ),
    Parameter(
        "ray_cluster_options",
        "NAME=VALUE,..., settings of that Ray cluster; see `mlgo ppo --help`.",
        empty="defaults",
    ),
    Parameter(
        "seed",
        "Random seed of all steps: the same seed gives the same training, if compiles limit it and not time.",
        type=SEED,
        default=1,
        example="1",
        option=Option("N"),
    ),
    Parameter(
        "min_reduction_percent",
        "Percentage by which held-out modules must shrink, or lower their scores, for the verdict `better`, a number.",
        type=REDUCTION_PERCENT,
        empty=problems.describe_field("min_reduction_percent"),
        example="0.5",
        option=Option("X"),
    ),
    Parameter(
        "max_slowdown_percent",
        "For inlining with {recipe} or {benchmark}: the verdict is not `better` if the recipe's benchmarks, together "
        "or one of them, or the command, execute more than this percentage of additional instructions, a number.",
        type=FINITE_FLOAT,
        empty="no limit",
        example="5",
        option=Option("X"),
    ),
    Parameter(
        "time_repeats",
        "With {recipe} or {benchmark}: runs of each benchmark with each build, to compare processor time; register "
        "allocation is not `better` if programs take more. 0: none.",
        type=REPEATS,
        default=0,
        example="20",
        option=Option("N"),
    ),
    Parameter(
        "relink",
        "For inlining with {compile_commands}, {input} or {corpus}: `yes`, the report links the programs of your build "
        "again, and the verdict is on them; `no`, it is on the held-out modules.",
        type=click.Choice(RELINK),
        default="yes",
        example="no",
        option=Option(),
    ),
    Parameter(
        "benchmark",
        "With {compile_commands}, {input} or {corpus}: shell command that runs programs of your build, which the "
        "report links again; counts its instructions. It runs in a directory with the linked files at their paths in "
        "the build directory, which is $BUILD.",
        example="'./program input'",
        empty="none",
        option=Option("COMMAND"),
    ),
    Parameter(
        "flag_rows",
        "For inlining with {recipe}: rows of `mlgo evaluation flags`, separated by commas, or `all`. Its programs are "
        "also linked under these; the verdict is `better`, and there is a plan, only if they are smaller than by stock "
        "clang, each under its best row.",
        type=RowNames(),
        empty="none",
        example="layout,lto,program",
        option=Option("NAMES"),
    ),
    Parameter(
        "release_if",
        "`better`: the release clang embeds the trained policy only if the verdict is `better`; otherwise the policy "
        "of {start_from}, or from `heuristic` a pretrained one, takes its place if the verdict on that is, and else "
        "none is built. `always`: it embeds the trained policy whatever the verdict, unless its start is better.",
        type=click.Choice(RELEASE_IF),
        default="better",
        example="always",
    ),
    Parameter(
        "oversample_modules",
        "Modules that the previous policy made larger; see `mlgo ppo --help`.",
        empty="those of `retrain_state`",
        reference=Reference(identify_path),
    ),
    Parameter(
        "extra_policy",
        "Path or URI of a policy for another problem that the release clang embeds as well.",
        option=Option("DIR", click.Path(path_type=Path, exists=True, file_okay=False)),
        reference=Reference(identify_path, archives=True),
    ),
    Parameter(
        "start_from",
        f"Policy that training starts from: `{HEURISTIC}`, one that imitates LLVM's heuristic; one that comes with "
        f"this project (`{'`, `'.join(PRETRAINED_NAMES)}`; {PRETRAINED_HELP}); or the path or URI of one of yours, or "
        f"of an archive of it on a web server ({ARCHIVE_USAGE}).",
        empty="the deployed policy of `retrain_state`, or `heuristic`",
        option=Option("|".join([HEURISTIC, *PRETRAINED_NAMES, "DIR", "URI"]), default=HEURISTIC),
        reference=Reference(identify_path, words=START_WORDS, archives=True),
    ),
    Parameter(
        "features",
        "Features of the policy: `extended`, all numbers that our training clang logs; `llvm`, those of upstream LLVM; "
        "`ir2vec` (experimental), all numbers and embeddings of functions, with {strategy=plugin} and {llvm_major=22}.",
        type=click.Choice(get_args(FeatureSet)),
        default="extended",
        empty="`extended`, or `llvm` with the strategy `external`",
        example="llvm",
        option=Option(default=""),
    ),
    Parameter(
        "ir2vec_vocab",
        "Vocabulary of these embeddings: a file of LLVM's format, or `random` vectors.",
        empty="none",
        option=Option("random|FILE|URI"),
        reference=Reference(identify_path, words=Words((RANDOM,))),
    ),
    Parameter(
        "algorithm",
        "`ppo`, `dqn` or `es`.",
        type=click.Choice(get_args(Algorithm)),
        empty="the problem's default; `ppo` from a trained policy",
        example="ppo",
    ),
    Parameter(
        "credit_assignment",
        "How training learns what a decision is worth: `counterfactual`, `function` or `module`.",
        type=click.Choice(get_args(CreditAssignment)),
        empty="the algorithm's default",
        example="function",
    ),
    Parameter(
        "size_of",
        "`linked` weights a function's bytes by the share that the project's link keeps, `modules` counts all.",
        type=click.Choice(get_args(SizeOf)),
        default="linked",
        example="modules",
    ),
    Parameter(
        "gin_bindings",
        "Hyperparameters, separated by semicolons: `PpoParameters.learning_rate=1e-4;...`.",
        empty="defaults",
    ),
    Parameter(
        "tune_minutes",
        "Minutes of search for a plan, a number: inlining decisions that make the corpus' own modules smallest.",
        type=POSITIVE_MINUTES,
        empty="no search",
        example="15",
        option=Option("M"),
    ),
    Parameter(
        "retrain_state",
        "URI of the state of retraining: training starts from the deployed policy, and the last step promotes the new "
        "one if it is clearly better, or records why not.",
        empty="nothing is promoted",
        reference=Reference(identify_path, kind="state"),
    ),
    Parameter(
        "promoted_by",
        "Person or account that promotes, for the state's history.",
        empty="the account of the step",
    ),
    Parameter(
        "model_registry",
        "Registry where the last step registers what is deployed then: `vertex:PROJECT/REGION`, or the URL of "
        "Kubeflow's.",
        empty="none",
    ),
)
"""Of the pipeline that trains, in the order of its signature. Those with an `option` are options of `mlgo run`."""

SDK = (
    Parameter(
        "llvm_source",
        "LLVM's source: `deb`, `git:TAG`, or the path or URI of llvm-project.",
        default="deb",
        example="git:llvmorg-19.1.7",
        reference=Reference(identify_path, words=LLVM_SOURCES),
    ),
    Parameter("llvm_major", "Major version of LLVM: 19 or 22.", LLVM_MAJOR, DEFAULT_LLVM_MAJOR, example="19"),
    Parameter(
        "targets",
        "Code generators: `native`, `all`, or LLVM's names with commas between, such as `X86,AArch64`.",
        type=CodeGenerators(),
        default="native",
        example="X86,AArch64",
    ),
    Parameter(
        "projects",
        "Projects of llvm-project to configure next to clang and lld, such as `polly`, with commas between.",
        type=ProjectNames(),
        example="polly",
    ),
    Parameter(
        "definitions",
        "Variables of LLVM's CMake project: `NAME=VALUE NAME='VALUE WITH BLANKS'`.",
        type=CmakeDefinitions(),
        example="LLVM_ENABLE_LTO=Thin",
    ),
    Parameter("jobs", "Parallel compiles.", JOBS, empty="the processors that the step has", example="32"),
)

SHRINK = (
    Parameter(
        "source",
        "Path or URI of the source tree, or URL of an archive of it.",
        example="gs://BUCKET/source",
        reference=Reference(identify_path, archives=True),
    ),
    Parameter(
        "command",
        "Shell command of the build, with its configure step.",
        empty="that of the tree's build system",
        example="./configure && make -j$JOBS",
    ),
    Parameter(
        "check",
        "Shell command that tests what was built.",
        empty="the build's tests, or what its programs print",
        example="make check",
    ),
    Parameter(
        "release_toolchain",
        "Path or URI of a release clang.",
        empty="one with the pretrained policies",
        example="gs://BUCKET/release",
        reference=Reference(identify_path),
    ),
    Parameter(
        "minutes",
        "Wall time of a search for better inlining decisions, 0 for none.",
        MINUTES,
        default=0,
        example="10",
    ),
)

SMOKE = (
    Parameter(
        "fail_once",
        "Whether a step fails once, on purpose: `auto`, on servers that are known to repeat it; `yes`, on every "
        "server, and the run fails where it is not repeated; `no`.",
        type=click.Choice(FAIL_ONCE),
        default="auto",
        example="no",
    ),
    Parameter(
        "ray_cluster_options",
        "NAME=VALUE,..., settings of the Ray cluster of one pod; see `mlgo ppo --help`.",
        empty="defaults",
    ),
)

TABLES = {"training": TRAINING, "sdk": SDK, "shrink": SHRINK, "smoke": SMOKE}
"""Name of a compiled pipeline -> its parameters."""
BY_NAME = {parameter.name: parameter for parameter in TRAINING}
PLACES = tuple(one.name for one in TRAINING if one.reference and one.reference.kind == "location")
"""Parameters that may be the path or URI of something that exists."""
