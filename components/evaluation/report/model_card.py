"""The model card of a policy (Mitchell et al. 2019, arXiv:1810.03993): the policy, its training and its results.

Every evaluation contains model-card.json, and the same content for people as model-card.md.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from components.core.formats.corpus import Corpus
from components.core.formats.policy import IMAGE_VARIABLE, load_policy_info
from components.core.objectives import OBJECTIVES
from components.core.objectives.estimate import Estimate
from components.evaluation.benchmarks.program_rows import headline_total, summary, verdict
from components.evaluation.metrics_types import (
    BenchmarkSummary,
    BinaryEntry,
    CompiledBy,
    LinkedTotals,
    Metrics,
    ScoreMetrics,
    SizeMetrics,
    Verdict,
)
from components.evaluation.report import linked_tables, policy_choice
from components.evaluation.report.formatting import (
    GROUP_TITLES,
    LANGUAGE_TITLES,
    change,
    markdown_table,
    required_in_words,
)
from components.evaluation.report.regressions import WorstCase
from components.platform.console.escape import markdown_code, markdown_text
from components.platform.errors import UserError
from components.platform.storage import digest
from components.platform.storage.input_files import read_json
from components.platform.storage.manifest import MANIFEST

JSON, MARKDOWN = "model-card.json", "model-card.md"
Reductions = dict[str, dict[str, float | None]]
"""Language or section -> group -> reduction in percent."""
_ALGORITHMS = {
    "dqn": "DQN, because a network learns well what measured decisions save",
    "ppo": "PPO, whose small steps suit gains that are hard to predict, and a start that is good already",
    "es": "evolution strategies, which compare whole modules and need no credit of single decisions",
}


class CorpusFigures(Struct, kw_only=True):
    """The corpus of the evaluation.

    Attributes:
        digest: digest of the artifact, "" if unknown. trained_on_digest: that of the training's corpus.
        modules: part of the split -> number of modules. projects: project -> number of modules.
        heldout_projects: projects that are wholly held out.
    """

    digest: str
    trained_on_digest: str
    modules: dict[str, int]
    projects: dict[str, int]
    heldout_projects: list[str]


class TrainingFigures(Struct, kw_only=True):
    """Cost and hyperparameters of the training; None for what is unknown.

    Attributes:
        iterations, best_iteration: number of iterations, and the published one.
        earlier: title of the policy if it was trained before the run, "" if the run trained it.
        hyperparameters: as in the training's report.
    """

    seconds: float | None
    iterations: float | None
    best_iteration: float | None
    processors: int | None
    hyperparameters: dict[str, Any]
    earlier: str = ""


class Gate(Struct, kw_only=True):
    """The verdict; figures as in `SizeMetrics`.

    Attributes:
        compiled_by: the clang that yields the policy's values.
        judged_by: whose reduction decides.
        languages, sections: name -> group -> reduction in percent.
        per_project: project -> reduction in percent.
        measured_modules: project -> number of its modules that the reduction is of; None in earlier cards.
    """

    verdict: Verdict
    compiled_by: CompiledBy
    reduction_percent: float | None
    min_reduction_percent: float
    refused_because: str | None
    languages: Reductions
    sections: Reductions
    per_project: dict[str, float | None]
    judged_by: Literal["modules", "linked"] = "modules"
    measured_modules: dict[str, int] | None = None
    other_modules: Estimate | None = None
    other_projects: Estimate | None = None


class ModelCard(Struct, kw_only=True):
    """The content of model-card.json.

    Attributes:
        optional_features: features that a compiler need not have -> the value that the policy then assumes; UNSET if
            there are none.
        images: container images of training and evaluation.
        linked, binaries: linked programs and shared libraries of whole projects, in sum and each; UNSET if none were
            built.
        worst_modules, worst_functions: entries of `worst_cases`; the objective decides which one is written.
        programs: executed instructions of whole projects; UNSET if no program was run.
        release_policy: the policy that the release clang embeds, as in `SizeMetrics`.
        subject: what the verdict is on, if not on the trained policy.
        notes: how the policy compares with its start and with a pretrained one, and what the release clang embeds.
    """

    version: int = 1
    problem: str
    policy_digest: str
    llvm_version: str
    features: list[str]
    optional_features: dict[str, float] | UnsetType = UNSET
    trained_by: str
    git_commit: str
    images: dict[str, str]
    corpus: CorpusFigures
    training: TrainingFigures
    measure: str
    gate: Gate
    linked: LinkedTotals | UnsetType = UNSET
    binaries: list[BinaryEntry] | UnsetType = UNSET
    worst_modules: list[dict[str, Any]] | UnsetType = UNSET
    worst_functions: list[dict[str, Any]] | UnsetType = UNSET
    programs: BenchmarkSummary | UnsetType = UNSET
    release_policy: str = "none"
    subject: str = ""
    notes: list[str] = []


def model_card(metrics: Metrics, policy: Path, corpus: Corpus, worst: Sequence[WorstCase]) -> ModelCard:
    """Return the card of the policy in the directory `policy` with the evaluation `metrics` on `corpus`.

    `worst`: result of `worst_cases`."""
    info = load_policy_info(policy)
    training_report = _training_report(policy)
    splits = corpus.splits()
    sizes = metrics if isinstance(metrics, SizeMetrics) else None
    entries = [case.to_json(OBJECTIVES[metrics.measure].labels.unit) for case in worst]
    return ModelCard(
        problem=info.problem,
        policy_digest=digest(policy),
        llvm_version=info.llvm_version,
        features=[feature.name for feature in info.features],
        optional_features=dict(info.optional_features) or UNSET,
        trained_by=info.trained_by,
        git_commit=info.git_commit,
        images={"training": info.image, "evaluation": os.environ.get(IMAGE_VARIABLE, "")},
        corpus=CorpusFigures(
            digest=digest(corpus.directory) if (corpus.directory / MANIFEST).exists() else "",
            trained_on_digest=info.corpus_digest,
            modules={part: len(splits.part(part)) for part in ("train", "validation", "heldout")},
            projects=dict(Counter(corpus.project_titles().values())),
            heldout_projects=list(splits.heldout_projects),
        ),
        training=TrainingFigures(
            seconds=info.metrics.get("trained_s"),
            iterations=info.metrics.get("iterations"),
            best_iteration=info.metrics.get("best_iteration"),
            processors=training_report.get("processors"),
            hyperparameters=training_report.get("hyperparameters", {}),
            earlier=policy_choice.earlier_training(metrics),
        ),
        measure=metrics.measure,
        gate=Gate(
            verdict=metrics.verdict,
            compiled_by=metrics.policy_compiled_by,
            reduction_percent=metrics.reduction_percent,
            other_modules=metrics.other_modules,
            other_projects=metrics.other_projects,
            min_reduction_percent=metrics.min_reduction_percent,
            refused_because=metrics.refused_because,
            languages=reductions(metrics, "languages"),
            sections=reductions(metrics, "sections"),
            per_project={name: part.reduction_percent for name, part in metrics.per_project.items()},
            judged_by=sizes.judged_by if sizes else "modules",
            measured_modules={name: part.modules for name, part in metrics.per_project.items()},
        ),
        linked=(sizes.linked if sizes else {}) or UNSET,
        binaries=linked_tables.select_linked(metrics.binaries) or UNSET,
        worst_modules=entries if sizes else UNSET,
        worst_functions=entries if isinstance(metrics, ScoreMetrics) else UNSET,
        programs=metrics.programs or UNSET,
        release_policy=metrics.release_policy,
        subject=policy_choice.verdict_subject(metrics),
        notes=[
            *policy_choice.estimate_lines(metrics),
            *policy_choice.caveats(metrics),
            *policy_choice.comparison_notes(metrics),
            *policy_choice.release_notes(metrics),
        ],
    )


def reductions(metrics: Metrics, parts: Literal["languages", "sections"]) -> Reductions:
    """Return the reduction in percent of each language or section: name -> group -> percent; {} if unknown."""
    if not isinstance(metrics, SizeMetrics):
        return {}
    groups = {"all held-out": metrics, **asdict(metrics.groups)}
    if not all(group.modules for group in groups.values()):
        groups = {"all held-out": metrics}  # one group alone has the figures of all
    return {
        name: {group: getattr(figures, parts)[name].reduction_percent for group, figures in groups.items()}
        for name in getattr(metrics, parts)
    }


def write_card(directory: Path, card: ModelCard, worst: Sequence[WorstCase]) -> None:
    """Write model-card.json and model-card.md. worst: as for `model_card`."""
    (directory / JSON).write_text(json.dumps(msgspec.to_builtins(card), indent=1) + "\n", encoding="utf-8")
    (directory / MARKDOWN).write_text(card_markdown(card, worst), encoding="utf-8")


def card_markdown(card: ModelCard, worst: Sequence[WorstCase]) -> str:
    gate, corpus, training, labels = card.gate, card.corpus, card.training, OBJECTIVES[card.measure].labels
    programs, total = card.programs or None, headline_total(card.linked or {})
    linked = f"text of linked programs and libraries {change(total.reduction_percent)}, " if total else ""
    assumed = ", ".join(f"{markdown_code(name)} {value:g}" for name, value in (card.optional_features or {}).items())
    regressions = [f"- {markdown_text(case.line(labels.unit))}" for case in worst] or [labels.no_worse]
    processors = f" on {training.processors} processors" if training.processors else ""
    cost = f"{training.seconds / 60:.0f} minutes{processors}" if training.seconds else "unknown cost"
    subject = f" of the {training.earlier}, before this run" if training.earlier else ""
    iterations, best = training.iterations or 0, training.best_iteration or 0
    modules = ", ".join(f"{count} {part}" for part, count in corpus.modules.items())
    measured = gate.measured_modules or {}
    count = sum(measured.values())
    held_out = f"held-out {labels.cases}" + (f" ({count} module{'' if count == 1 else 's'})" if count else "")
    lines = [
        f"# Policy for {card.problem}, LLVM {markdown_text(card.llvm_version)}",
        "",
        *_algorithm_sentence(training.hyperparameters),
        f"- Verdict{card.subject}: **{markdown_text(verdict(gate, programs))}**: measured: {linked}{held_out} "
        f"{change(gate.reduction_percent, labels.comparative)}, compiled by the {gate.compiled_by} "
        f"clang; required: {required_in_words(gate.min_reduction_percent, labels.comparative)}"
        + (" of linked files" if gate.judged_by == "linked" else ""),
        *([f"- Programs: {markdown_text(summary(programs))}"] if programs else []),
        *(f"- {markdown_text(note[0].upper() + note[1:])}" for note in card.notes),
        f"- Policy: {markdown_code(card.policy_digest)}, {len(card.features)} features, made by the step "
        + markdown_text(card.trained_by),
        *([f"- Assumed where a compiler lacks the feature: {assumed}"] if assumed else []),
        f"- Training{subject}: {cost}, {iterations:.0f} iterations, the best was {best:.0f}",
        f"- Corpus: {markdown_code(corpus.digest)}; modules: {modules}; whole projects held out: "
        + (", ".join(map(markdown_text, corpus.heldout_projects)) or "none"),
        f"- Code: commit {markdown_code(card.git_commit or 'unknown')}; images: "
        + ", ".join(f"{name} {markdown_code(reference or 'none')}" for name, reference in card.images.items()),
        *linked_section(card),
        "",
        *markdown_table(
            ("project", "modules", "held-out and measured", f"their {labels.values}"),
            [
                (name, str(count), str(measured.get(name, 0)), change(gate.per_project.get(name), labels.comparative))
                for name, count in sorted(corpus.projects.items())
            ],
        ),
        *parts_table(gate.languages, gate.sections),
        "",
        f"## {labels.worst}",
        "",
        *regressions,
        "",
        "## Hyperparameters",
        "",
        "```",
        json.dumps(training.hyperparameters, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)


def _algorithm_sentence(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return a paragraph that names the algorithm and its reason; [] if it is unknown."""
    algorithm = hyperparameters.get("step", {}).get("algorithm")
    return [f"Trained by {_ALGORITHMS[algorithm]}.", ""] if algorithm in _ALGORITHMS else []


