"""The model card of a policy (Mitchell et al. 2019, arXiv:1810.03993): the policy, its training and its results.

Every evaluation contains model-card.json, and the same content for people as model-card.md.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.core.console import UserError
from components.core.formats.corpus import Corpus
from components.core.formats.policy import IMAGE_VARIABLE, load_policy_info
from components.core.storage import digest
from components.core.storage.input_files import read_json
from components.core.storage.manifest import MANIFEST
from components.evaluation.benchmarks.program_rows import summary, verdict
from components.evaluation.report.formatting import LANGUAGE_TITLES, change
from components.evaluation.report.regressions import case_line
from components.evaluation.report.terminal_report import objective_of

JSON, MARKDOWN = "model-card.json", "model-card.md"


def model_card(
    metrics: Mapping[str, Any], policy: Path, corpus: Corpus, worst: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the card of the policy in the directory `policy` with the evaluation `metrics` on `corpus`.

    `worst`: result of `worst_cases`."""
    info = load_policy_info(policy)
    training_report = _training_report(policy)
    splits = corpus.splits()
    return {
        "version": 1,
        "problem": info.problem,
        "policy_digest": digest(policy),
        "llvm_version": info.llvm_version,
        "features": [feature.name for feature in info.features],
        "trained_by": info.trained_by,
        "git_commit": info.git_commit,
        "images": {"training": info.image, "evaluation": os.environ.get(IMAGE_VARIABLE, "")},
        "corpus": {
            "digest": digest(corpus.directory) if (corpus.directory / MANIFEST).exists() else "",
            "trained_on_digest": info.corpus_digest,
            "modules": {part: len(splits.part(part)) for part in ("train", "validation", "heldout")},
            "projects": dict(Counter(module.project for module in corpus)),
            "heldout_projects": list(splits.heldout_projects),
        },
        "training": {
            "seconds": info.metrics.get("trained_s"),
            "iterations": info.metrics.get("iterations"),
            "best_iteration": info.metrics.get("best_iteration"),
            "processors": training_report.get("processors"),
            "hyperparameters": training_report.get("hyperparameters", {}),
        },
        "measure": metrics["measure"],
        "gate": {
            "verdict": metrics["verdict"],
            "compiled_by": metrics["policy_compiled_by"],
            "reduction_percent": metrics["reduction_percent"],
            "reduction_percent_ci95": metrics.get("reduction_percent_ci95"),
            "min_reduction_percent": metrics["min_reduction_percent"],
            "refused_because": metrics.get("refused_because"),
            "languages": reductions(metrics, "languages"),
            "sections": reductions(metrics, "sections"),
            "per_project": {name: part["reduction_percent"] for name, part in metrics["per_project"].items()},
        },
        objective_of(metrics).labels.worst_key: list(worst),
    } | ({"programs": programs} if (programs := metrics.get("programs")) else {})


def reductions(metrics: Mapping[str, Any], parts: str) -> dict[str, dict[str, float | None]]:
    """Return the reduction in percent of each language or section: name -> group -> percent; {} if unknown."""
    groups = {"all held-out": metrics, **metrics["groups"]}
    return {
        name: {group: figures[parts][name]["reduction_percent"] for group, figures in groups.items()}
        for name in metrics.get(parts, {})
    }


def write_card(directory: Path, card: Mapping[str, Any]) -> None:
    """Write model-card.json and model-card.md."""
    (directory / JSON).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (directory / MARKDOWN).write_text(card_markdown(card), encoding="utf-8")


def card_markdown(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    gate, corpus, training, labels = card["gate"], card["corpus"], card["training"], objective_of(card).labels
    worst = [f"- {case_line(case, labels.unit)}" for case in card[labels.worst_key]] or [labels.no_worse]
    interval = gate["reduction_percent_ci95"]
    bounds = f" (95% interval {interval[0]:+.2f}% to {interval[1]:+.2f}%)" if interval else ""
    seconds, processors = training["seconds"], training["processors"] or "an unknown number of"
    cost = f"{seconds / 60:.0f} minutes on {processors} processors" if seconds else "unknown cost"
    iterations, best = training["iterations"] or 0, training["best_iteration"] or 0
    modules = ", ".join(f"{count} {part}" for part, count in corpus["modules"].items())
    lines = [
        f"# Policy for {card['problem']}, LLVM {card['llvm_version']}",
        "",
        f"- Verdict: **{verdict(gate, card.get('programs'))}**: held-out {labels.cases} "
        f"{change(gate['reduction_percent'], labels.comparative)}{bounds}, compiled by the {gate['compiled_by']} "
        f"clang; at least {gate['min_reduction_percent']:g}% is required",
        *([f"- Programs: {summary(card['programs'])}"] if card.get("programs") else []),
        f"- Policy: `{card['policy_digest']}`, {len(card['features'])} features, trained by {card['trained_by']}",
        f"- Training: {cost}, {iterations:.0f} iterations, the best was {best:.0f}",
        f"- Corpus: `{corpus['digest']}`; modules: {modules}; whole projects held out: "
        + (", ".join(corpus["heldout_projects"]) or "none"),
        f"- Code: commit `{card['git_commit'] or 'unknown'}`; images: "
        + ", ".join(f"{name} `{reference or 'none'}`" for name, reference in card["images"].items()),
        "",
        f"| project | modules | held-out {labels.values} |",
        "|---|---|---|",
        *(
            f"| {name} | {count} | {change(gate['per_project'].get(name), labels.comparative)} |"
            for name, count in sorted(corpus["projects"].items())
        ),
        *parts_table(gate),
        "",
        f"## {labels.worst}",
        "",
        *worst,
        "",
        "## Hyperparameters",
        "",
        "```",
        json.dumps(training["hyperparameters"], indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)


def parts_table(gate: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of the gate's languages and sections; [] if it has none."""
    rows = [(LANGUAGE_TITLES[language], percents) for language, percents in gate.get("languages", {}).items()]
    rows += gate.get("sections", {}).items()
    if not rows:
        return []
    return [
        "",
        "| held-out text | all | unseen modules of known projects | unseen projects |",
        "|---|---|---|---|",
        *(f"| {title} | {' | '.join(change(percent) for percent in percents.values())} |" for title, percents in rows),
    ]


def _training_report(policy: Path) -> dict[str, Any]:
    try:
        document = read_json(policy / "report.json")
    except UserError:
        return {}
    return document if isinstance(document, dict) else {}
