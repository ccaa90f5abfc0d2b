"""KFP's declarations of the evaluation step: the verdict on a policy, and the size report of a release clang."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def evaluation(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset], training: dsl.Input[dsl.Artifact], warmstart: dsl.Input[dsl.Model],
    policy: dsl.Input[dsl.Model], problem: str, workers: str, preset: str, min_reduction_percent: str,
    release_if: str, evaluation: dsl.Output[dsl.Artifact], metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML], release: dsl.OutputPath(str),  # type: ignore[valid-type]
):  # fmt: skip
    """What the policy does to held-out modules. `release` is "yes" if a release clang shall be made of it."""
    return step(
        "toolchain", "evaluation",
        ["--corpus", corpus.uri, "--toolchain", training.uri, "--warmstart", warmstart.uri, "--policy", policy.uri,
         "--problem", problem, "--workers", workers, "--preset", preset,
         "--min-reduction-percent", min_reduction_percent, "--release-if", release_if, "--quiet",
         "--output", evaluation.uri],
        hours=6,
        copies={"report.html": page.path},
        values={"metrics.json:release": release},
        metrics={"metrics.json": "metrics"},
    )  # fmt: skip


@dsl.container_component
def size_report(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset], training: dsl.Input[dsl.Artifact], policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact], release: dsl.Input[dsl.Artifact], recipe: str, problem: str, workers: str,
    min_reduction_percent: str, max_slowdown_percent: str, size_report: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics], page: dsl.Output[dsl.HTML], summary: dsl.Output[dsl.Markdown],
):  # fmt: skip
    """What the release clang itself makes of the held-out modules, and of whole programs."""
    return step(
        "toolchain", "evaluation",
        ["--corpus", corpus.uri, "--toolchain", training.uri, "--policy", policy.uri, "--evaluation", evaluation.uri,
         "--release-toolchain", release.uri, "--recipe", recipe, "--problem", problem, "--workers", workers,
         "--min-reduction-percent", min_reduction_percent, "--max-slowdown-percent", max_slowdown_percent, "--quiet",
         "--output", size_report.uri],
        hours=6,
        copies={"report.html": page.path, "summary.md": summary.path},
        metrics={"metrics.json": "metrics"},
    )  # fmt: skip
