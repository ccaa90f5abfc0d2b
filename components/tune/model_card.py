"""Writes model-card.md of a plan: its purpose, its gain, and its use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.core.compiler.inline_plan import PLAN_FILE
from components.platform.console.escape import markdown_code, markdown_text
from components.tune.config import TuneConfig

MARKDOWN = "model-card.md"


def write_card(path: Path, config: TuneConfig, figures: Mapping[str, Any]) -> None:
    """Write the card from the content of tune.json, sizes in bytes of text."""
    path.write_text("\n".join(_lines(config, figures)) + "\n", encoding="utf-8")


def _lines(config: TuneConfig, figures: Mapping[str, Any]) -> list[str]:
    planned, modules, measured = (figures[name] for name in ("modules", "corpus_modules", "measured_modules"))
    linked = config.size_of == "linked"
    counted, prefix = ("the share of each function that the link keeps", "linked_") if linked else ("all functions", "")
    if figures["programs"]:
        counted += ", and of the programs' imports"
    program = f"all {modules} modules" if measured == modules else f"the {measured} of {modules} modules that compile"
    others, use = "the policy's", f"clang -Oz -mllvm -mlgo-inline-plan={PLAN_FILE} -c file.c"
    if figures["programs"]:
        option = f"-Wl,-mllvm,-mlgo-inline-plan={PLAN_FILE}"
        others, use = "LLVM's heuristic's", f"clang -Oz -flto *.o -o program {option} -Wl,-mllvm,-mlgo-keep-smaller"
    lines = [
        f"# Inlining plan: {_change(figures[f'plan_{prefix}reduction_percent'])} than LLVM's heuristic",
        "",
        "The decisions of one program's calls, found by a search. Other code needs a policy.",
        "",
        *_table(f"text of {program}", "", figures),
        *(_table(linked_title(figures), "linked_", figures) if linked else []),
        f"- The plan lists {planned} of {modules} modules ({planned_percent(figures):.0f}% of the text under LLVM's "
        f"heuristic); {figures['finished_modules']} of them were searched to the end. Modules that it does not list, "
        f"and calls that have changed, get {others} decisions, also in the figures above.",
        f"- Search: {figures['rounds']} rounds in at most {config.minutes:g} minutes, {config.flip_compiles} compiles "
        f"of a module per round to measure flips, seed {config.seed}; it minimized the bytes of {counted}.",
        f"- {_verified(figures)}",
        f"- Corpus {markdown_code(figures['corpus'] or 'without manifest')}, policy "
        f"{markdown_code(figures['policy'] or 'without manifest')}, training clang "
        f"{markdown_text(figures['llvm_version'])} {markdown_code(figures['training_clang'])}.",
        "",
        "```shell",
        f"{use}  # clang of release/bin",
        "```",
    ]
    return lines


def linked_title(figures: Mapping[str, Any]) -> str:
    """Return the name of what the search minimizes with `--size-of linked`."""
    return "text and imports of the programs" if figures["programs"] else "the share of it that the link keeps"


def planned_percent(figures: Mapping[str, Any]) -> float:
    """Return the fraction of the modules in the plan, in percent of all modules' text under LLVM's heuristic."""
    return 100 * float(figures["planned_heuristic_bytes"]) / max(1, figures["heuristic_bytes"])


def _table(title: str, prefix: str, figures: Mapping[str, Any]) -> list[str]:
    policy, plan = (_change(figures[f"{name}_{prefix}reduction_percent"]) for name in ("policy", "plan"))
    return [
        f"| {title} | bytes | |",
        "|---|---|---|",
        f"| LLVM's heuristic | {figures[f'heuristic_{prefix}bytes']:,} | |",
        f"| policy | {figures[f'policy_{prefix}bytes']:,} | {policy} |",
        f"| plan | {figures[f'plan_{prefix}bytes']:,} | {plan} |",
        "",
    ]


def _change(reduction_percent: float | None) -> str:
    if reduction_percent is None:
        return "not smaller"
    return f"{abs(reduction_percent):.2f}% {'larger' if reduction_percent < 0 else 'smaller'}"


def _verified(figures: Mapping[str, Any]) -> str:
    if "release_modules" not in figures:
        return "Not verified with a release clang: pass --release-toolchain."
    return (
        f"The release clang compiled {figures['release_as_found']} of the {figures['release_modules']} modules of the "
        f"plan to the size that was found, {figures['release_identical_twice']} with bit-identical objects in two "
        "compiles."
    )
