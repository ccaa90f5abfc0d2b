"""KFP components of the evaluation step: verdict, policy of the release clang, report on the release clang."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

_HEADLINE = "metrics.json:" + ",".join(
    """
    reduction_percent min_reduction_percent baseline_bytes policy_bytes modules modules_smaller modules_larger
    functions functions_lower functions_higher groups.unseen_modules.reduction_percent
    groups.unseen_projects.reduction_percent reference.reduction_percent linked.default.all.reduction_percent
    programs.reduction_percent
    """.split()
)
"""Figures that KFP lists and compares; hundreds more, by project and section, are in the report."""

_PAGES = (
    Port("page", "HTML report.", dsl.Output[dsl.HTML], ""),
    Port("summary", "Markdown summary of the report.", dsl.Output[dsl.Markdown], ""),
)
_COPIES = {"report.html": "page", "summary.md": "summary"}
_MIN_REDUCTION = Port(
    "min_reduction_percent",
    "Minimum reduction on held-out modules, in percent, for the verdict `better`. Empty: the\nproblem's default.",
)
_PROBLEM = Port("problem", "Decision that the policy makes: `inlining` or `regalloc`.")
_WORKERS = Port("workers", "Where modules are compiled, KIND[:N].")

evaluation = component(
    "evaluation",
    "Evaluate a policy on held-out modules, and choose the policy that the release clang embeds.",
    Port("corpus", "Corpus with the held-out modules.", dsl.Input[dsl.Dataset]),
    ("--trust-corpus", True),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("warmstart", "Policy that training started from.", dsl.Input[dsl.Model]),
    ("--compare-with", "matching"),
    Port("policy", "Policy to evaluate.", dsl.Input[dsl.Model]),
    Port(
        "trace",
        "Trace of the training, which tells what held-out functions it compiled, too.",
        dsl.Input[dsl.Dataset],
    ),
    _PROBLEM,
    _WORKERS,
    Port("preset", "`tiny` compares with fewer inlining thresholds."),
    _MIN_REDUCTION,
    Port(
        "release_if",
        "`better`: the release clang embeds the policy only if the verdict is `better`; otherwise the policy\nthat "
        "training started from, or a pretrained one, takes its place if the verdict on it is. `always`: it\nembeds the "
        "policy whatever the verdict, unless another one is better.",
    ),
    ("--quiet", True),
    Port("evaluation", "Measurements, metrics, report and verdict.", dsl.Output[dsl.Artifact], "--output"),
    Port("evaluation_metrics", "Headline metrics.", dsl.Output[dsl.Metrics], ""),
    *_PAGES,
    Port(
        "release_policy",
        "Policy that the release clang embeds: `trained`, `start` or `pretrained`; `none`: none is built.",
        dsl.OutputPath(str),
        "",
    ),
    copies=_COPIES,
    values={"metrics.json:release_policy": "release_policy"},
    metrics={_HEADLINE: "evaluation_metrics"},
)

select_policy = component(
    "select-policy",
    "Copy the policy that the release clang embeds: the trained one, the one it started from, or a pretrained one.",
    Port("evaluation", "Evaluation that chose it.", dsl.Input[dsl.Artifact]),
    Port("policy", "Trained policy.", dsl.Input[dsl.Model]),
    Port("warmstart", "Policy that training started from.", dsl.Input[dsl.Model], "--start"),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("release_policy", "The chosen policy.", dsl.Output[dsl.Model], "--output"),
    subcommand="select-policy",
)

release_report = component(
    "release-report",
    "Measure the release clang itself on held-out modules and on whole programs.",
    Port("corpus", "Corpus with the held-out modules.", dsl.Input[dsl.Dataset]),
    ("--trust-corpus", True),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("policy", "Policy that the release clang embeds.", dsl.Input[dsl.Model]),
    Port(
        "evaluation",
        "Evaluation by the training clang, which measured this policy, too.",
        dsl.Input[dsl.Artifact],
    ),
    Port("release", "Release clang to measure.", dsl.Input[dsl.Artifact], "--release-toolchain"),
    Port("recipe", "Recipe of the programs to build and run. Empty: no whole programs."),
    _PROBLEM,
    _WORKERS,
    _MIN_REDUCTION,
    Port(
        "max_slowdown_percent",
        "Maximum increase, in percent, of the instructions that benchmarks execute. Empty: no\nlimit.",
    ),
    Port(
        "time_repeats",
        "Runs of each benchmark with each build, to compare their processor time. 0: none.",
        int,
    ),
    Port("relink", "Whether the programs of the build that the corpus comes from are linked again: `yes` or `no`."),
    Port("benchmark", "Shell command that runs programs of the build that the corpus comes from. Empty: none."),
    Port(
        "flag_rows",
        "Rows of flags under which the programs are also built, separated by commas; `all`. Empty: none.",
    ),
    ("--quiet", True),
    Port("release_report", "Measurements, metrics, report and verdict.", dsl.Output[dsl.Artifact], "--output"),
    Port("release_metrics", "Headline metrics.", dsl.Output[dsl.Metrics], ""),
    *_PAGES,
    copies=_COPIES,
    metrics={_HEADLINE: "release_metrics"},
)
