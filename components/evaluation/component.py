"""KFP components of the evaluation step: verdict, policy of the release clang, report on the release clang."""

from kfp import dsl

from components.platform.launcher.declare import step

_HEADLINE = "metrics.json:" + ",".join(
    """
    reduction_percent min_reduction_percent baseline_bytes policy_bytes modules modules_smaller modules_larger
    functions functions_lower functions_higher groups.unseen_modules.reduction_percent
    groups.unseen_projects.reduction_percent reference.reduction_percent linked.default.all.reduction_percent
    programs.reduction_percent
    """.split()
)
"""Figures that KFP lists and compares; hundreds more, by project and section, are in the report."""


@dsl.container_component
def evaluation(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    warmstart: dsl.Input[dsl.Model],
    policy: dsl.Input[dsl.Model],
    trace: dsl.Input[dsl.Dataset],
    problem: str,
    workers: str,
    preset: str,
    min_reduction_percent: str,
    release_if: str,
    evaluation: dsl.Output[dsl.Artifact],
    evaluation_metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    release_policy: dsl.OutputPath(str),  # type: ignore[valid-type]
):
    """Evaluate a policy on held-out modules, and choose the policy that the release clang embeds.

    Args:
        corpus: Corpus with the held-out modules.
        training: Training clang.
        warmstart: Policy that training started from.
        policy: Policy to evaluate.
        trace: Trace of the training, which tells what held-out functions it compiled, too.
        problem: Decision that the policy makes: `inlining` or `regalloc`.
        workers: Where modules are compiled, KIND[:N].
        preset: `tiny` compares with fewer inlining thresholds.
        min_reduction_percent: Minimum reduction on held-out modules, in percent, for the verdict `better`. Empty: the
            problem's default.
        release_if: `better`: the release clang embeds the policy only if the verdict is `better`; otherwise the policy
            that training started from, or a pretrained one, takes its place if the verdict on it is. `always`: it
            embeds the policy whatever the verdict, unless another one is better.
        evaluation: Measurements, metrics, report and verdict.
        evaluation_metrics: Headline metrics.
        page: HTML report.
        summary: Markdown summary of the report.
        release_policy: Policy that the release clang embeds: `trained`, `start` or `pretrained`; `none`: none is built.
    """
    return step(
        "evaluation",
        {
            "--corpus": corpus.uri,
            "--trust-corpus": True,
            "--toolchain": training.uri,
            "--warmstart": warmstart.uri,
            "--compare-with": "matching",
            "--policy": policy.uri,
            "--trace": trace.uri,
            "--problem": problem,
            "--workers": workers,
            "--preset": preset,
            "--min-reduction-percent": min_reduction_percent,
            "--release-if": release_if,
            "--quiet": True,
            "--output": evaluation.uri,
        },
        copies={"report.html": page.path, "summary.md": summary.path},
        values={"metrics.json:release_policy": release_policy},
        metrics={_HEADLINE: "evaluation_metrics"},
    )


@dsl.container_component
def select_policy(  # type: ignore[no-untyped-def]
    evaluation: dsl.Input[dsl.Artifact],
    policy: dsl.Input[dsl.Model],
    warmstart: dsl.Input[dsl.Model],
    training: dsl.Input[dsl.Artifact],
    release_policy: dsl.Output[dsl.Model],
):
    """Copy the policy that the release clang embeds: the trained one, the one it started from, or a pretrained one.

    Args:
        evaluation: Evaluation that chose it.
        policy: Trained policy.
        warmstart: Policy that training started from.
        training: Training clang.
        release_policy: The chosen policy.
    """
    return step(
        "select-policy",
        {
            "--evaluation": evaluation.uri,
            "--policy": policy.uri,
            "--start": warmstart.uri,
            "--toolchain": training.uri,
            "--output": release_policy.uri,
        },
        subcommand="select-policy",
    )


@dsl.container_component
def release_report(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    release: dsl.Input[dsl.Artifact],
    recipe: str,
    problem: str,
    workers: str,
    min_reduction_percent: str,
    max_slowdown_percent: str,
    time_repeats: int,
    relink: str,
    benchmark: str,
    flag_rows: str,
    release_report: dsl.Output[dsl.Artifact],
    release_metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
):
    """Measure the release clang itself on held-out modules and on whole programs.

    Args:
        corpus: Corpus with the held-out modules.
        training: Training clang.
        policy: Policy that the release clang embeds.
        evaluation: Evaluation by the training clang, which measured this policy, too.
        release: Release clang to measure.
        recipe: Recipe of the programs to build and run. Empty: no whole programs.
        problem: Decision that the policy makes: `inlining` or `regalloc`.
        workers: Where modules are compiled, KIND[:N].
        min_reduction_percent: Minimum reduction on held-out modules, in percent, for the verdict `better`. Empty: the
            problem's default.
        max_slowdown_percent: Maximum increase, in percent, of the instructions that benchmarks execute. Empty: no
            limit.
        time_repeats: Runs of each benchmark with each build, to compare their processor time. 0: none.
        relink: Whether the programs of the build that the corpus comes from are linked again: `yes` or `no`.
        benchmark: Shell command that runs programs of the build that the corpus comes from. Empty: none.
        flag_rows: Rows of flags under which the programs are also built, separated by commas; `all`. Empty: none.
        release_report: Measurements, metrics, report and verdict.
        release_metrics: Headline metrics.
        page: HTML report.
        summary: Markdown summary of the report.
    """
    return step(
        "release-report",
        {
            "--corpus": corpus.uri,
            "--trust-corpus": True,
            "--toolchain": training.uri,
            "--policy": policy.uri,
            "--evaluation": evaluation.uri,
            "--release-toolchain": release.uri,
            "--recipe": recipe,
            "--problem": problem,
            "--workers": workers,
            "--min-reduction-percent": min_reduction_percent,
            "--max-slowdown-percent": max_slowdown_percent,
            "--time-repeats": time_repeats,
            "--relink": relink,
            "--benchmark": benchmark,
            "--flag-rows": flag_rows,
            "--quiet": True,
            "--output": release_report.uri,
        },
        copies={"report.html": page.path, "summary.md": summary.path},
        metrics={_HEADLINE: "release_metrics"},
    )
