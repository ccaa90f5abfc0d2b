"""Goal of each figure, and the best value known from elsewhere."""

from __future__ import annotations

import operator
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Goal of a figure.

    Attributes:
        sign: "<=" or ">=": how a figure must compare to `value`.
        elsewhere: known values from elsewhere, as text.
    """

    key: str
    sign: str
    value: float
    elsewhere: str

    def met(self, figure: float) -> bool:
        return (operator.le if self.sign == "<=" else operator.ge)(figure, self.value)


GOALS = (
    Goal("trace_over_plain_compile", "<=", 1.10, "2.43 (ml-compiler-opt)"),
    Goal("regalloc_trace_over_plain_compile", "<=", 1.15, "-"),
    Goal("extract_speedup_over_mlgo_utils", ">=", 8, "1 (9.4 s for 544 objects)"),
    Goal("training_clang_s", "<=", 90, "hours"),
    Goal("release_clang_s", "<=", 15, "hours"),
    Goal("emitted_policy_us_per_decision", "<=", 1, "about 70 (TF AOT)"),
    Goal("release_compile_overhead_percent", "<=", 2, "24 (TF AOT), < 5 (RFC)"),
    Goal("release_clang_growth_bytes", "<=", 115_000, "248,536 (TF AOT), 115 KB (RFC)"),
    Goal("release_peak_memory_growth_kib", "<=", 300, "-"),
    Goal("program_over_stock_lto", "<=", 1.2, "-"),
    Goal("program_smallest_over_stock_lto", "<=", 1.9, "-"),
    Goal("warmstart_decisions_per_s", ">=", 500_000, "17,000 (ml-compiler-opt)"),
    Goal("warmstart_agreement", ">=", 0.99, "-"),
    Goal("regalloc_emitted_policy_us_per_decision", "<=", 25, "-"),
    Goal("regalloc_release_compile_overhead_percent", "<=", 5, "-"),
    Goal("regalloc_warmstart_agreement", ">=", 0.95, "-"),
    Goal("ppo_overhead", "<=", 1.25, "-"),
    Goal("checkpoint_over_unflushed", "<=", 1.05, "-"),
    Goal("credit_r2_unseen_modules", ">=", 0.75, "0.006 (advantages of PPO's samples)"),
    Goal("credit_error_percent", "<=", 5, "-"),
    Goal("ray_overhead_ms_per_module", "<=", 2, "-"),
    Goal("ray_slots_busy_512", ">=", 0.90, "-"),
    Goal("ray_training_busy_512", ">=", 0.85, "-"),
    Goal("false_better_other_projects_percent", "<=", 3, "-"),
    Goal("false_better_other_modules_percent", "<=", 3, "-"),
    Goal("coverage_other_projects_percent", ">=", 92, "-"),
    Goal("coverage_other_modules_percent", ">=", 92, "-"),
    Goal("coverage_real_packages_percent", ">=", 90, "-"),
    Goal("power_5_spread_2_percent", ">=", 95, "-"),
    Goal("choice_of_equal_policies_percent", "<=", 6, "-"),
    Goal("wrong_choice_for_few_projects_percent", "<=", 6, "-"),
    Goal("false_promotion_percent", "<=", 7, "-"),
    Goal("useless_first_deployment_percent", "<=", 6, "-"),
    Goal("wrong_promotion_for_few_projects_percent", "<=", 6, "-"),
    Goal("ray_over_local_iteration", "<=", 1.10, "-"),
)
