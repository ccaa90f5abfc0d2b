"""The steps of a whole run, what each reads and what each is called with. The only place that says so.

    training clang ─┐
    corpus ─────────┴─ trace ── vocab ── warmstart ── ppo ── release clang ── evaluation
"""

from __future__ import annotations

from pathlib import Path

from pipelines.facts import build_facts, content_facts, recipe_facts, toolchain_facts
from pipelines.options import RunOptions
from pipelines.step import Step


def chain(options: RunOptions) -> tuple[Step, ...]:
    """The steps of one run, each after those whose artifacts it reads."""
    amounts = options.amounts
    problem = ("--problem", options.problem)
    llvm = ("--llvm-major", str(options.llvm_major))
    installed = toolchain_facts(options.llvm_major)
    # A source tree of the user's may change where it stands; a tag and a package of one version do not.
    source = Path(options.llvm_source)
    built_from = (*installed, *(content_facts(source) if source.is_dir() else ()))
    return (
        Step(
            name="toolchain-training",
            output="training",
            module="components.toolchain",
            arguments=("--mode", "training", *llvm, "--llvm-source", options.llvm_source, "--output", "{output}"),
            facts=built_from,
        ),
        _corpus(options, installed),
        Step(
            name="trace",
            output="trace",
            module="components.trace",
            arguments=(
                "--corpus", "{corpus}", "--toolchain", "{training}", *problem, "--workers", options.workers,
                "--output", "{output}",
            ),
            inputs=("corpus", "training"),
        ),
        Step(
            name="vocab",
            output="vocab",
            module="components.vocab",
            arguments=("--trace", "{trace}", "--output", "{output}"),
            inputs=("trace",),
        ),
        Step(
            name="warmstart",
            output="warmstart",
            module="components.warmstart",
            arguments=(
                "--trace", "{trace}", "--vocab", "{vocab}", "--toolchain", "{training}",
                "--seed", str(options.seed), *amounts.warmstart, "--output", "{output}",
            ),
            inputs=("trace", "vocab", "training"),
        ),
        Step(
            name="ppo",
            output="policy",
            module="components.ppo",
            arguments=(
                "--corpus", "{corpus}", "--toolchain", "{training}", "--trace", "{trace}",
                "--warmstart", "{warmstart}", *problem, "--workers", options.workers,
                "--minutes", f"{options.minutes:g}", "--seed", str(options.seed), *amounts.ppo,
                "--root-dir", "{work}", "--output", "{output}",
            ),
            inputs=("corpus", "training", "trace", "warmstart"),
            work="ppo",
            extends=("--minutes",),
        ),
        Step(
            name="toolchain-release",
            output="release",
            module="components.toolchain",
            arguments=(
                "--mode", "release", *llvm, "--llvm-source", options.llvm_source, "--policy", "{policy}",
                "--output", "{output}",
            ),
            inputs=("policy",),
            facts=built_from,
        ),
        Step(
            name="evaluation",
            output="evaluation",
            module="components.evaluation",
            arguments=(
                "--corpus", "{corpus}", "--toolchain", "{training}", "--release-toolchain", "{release}",
                "--policy", "{policy}", "--warmstart", "{warmstart}", *problem,
                "--workers", options.workers, *(("--recipe", str(options.recipe)) if options.recipe else ()),
                "--min-reduction-percent", f"{options.min_reduction_percent:g}", *amounts.evaluation,
                "--quiet", "--output", "{output}",  # `mlgo run` prints the table, reused or not
            ),
            inputs=("corpus", "training", "release", "policy", "warmstart"),
            # Whole builds: what the recipe makes of a project, and the stock clang that they are compared with.
            facts=(*(recipe_facts(options.recipe) if options.recipe else ()), *installed),
        ),
    )  # fmt: skip


def _corpus(options: RunOptions, installed: tuple[str, ...]) -> Step:
    if options.recipe:
        clang = f"clang-{options.llvm_major}"  # another version's bitcode is none to the training clang
        arguments: tuple[str, ...] = ("build", "--recipe", str(options.recipe), "--clang", clang)
        facts = recipe_facts(options.recipe)
    elif options.compile_commands:
        arguments = ("extract", "--compile-commands", str(options.compile_commands))
        facts = build_facts(options.compile_commands)
    else:
        assert options.corpus is not None  # RunOptions' invariant
        arguments = ("import", "--input", str(options.corpus))
        facts = content_facts(options.corpus)
    return Step(
        name="corpus",
        output="corpus",
        module="components.corpus",
        arguments=(*arguments, "--output", "{output}"),
        facts=(*facts, *installed),
    )
