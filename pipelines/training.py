"""The KFP pipeline: the order of the steps. `mlgo pipeline compile` compiles it to pipelines/compiled/.

    toolchain (training) ─┐
    corpus ───────────────┴─ trace ── vocab ── warmstart ── ppo ── evaluation
    evaluation ── select policy ── toolchain (release) ── release report ─┬─ tune, if asked
                                                                          └─ promote, if asked
    The release clang embeds the trained policy or, if that is not better, the one that training started from, or a
    pretrained one (components/evaluation/release_policy.py). A trained policy that it does not embed is not promoted;
    the refusal is recorded, if asked.

Imports kfp, so it runs only in the environment `pipelines`.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from kfp import dsl

from components.corpus.component import corpus as make_corpus
from components.evaluation.component import evaluation as evaluate
from components.evaluation.component import release_report as report_release
from components.evaluation.component import select_policy
from components.platform.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from components.ppo.component import ppo as train
from components.toolchain.component import toolchain_release, toolchain_training
from components.trace.component import trace as collect_trace
from components.tune.component import tune as search_plan
from components.vocab.component import vocab as make_vocab
from components.warmstart.component import warmstart as clone
from pipelines.parameters.parameter import Parameter
from pipelines.parameters.tables import BY_NAME, TRAINING
from pipelines.retrain.component import promote, record_refusal
from pipelines.tasks import Values, notification, sized


def pipeline(
    name: str, inputs: Iterable[inspect.Parameter], description: str | None = None
) -> Callable[[Callable[[Values], None]], dsl.base_component.BaseComponent]:
    """Return a decorator that makes a pipeline with these inputs of a function of their channels."""

    def make(body: Callable[[Values], None]) -> dsl.base_component.BaseComponent:
        def function(*channels: Any) -> None:
            body(dict(zip(signature.parameters, channels, strict=True)))

        signature = inspect.Signature(list(inputs))
        function.__signature__ = signature  # type: ignore[attr-defined]
        return dsl.pipeline(name=name, description=description)(function)

    return make


def table_inputs(table: Iterable[Parameter]) -> list[inspect.Parameter]:
    """Return the inputs of a pipeline with the parameters of a table."""
    return [_input(parameter.name, type(parameter.default), parameter.default) for parameter in table]


def _input(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=default)


_ARTIFACTS = {
    "corpus": dsl.Input[dsl.Dataset],
    "training": dsl.Input[dsl.Artifact],
    "warmstart": dsl.Input[dsl.Model],
    "policy": dsl.Input[dsl.Model],
    "evaluation": dsl.Input[dsl.Artifact],
}
_PASSED_ON = (
    *("recipe", "problem", "workers", "extra_policy", "strategy", "targets", "llvm_major", "llvm_source", "sdk"),
    *("min_reduction_percent", "max_slowdown_percent", "time_repeats", "relink", "benchmark", "flag_rows"),
    *("tune_minutes", "retrain_state", "promoted_by", "model_registry", "seed"),
)
"""Parameters that release_and_promote gets as they are."""
_RELEASE_INPUTS = {
    "release_policy": str,
    **_ARTIFACTS,
    **{name: type(BY_NAME[name].default) for name in _PASSED_ON},
}


# A separate pipeline, because kfp 2.17's local runner looks up a condition's operands only among a pipeline's inputs.
@pipeline("release-and-promote", [_input(name, kind) for name, kind in _RELEASE_INPUTS.items()])
def release_and_promote(values: Values) -> None:
    """Build a release clang with the chosen policy unless it is "none", and report on it; search for a plan if asked.

    If there is a state of retraining, promote the trained policy, or record that it is not promoted because another one
    was chosen.
    """
    release_policy, state = values["release_policy"], values["retrain_state"]
    run = {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "run_resource_name": dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}
    decided = {"state": state, "by": values["promoted_by"], **run}
    with dsl.If(release_policy != "none", name="release-wanted"):
        chosen = sized(select_policy)(values).outputs["release_policy"]
        release = sized(toolchain_release, cached=False)(values, policy=chosen).outputs["release"]  # as training's
        reported = sized(report_release, cached=False)(values, policy=chosen, release=release)  # as for the corpus
        with dsl.If(release_policy == "trained", name="trained"), dsl.If(state != "", name="promotion-wanted"):
            report = reported.outputs["release_report"]
            registry = values["model_registry"]
            # The state may have changed.
            sized(promote, cached=False)(values, release_report=report, registry=registry, **decided)
        with dsl.If(values["tune_minutes"] != "", name="plan-wanted"):
            minutes = values["tune_minutes"]
            sized(search_plan, cached=False)(values, policy=chosen, release=release, minutes=minutes)  # as the corpus

    with dsl.If(release_policy != "trained", name="not-trained"), dsl.If(state != "", name="refusal-wanted"):
        sized(record_refusal, cached=False)(values, **decided)  # the state may have changed


@pipeline(
    "mlgo-training",
    table_inputs(TRAINING),
    description="Train a policy on C or C++ code, build a clang that embeds it, and measure the gain.",
)
def training_pipeline(values: Values) -> None:
    """Train a policy on C or C++ code and build a clang that embeds it.

    Exactly one of `recipe`, `corpus`, `compile_commands` and `input` must not be empty.
    """
    # The content behind a path or URI may change while its name stays: a step that reads one is not reused, unless
    # `mlgo pipeline submit` knows the content (pipelines/submit/reuse.py).
    with dsl.ExitHandler(notification(), name="train-and-release"):
        training = sized(toolchain_training, cached=False)(values).outputs["training"]
        corpus = sized(make_corpus, cached=False)(values, existing=values["corpus"]).outputs["corpus"]
        code = {"corpus": corpus, "training": training}
        trace = sized(collect_trace)(values, **code).outputs["trace"]
        vocab = sized(make_vocab)(trace=trace).outputs["vocab"]
        cloned = sized(clone, cached=False)(values, trace=trace, vocab=vocab, training=training)
        warmstart = cloned.outputs["warmstart"]
        trained = sized(train, cached=False)(
            values, **code, trace=trace, warmstart=warmstart, minutes=values["train_minutes"]
        )
        trained.set_env_variable(CLUSTER_VARIABLE, IMAGES[CLUSTER])
        made = {**code, "warmstart": warmstart, "policy": trained.outputs["policy"]}
        judged = sized(evaluate)(values, **made, trace=trace)
        release_and_promote(
            release_policy=judged.outputs["release_policy"],
            evaluation=judged.outputs["evaluation"],
            **made,
            **{name: values[name] for name in _PASSED_ON},
        )
