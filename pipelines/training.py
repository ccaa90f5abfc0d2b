"""The pipeline: what runs after what. Written once, here; `mlgo pipeline compile` makes pipelines/compiled/ of it.

    toolchain (training) ─┐                                          ┌─ if it is good enough ─────────────────┐
    corpus ───────────────┴─ trace ── vocab ── warmstart ── ppo ── evaluation ── toolchain (release) ── size report
                                                                                                     └─ tune, if asked

Imports kfp, and so runs in the environment `pipelines` only.
"""

from kfp import dsl

from components.corpus.component import corpus as make_corpus
from components.evaluation.component import evaluation as evaluate
from components.evaluation.component import size_report as report_sizes
from components.launcher.component import finish
from components.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from components.ppo.component import ppo as train
from components.toolchain.component import toolchain_release, toolchain_training
from components.trace.component import trace as collect_trace
from components.tune.component import tune as search_plan
from components.vocab.component import vocab as make_vocab
from components.warmstart.component import warmstart as clone


def _sized(task: dsl.PipelineTask, cpus: str, memory: str) -> dsl.PipelineTask:
    """Requests half of the limits, and retries what a lost node or a full queue ended."""
    half_cpus, half_memory = f"{int(cpus) * 500}m", f"{int(memory.removesuffix('G')) // 2}G"
    task.set_cpu_request(half_cpus).set_cpu_limit(cpus).set_memory_request(half_memory).set_memory_limit(memory)
    return task.set_retry(num_retries=2, backoff_duration="60s", backoff_factor=2.0, backoff_max_duration="600s")


# A pipeline of its own, for kfp 2.17's local runner finds what a condition asks for among a pipeline's inputs only.
@dsl.pipeline(name="release-if-good")
def release_if_good(
    good: str,
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    recipe: str,
    problem: str,
    workers: str,
    with_policy: str,
    llvm_major: int,
    llvm_source: str,
    min_reduction_percent: str,
    max_slowdown_percent: str,
    tune_minutes: str,
    seed: int,
) -> None:
    """If `good` is "yes": a release clang of the policy, what it does itself, and a plan if `tune_minutes` is set."""
    with dsl.If(good == "yes", name="good-enough"):
        released = _sized(
            toolchain_release(
                policy=policy, with_policy=with_policy, llvm_major=llvm_major, llvm_source=llvm_source
            ),
            "4", "8G",
        )  # fmt: skip
        released.set_caching_options(False)  # for what `with_policy` names
        reported = _sized(
            report_sizes(
                corpus=corpus, training=training, policy=policy, evaluation=evaluation,
                release=released.outputs["release"], recipe=recipe, problem=problem, workers=workers,
                min_reduction_percent=min_reduction_percent, max_slowdown_percent=max_slowdown_percent,
            ),
            "4", "8G",
        )  # fmt: skip
        reported.set_caching_options(False)  # for its recipe, as of the corpus
        with dsl.If(tune_minutes != "", name="plan-wanted"):
            _sized(
                search_plan(
                    corpus=corpus, training=training, policy=policy, release=released.outputs["release"],
                    minutes=tune_minutes, workers=workers, seed=seed,
                ),
                "8", "16G",
            )  # fmt: skip


