"""Inlining for size: whether to inline a call, at -Oz.

Names come from LLVM: lib/Analysis/MLInlineAdvisor.cpp (decision, model class), DevelopmentModeInlineAdvisor.cpp
(options); the name of the logits comes from ml-compiler-opt.
"""

from components.core.problems.problem import LlvmInterface, PolicyInterface, Problem, TrainingDefaults

_PROBE = """\
static int square(int x) { return x * x; }
int callee(int x) { return x < 0 ? square(-x) : square(x) + 1; }
int caller(int x) { return callee(x) + callee(x + 1) + square(x); }
"""

_MODULE_SIZE = frozenset({"node_count", "edge_count"})
"""Features that identify a module, so that a network memorizes the modules that it was trained on."""

_UNINFORMATIVE = frozenset(
    """
    caller_basic_block_count caller_direct_calls caller_invokes caller_other_calls callee_calls_in_caller
    callee_calls_inlined callsite_arguments callsite_is_cold case_cluster_penalty cold_cc_penalty constant_args
    dead_blocks indirect_call_penalty is_caller_avail_external jump_table_penalty load_relative_intrinsic
    nested_inline_cost_estimate nested_inlines num_loops sroa_losses switch_default_dest_penalty switch_penalty
    """.split()
)
"""Without these a network predicts decisions as well and is a quarter smaller (docs/performance.md)."""

INLINING = Problem(
    name="inlining",
    optimization="-Oz",
    cmd_filter="^-O[sz]$",
    objective="size",
    min_reduction_percent=0.5,
    decided_by_plugin=True,
    has_plans=True,
    llvm=LlvmInterface(
        callsites=True,
        model_class="InlinerSizeModel",
        development_options=("-enable-ml-inliner=development",),
        release_options=("-enable-ml-inliner=release",),
        log_option="-training-log",
        policy_option="-ml-inliner-model-under-training",
        channel_option="-inliner-interactive-channel-base",
        probe=_PROBE,
    ),
    policy=PolicyInterface(
        decision="inlining_decision",
        default_decision="inlining_default",
        logits="CategoricalProjectionNetwork_logits",
        num_actions=2,
        action_names=("keep the call", "inline"),
        excluded_features=_MODULE_SIZE | _UNINFORMATIVE,
        heuristic=("cost_estimate", "threshold"),
        settings=frozenset({"threshold"}),
        use_counts=("callee_users", "caller_users"),
    ),
    training=TrainingDefaults(repeats="callee_users"),
)
