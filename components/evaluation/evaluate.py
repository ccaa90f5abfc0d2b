"""Runs an evaluation from its inputs to its published artifact."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from msgspec import UNSET

from components.core import problems
from components.core.compiler.objects.function_digests import read_function_digests
from components.core.formats.corpus import Corpus, load_corpus
from components.core.formats.policy import PRETRAINED_NAMES, load_policy_info
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.formats.training_curve import read_curve
from components.core.objectives import OBJECTIVES, Objective
from components.core.policy.pretrained import known_projects, pretrained_name
from components.core.projects.recipe import Recipe
from components.evaluation.changed_functions import changed_functions
from components.evaluation.config import EvaluationConfig
from components.evaluation.inputs import (
    ReferencePolicy,
    check_policy,
    find_reference,
    heldout_modules,
    heldout_recipes,
    load_earlier,
    load_release,
)
from components.evaluation.measure import measure
from components.evaluation.measurements import POLICY, Measurements, report_csv, write_measurements
from components.evaluation.metrics import judge_whole_projects, refuse_without_gain_over_start, summarize
from components.evaluation.metrics_types import (
    BinariesComparison,
    Inputs,
    Metrics,
    PolicyRole,
    SizeMetrics,
    VariantDescription,
    WholeProjects,
    encode_json,
)
from components.evaluation.projects.whole_projects import (
    compare_own_build,
    compare_whole_projects,
    require_own_benchmark,
    require_tools,
    will_judge_own_build,
)
from components.evaluation.release_policy import choose_release_policy, swap_descriptions
from components.evaluation.report import terminal_report
from components.evaluation.report.formatting import costs_markdown
from components.evaluation.report.html_report import write_page
from components.evaluation.report.model_card import model_card, write_card
from components.evaluation.report.regressions import worst_cases
from components.evaluation.variants import choose_clang, plan_variants
from components.platform.launcher.step_cost import costs_so_far
from components.platform.storage import digest, publish
from components.platform.workers.factory import make_pool


def evaluate(config: EvaluationConfig) -> Metrics:
    """Evaluate a policy, publish `config.output`, and return the content of its metrics.json.

    All inputs, and the tools that whole builds need, are checked before the first compile.

    Raises:
        UserError: an input is missing, damaged, or does not fit the others; this machine lacks a tool; too many modules
            fail to compile.
    """
    objective = OBJECTIVES[problems.get(config.problem).objective]
    corpus = load_corpus(config.corpus)
    modules = heldout_modules(corpus)
    heldout_projects = corpus.splits().heldout_projects
    training = load_toolchain(config.toolchain).require_mode("training")
    check_policy(config.policy, config, training)
    if config.warmstart is not None:
        check_policy(config.warmstart, config, training)
    release = load_release(config.release_toolchain, config.policy, training) if config.release_toolchain else None
    recipes = heldout_recipes(objective, config.recipe, heldout_projects) if config.recipe else ()
    if recipes and release is not None:
        require_tools(objective, config, release, recipes)
    require_own_benchmark(objective, config)
    curve = read_curve(config.ppo_root or config.policy)
    trained = read_function_digests(config.trace) if config.trace else None
    reference = find_reference(config, training, modules)
    compiled_reference = None if reference is None or reference.is_warmstart else reference.directory
    variants = plan_variants(objective, config, training, release, compiled_reference)
    earlier_metrics, earlier, role = load_earlier(config) if config.evaluation else (None, None, "trained")
    with publish(config.output, "evaluation") as directory:
        with closing(make_pool(config.workers)) as pool:
            measured = measure(pool, config, objective, variants, modules, heldout_projects, earlier, trained)
            if earlier_metrics is not None and role == "trained":  # both clangs take the same decisions
                functions = earlier_metrics.module_functions if isinstance(earlier_metrics, SizeMetrics) else []
            else:
                functions = changed_functions(pool, config, measured, modules, variants, training)
        titles = corpus.project_titles()
        measured = replace(measured, projects=tuple(titles[name] for name in measured.modules))
        whole_projects = _compare_whole_projects(objective, config, corpus, recipes, release, directory / "build")
        metrics = summarize(measured, config.required_percent, whole_projects)
        if isinstance(metrics, SizeMetrics):
            judge_whole_projects(metrics, config.max_slowdown_percent)
            metrics.module_functions = functions
        metrics.inputs = inputs = _inputs(config, training, release, reference)
        if earlier_metrics:
            _take_over_inputs(inputs, earlier_metrics, role)
        else:
            inputs.policy_pretrained = pretrained_name(config.problem, config.policy)
            inputs.pretrained_trained_on = _trained_on(inputs, config.problem, measured)
            inputs.reference_trained_on = inputs.pretrained_trained_on.get(inputs.reference or "", [])
        no_gain = refuse_without_gain_over_start(metrics, inputs.warmstart_trained_by or "")
        # A release clang that exists embeds the evaluated policy.
        if release is None:
            own_build = isinstance(metrics, SizeMetrics) and will_judge_own_build(config, corpus)
            metrics.release_policy = choose_release_policy(metrics, measured, config, no_gain, own_build)
        else:
            metrics.release_policy = role
        if earlier and choose_clang(objective, release) == "release":
            same = measured.values[POLICY] == earlier.policy_values_for(measured)
            metrics.as_under_the_training_clang = int(same.sum())
        metrics.policy_compiled_by = choose_clang(objective, release)
        metrics.problem = config.problem
        metrics.variants = [
            VariantDescription(variant.name, str(variant.clang), variant.flags(config.problem)) for variant in variants
        ]
        if earlier_metrics:
            _restore_earlier_variants(earlier_metrics, metrics, role)
        (directory / "report.csv").write_text(report_csv(measured), encoding="utf-8")
        write_measurements(directory, measured)
        (directory / terminal_report.METRICS).write_text(encode_json(metrics), encoding="utf-8")
        costs = costs_so_far()
        summary = terminal_report.markdown(metrics) + costs_markdown(costs)
        (directory / terminal_report.SUMMARY).write_text(summary, encoding="utf-8")
        worst = worst_cases(measured)
        write_card(directory, model_card(metrics, config.policy, corpus, worst), worst)
        write_page(directory / terminal_report.REPORT, metrics, measured, curve, costs)
    return metrics


def _trained_on(inputs: Inputs, problem: str, measured: Measurements) -> dict[str, list[str]]:
    """Return the value of `Inputs.pretrained_trained_on`."""
    names = {inputs.policy_pretrained, inputs.warmstart_pretrained, inputs.reference or ""}
    known = {
        name: known_projects(problem, name, measured.projects, measured.modules)
        for name in PRETRAINED_NAMES
        if name in names
    }
    return {name: projects for name, projects in known.items() if projects}


def _take_over_inputs(inputs: Inputs, earlier: Metrics, role: PolicyRole) -> None:
    """Complete the inputs of a report on a release clang by those of the earlier evaluation, whose values it reuses."""
    before = earlier.inputs
    if role == "trained":
        inputs.policy = before.policy  # the release clang may be built from a copy
        inputs.reference, inputs.reference_digest = before.reference, before.reference_digest
        inputs.reference_trained_on = before.reference_trained_on
        inputs.reference_knows_corpus = before.reference_knows_corpus
    else:
        inputs.policy_role, inputs.trained_verdict = role, terminal_report.verdict(earlier)
        inputs.reference, inputs.reference_digest = before.policy, before.policy_digest
        inputs.reference_knows_corpus = True
    inputs.warmstart_pretrained = before.warmstart_pretrained
    inputs.pretrained_trained_on = before.pretrained_trained_on
    inputs.policy_pretrained = {
        "trained": before.policy_pretrained,
        "start": before.warmstart_pretrained,
        "pretrained": before.reference or "",
    }[role]
    if role != "start":
        inputs.warmstart, inputs.warmstart_trained_by = before.warmstart, before.warmstart_trained_by
        inputs.warmstart_digest = None if before.warmstart_digest is UNSET else before.warmstart_digest


def _restore_earlier_variants(earlier: Metrics, metrics: Metrics, role: PolicyRole) -> None:
    """Describe the variants whose values are reused as the earlier evaluation describes them."""
    variants = {variant.name: variant for variant in metrics.variants}
    updated = {POLICY} if metrics.policy_compiled_by == "release" else set()
    metrics.variants = [
        variants[variant.name] if variant.name in updated else variant
        for variant in swap_descriptions(earlier.variants, role)
    ]


def _inputs(
    config: EvaluationConfig, training: Toolchain, release: Toolchain | None, reference: ReferencePolicy | None
) -> Inputs:
    compared = None if reference is None or reference.is_warmstart else reference
    pretrained_start = reference is not None and reference.is_warmstart and reference.origin in PRETRAINED_NAMES
    return Inputs(
        corpus=str(config.corpus.absolute()),
        policy=str(config.policy.absolute()),
        policy_digest=digest(config.policy),
        warmstart=str(config.warmstart.absolute()) if config.warmstart else None,
        warmstart_digest=digest(config.warmstart) if config.warmstart else None,
        warmstart_trained_by=load_policy_info(config.warmstart).trained_by if config.warmstart else None,
        warmstart_pretrained=str(reference.origin) if reference is not None and pretrained_start else "",
        reference=None if compared is None else compared.name,
        reference_digest=None if compared is None else digest(compared.directory),
        reference_knows_corpus=compared is not None
        and load_policy_info(compared.directory).corpus_digest == digest(config.corpus),
        training_clang=str(training.clang),
        release_clang=str(release.clang) if release else None,
        llvm_version=training.llvm_version,
    )


def _compare_whole_projects(
    objective: Objective,
    config: EvaluationConfig,
    corpus: Corpus,
    recipes: Sequence[Recipe],
    release: Toolchain | None,
    work: Path,
) -> WholeProjects:
    """Compare whole projects in `work`, which is in the unpublished artifact, so that a killed run leaves nothing."""
    if release is None or (config.recipe is not None and not recipes):
        return WholeProjects(BinariesComparison())
    try:
        if config.recipe is None:
            return compare_own_build(objective, config, corpus, release, work)
        return compare_whole_projects(objective, config, recipes, release, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