@dsl.pipeline(name="mlgo-training", description="Code in, a clang with a policy trained on it out, and what it gains.")
def training_pipeline(
    recipe: str = "",
    corpus: str = "",
    compile_commands: str = "",
    problem: str = "inlining",
    preset: str = "demo",
    train_minutes: str = "",
    llvm_major: int = 19,
    llvm_source: str = "deb",
    workers: str = "local",
    spot: str = "",
    cluster: str = "",
    seed: int = 1,
    min_reduction_percent: str = "",
    max_slowdown_percent: str = "",
    release_if: str = "better",
    emphasize: str = "",
    with_policy: str = "",
    start_from: str = "heuristic",
    tune_minutes: str = "",
) -> None:
    """Args:
    recipe: projects to fetch and build, a path or URI of a recipe.
    corpus: a corpus that exists already. compile_commands: of a finished build. Exactly one of the three is not empty.
    problem: what the policy decides. preset: how much training. train_minutes: of PPO, instead of the preset's.
    llvm_major, llvm_source: the LLVM whose clang is trained and released. workers: where modules are compiled;
    `rayjob:N` is PPO's, on a Ray cluster of up to N pods that KubeRay starts for it, and `local` to all other steps.
    spot, cluster: of that cluster, as `mlgo ppo --help` says.
    seed: of everything random. min_reduction_percent: held-out modules must shrink, or get lower scores, by this for
    the verdict `better`, instead of what the problem asks for.
    max_slowdown_percent: of inlining with `recipe`: not better if its benchmarks execute so many percent more
    instructions; no limit if empty.
    release_if: `better` makes a release clang of such a policy only, `always` of any.
    emphasize: modules that the policy before made larger, see `mlgo ppo --help`.
    with_policy: a policy of another problem that the release clang carries as well.
    start_from: what training starts from: `heuristic`, `pretrained`, or a policy's path or URI.
    tune_minutes: of a search for a plan, inlining decisions of the corpus' own modules; none if empty.
    """
    told = _sized(finish(), "1", "2G")
    told.set_caching_options(False)  # to tell somebody is not a result
    with dsl.ExitHandler(told):
        training = _sized(toolchain_training(llvm_major=llvm_major, llvm_source=llvm_source), "4", "8G")
        code = _sized(
            make_corpus(
                recipe=recipe, existing=corpus, compile_commands=compile_commands, llvm_major=llvm_major,
                problem=problem,
            ),
            "4", "8G",
        )  # fmt: skip
        # What an URI or a path holds may change though its name does not: only content decides what is reused.
        code.set_caching_options(False)
        traced = _sized(
            collect_trace(
                corpus=code.outputs["corpus"], training=training.outputs["training"], problem=problem, workers=workers
            ),
            "4", "8G",
        )  # fmt: skip
        buckets = _sized(make_vocab(trace=traced.outputs["trace"]), "1", "4G")
        cloned = _sized(
            clone(
                trace=traced.outputs["trace"], vocab=buckets.outputs["vocab"], training=training.outputs["training"],
                preset=preset, start_from=start_from, seed=seed,
            ),
            "2", "8G",
        )  # fmt: skip
        cloned.set_caching_options(False)  # for what `start_from` names
        trained = _sized(
            train(
                corpus=code.outputs["corpus"], training=training.outputs["training"], trace=traced.outputs["trace"],
                warmstart=cloned.outputs["warmstart"], problem=problem, workers=workers, spot=spot, cluster=cluster,
                preset=preset, minutes=train_minutes, seed=seed, emphasize=emphasize,
            ),
            "8", "16G",
        )  # fmt: skip
        trained.set_caching_options(False)  # for what `emphasize` names
        trained.set_env_variable(CLUSTER_VARIABLE, IMAGES[CLUSTER])
        judged = _sized(
            evaluate(
                corpus=code.outputs["corpus"], training=training.outputs["training"],
                warmstart=cloned.outputs["warmstart"], policy=trained.outputs["policy"], problem=problem,
                workers=workers, preset=preset, min_reduction_percent=min_reduction_percent, release_if=release_if,
            ),
            "4", "8G",
        )  # fmt: skip
        release_if_good(
            good=judged.outputs["release"], corpus=code.outputs["corpus"], training=training.outputs["training"],
            policy=trained.outputs["policy"], evaluation=judged.outputs["evaluation"], recipe=recipe, problem=problem,
            workers=workers, with_policy=with_policy, llvm_major=llvm_major, llvm_source=llvm_source,
            min_reduction_percent=min_reduction_percent, max_slowdown_percent=max_slowdown_percent,
            tune_minutes=tune_minutes, seed=seed,
        )  # fmt: skip
