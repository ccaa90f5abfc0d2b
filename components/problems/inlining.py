"""Inlining for size: whether to inline a call, at -Oz.

Names are LLVM's: lib/Analysis/MLInlineAdvisor.cpp (decision, model class), DevelopmentModeInlineAdvisor.cpp (options);
that of the logits is ml-compiler-opt's.
"""

from components.problems.problem import Problem

_PROBE = """\
static int square(int x) { return x * x; }
int callee(int x) { return x < 0 ? square(-x) : square(x) + 1; }
int caller(int x) { return callee(x) + callee(x + 1) + square(x); }
"""

INLINING = Problem(
    name="inlining",
    optimization="-Oz",
    decision="inlining_decision",
    default_decision="inlining_default",
    logits="CategoricalProjectionNetwork_logits",
    num_actions=2,
    # The size of the whole module: by it a network knows the modules that it was trained on, and learns them by heart.
    excluded_features=frozenset({"node_count", "edge_count"}),
    measure="size",
    min_reduction_percent=0.5,
    callsites=True,
    repeats="callee_users",
    model_class="InlinerSizeModel",
    model_macro="LLVM_HAVE_TF_AOT_INLINERSIZEMODEL",
    development_options=("-enable-ml-inliner=development",),
    release_options=("-enable-ml-inliner=release",),
    log_option="-training-log",
    policy_option="-ml-inliner-model-under-training",
    channel_option="-inliner-interactive-channel-base",
    probe=_PROBE,
)
