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

from collections.abc import Callable
from typing import Any

from kfp import dsl

from components.corpus.component import corpus as make_corpus
from components.evaluation.component import evaluation as evaluate
from components.evaluation.component import release_report as report_release
from components.evaluation.component import select_policy
from components.platform.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from components.platform.launcher.registry import TASKS
from components.ppo.component import ppo as train
from components.toolchain.component import toolchain_release, toolchain_training
from components.trace.component import trace as collect_trace
from components.tune.component import tune as search_plan
from components.vocab.component import vocab as make_vocab
from components.warmstart.component import warmstart as clone
from pipelines.finish.component import finish
from pipelines.retrain.component import promote, record_refusal

RETRY_PAUSE = "5s"
"""Before the second attempt. A stock KFP 2.17 lets it pass before it reports a failure that it does not retry, too."""
ALL_ATTEMPTS = "30d"
"""Argo's deadline for all attempts of a task together, so it exceeds three of the longest time limit (72 h). Without a
value kfp writes one hour; before 2.17 it writes no more than that."""


def sized(component: Callable[..., dsl.PipelineTask], cached: bool = True) -> Callable[..., dsl.PipelineTask]:
    """Return `component` with its tasks' limits of CPUs and memory in the registry, and three attempts.

    Half of the limits is requested. The server decides what it retries: KFP from 2.17 on a pod that was lost, but no
    step that failed; older versions and Vertex AI a step that failed. So a step repeats its own requests.

    Args:
        cached: whether KFP may reuse the outputs of an earlier task with the same inputs.
    """

    def add(**inputs: Any) -> dsl.PipelineTask:
        task = component(**inputs)
        limits = TASKS[task.component_spec.name]
        task.set_cpu_request(f"{limits.cpus * 500}m").set_cpu_limit(str(limits.cpus))
        task.set_memory_request(f"{limits.memory_gb // 2}G").set_memory_limit(f"{limits.memory_gb}G")
        task.set_retry(2, backoff_duration=RETRY_PAUSE, backoff_factor=2.0, backoff_max_duration=ALL_ATTEMPTS)
        return task if cached else task.set_caching_options(False)

    return add