def linked_section(card: ModelCard) -> list[str]:
    """Return the lines about linked files, by project and by binary; [] if none were built."""
    binaries = card.binaries or []
    if not binaries:
        return []
    return [
        "",
        "## Linked programs and shared libraries",
        "",
        *(f"- {markdown_text(line)}" for line in linked_tables.linked_lines(card.linked or {})),
        "",
        *markdown_table(linked_tables.PROJECT_COLUMNS, linked_tables.project_rows(binaries)),
        "",
        *markdown_table(linked_tables.BINARY_COLUMNS, linked_tables.binary_rows(binaries)),
        "",
        "Bytes with the policy, and the change against stock clang.",
        "",
        "## Held-out modules",
    ]


def parts_table(languages: Reductions, sections: Reductions) -> list[str]:
    """Return the lines of a table of languages and sections; [] if there are none."""
    rows = [(LANGUAGE_TITLES[language], percents) for language, percents in languages.items()]
    rows += sections.items()
    if not rows:
        return []
    titles = ["held-out text", *(GROUP_TITLES.get(group, "all") for group in rows[0][1])]
    return ["", *markdown_table(titles, [(title, *map(change, percents.values())) for title, percents in rows])]


def _training_report(policy: Path) -> dict[str, Any]:
    try:
        document = read_json(policy / "report.json")
    except UserError:
        return {}
    return document if isinstance(document, dict) else {}
