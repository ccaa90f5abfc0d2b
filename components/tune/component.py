"""KFP component of the tune step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def tune(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    policy: dsl.Input[dsl.Model],
    release: dsl.Input[dsl.Artifact],
    minutes: str,
    recipe: str,
    flag_rows: str,
    workers: str,
    seed: int,
    search: dsl.Output[dsl.Artifact],
    plan: dsl.Output[dsl.Artifact],
    plan_metrics: dsl.Output[dsl.Metrics],
):
    """Search for the inlining decisions that make the modules of the corpus smallest, starting from a policy.

    A retry continues from the state in `search`. A run with other inputs in the same place starts from scratch.

    Args:
        corpus: Corpus of the code to tune.
        training: Training clang.
        policy: Policy whose decisions the search starts from.
        release: Release clang with that policy.
        minutes: Minutes of search. Empty: the step's default.
        recipe: Recipe of the programs to link. Empty: none.
        flag_rows: Rows of flags under which they are linked, separated by commas; `all`: there is a plan only if they
            are smaller than by stock clang. Empty: nothing is linked.
        workers: Where modules are compiled, KIND[:N].
        seed: Random seed.
        search: State of the search.
        plan: Inlining decisions for the release clang.
        plan_metrics: Headline metrics.
    """
    return step(
        "tune",
        {
            "--corpus": corpus.uri,
            "--trust-corpus": True,
            "--toolchain": training.uri,
            "--policy": policy.uri,
            "--release-toolchain": release.uri,
            "--minutes": minutes,
            "--recipe": recipe,
            "--row": flag_rows,
            "--workers": workers,
            "--seed": seed,
            "--root-dir": search.uri,
            "--output": plan.uri,
        },
        metrics={
            "tune.json:corpus_modules,modules,rounds,heuristic_bytes,policy_bytes,plan_bytes,policy_reduction_percent,"
            "plan_reduction_percent,plan_linked_reduction_percent": "plan_metrics"
        },
        work="search",
        extends="minutes",
    )