def notification() -> dsl.PipelineTask:
    """Return the task that notifies of a run's end; it always runs, because a notification is not a result."""
    notified = sized(finish, cached=False)(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    return notified.set_cpu_request("100m").set_memory_request("256M")  # it sends some requests


# A separate pipeline, because kfp 2.17's local runner looks up a condition's operands only among a pipeline's inputs.
@dsl.pipeline(name="release-and-promote")
def release_and_promote(
    release_policy: str,
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    warmstart: dsl.Input[dsl.Model],
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    recipe: str,
    problem: str,
    workers: str,
    extra_policy: str,
    strategy: str,
    targets: str,
    llvm_major: int,
    llvm_source: str,
    sdk: str,
    min_reduction_percent: str,
    max_slowdown_percent: str,
    time_repeats: int,
    relink: str,
    benchmark: str,
    flag_rows: str,
    tune_minutes: str,
    retrain_state: str,
    promoted_by: str,
    model_registry: str,
    seed: int,
) -> None:
    """Build a release clang with the chosen policy unless it is "none", and report on it; search for a plan if asked.

    If there is a state of retraining, promote the trained policy, or record that it is not promoted because another one
    was chosen.
    """
    with dsl.If(release_policy != "none", name="release-wanted"):
        selected = sized(select_policy)(evaluation=evaluation, policy=policy, warmstart=warmstart, training=training)
        chosen = selected.outputs["release_policy"]
        released = sized(toolchain_release, cached=False)(  # as for the training clang
            policy=chosen,
            extra_policy=extra_policy,
            strategy=strategy,
            targets=targets,
            llvm_major=llvm_major,
            llvm_source=llvm_source,
            sdk=sdk,
        )
        reported = sized(report_release, cached=False)(  # as for the corpus
            corpus=corpus,
            training=training,
            policy=chosen,
            evaluation=evaluation,
            release=released.outputs["release"],
            recipe=recipe,
            problem=problem,
            workers=workers,
            min_reduction_percent=min_reduction_percent,
            max_slowdown_percent=max_slowdown_percent,
            time_repeats=time_repeats,
            relink=relink,
            benchmark=benchmark,
            flag_rows=flag_rows,
        )
        with dsl.If(release_policy == "trained", name="trained"), dsl.If(retrain_state != "", name="promotion-wanted"):
            sized(promote, cached=False)(  # the state may have changed
                policy=policy,
                evaluation=evaluation,
                corpus=corpus,
                training=training,
                release_report=reported.outputs["release_report"],
                state=retrain_state,
                by=promoted_by,
                workers=workers,
                registry=model_registry,
                run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
                run_resource_name=dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER,
            )
        with dsl.If(tune_minutes != "", name="plan-wanted"):
            sized(search_plan, cached=False)(  # as for the corpus
                corpus=corpus,
                training=training,
                policy=chosen,
                release=released.outputs["release"],
                minutes=tune_minutes,
                recipe=recipe,
                flag_rows=flag_rows,
                workers=workers,
                seed=seed,
            )

    with dsl.If(release_policy != "trained", name="not-trained"), dsl.If(retrain_state != "", name="refusal-wanted"):
        sized(record_refusal, cached=False)(  # the state may have changed
            policy=policy,
            evaluation=evaluation,
            corpus=corpus,
            training=training,
            state=retrain_state,
            by=promoted_by,
            run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            run_resource_name=dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER,
        )


@dsl.pipeline(
    name="mlgo-training",
    description="Train a policy on C or C++ code, build a clang that embeds it, and measure the gain.",
)
def training_pipeline(
    recipe: str = "",
    corpus: str = "",
    compile_commands: str = "",
    problem: str = "inlining",
    preset: str = "demo",
    train_minutes: str = "",
    strategy: str = "sdk",
    targets: str = "native",
    llvm_major: int = 19,
    llvm_source: str = "deb",
    sdk: str = "",
    clang: str = "",
    workers: str = "local",
    spot_node_label: str = "",
    ray_cluster_options: str = "",
    seed: int = 1,
    min_reduction_percent: str = "",
    max_slowdown_percent: str = "",
    time_repeats: int = 0,
    relink: str = "yes",
    benchmark: str = "",
    flag_rows: str = "",
    release_if: str = "better",
    oversample_modules: str = "",
    extra_policy: str = "",
    start_from: str = "",
    features: str = "extended",
    ir2vec_vocab: str = "",
    algorithm: str = "",
    credit_assignment: str = "",
    size_of: str = "linked",
    gin_bindings: str = "",
    tune_minutes: str = "",
    retrain_state: str = "",
    promoted_by: str = "",
    model_registry: str = "",
) -> None:
    """Train a policy on C or C++ code and build a clang that embeds it.

    Exactly one of `recipe`, `corpus` and `compile_commands` must not be empty.
    """
    # The content behind a path or URI may change while its name stays: a step that reads one is not reused, unless
    # `mlgo pipeline submit` knows the content (pipelines/submit/reuse.py).
    with dsl.ExitHandler(notification(), name="train-and-release"):
        training = sized(toolchain_training, cached=False)(
            strategy=strategy,
            targets=targets,
            llvm_major=llvm_major,
            llvm_source=llvm_source,
            sdk=sdk,
            clang=clang,
            ir2vec_vocab=ir2vec_vocab,
        )
        code = sized(make_corpus, cached=False)(
            recipe=recipe,
            existing=corpus,
            compile_commands=compile_commands,
            llvm_major=llvm_major,
            problem=problem,
        )
        traced = sized(collect_trace)(
            corpus=code.outputs["corpus"],
            training=training.outputs["training"],
            problem=problem,
            workers=workers,
        )
        buckets = sized(make_vocab)(trace=traced.outputs["trace"])
        cloned = sized(clone, cached=False)(
            trace=traced.outputs["trace"],
            vocab=buckets.outputs["vocab"],
            training=training.outputs["training"],
            preset=preset,
            start_from=start_from,
            retrain_state=retrain_state,
            features=features,
            gin_bindings=gin_bindings,
            seed=seed,
        )
        trained = sized(train, cached=False)(
            corpus=code.outputs["corpus"],
            training=training.outputs["training"],
            trace=traced.outputs["trace"],
            warmstart=cloned.outputs["warmstart"],
            problem=problem,
            workers=workers,
            spot_node_label=spot_node_label,
            ray_cluster_options=ray_cluster_options,
            preset=preset,
            minutes=train_minutes,
            algorithm=algorithm,
            credit_assignment=credit_assignment,
            size_of=size_of,
            gin_bindings=gin_bindings,
            seed=seed,
            oversample_modules=oversample_modules,
        )
        trained.set_env_variable(CLUSTER_VARIABLE, IMAGES[CLUSTER])
        judged = sized(evaluate)(
            corpus=code.outputs["corpus"],
            training=training.outputs["training"],
            warmstart=cloned.outputs["warmstart"],
            policy=trained.outputs["policy"],
            trace=traced.outputs["trace"],
            problem=problem,
            workers=workers,
            preset=preset,
            min_reduction_percent=min_reduction_percent,
            release_if=release_if,
        )
        release_and_promote(
            release_policy=judged.outputs["release_policy"],
            corpus=code.outputs["corpus"],
            training=training.outputs["training"],
            warmstart=cloned.outputs["warmstart"],
            policy=trained.outputs["policy"],
            evaluation=judged.outputs["evaluation"],
            recipe=recipe,
            problem=problem,
            workers=workers,
            extra_policy=extra_policy,
            strategy=strategy,
            targets=targets,
            llvm_major=llvm_major,
            llvm_source=llvm_source,
            sdk=sdk,
            min_reduction_percent=min_reduction_percent,
            max_slowdown_percent=max_slowdown_percent,
            time_repeats=time_repeats,
            relink=relink,
            benchmark=benchmark,
            flag_rows=flag_rows,
            tune_minutes=tune_minutes,
            retrain_state=retrain_state,
            promoted_by=promoted_by,
            model_registry=model_registry,
            seed=seed,
        )
