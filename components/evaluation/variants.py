"""The ways in which every held-out module is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.compiler.advisor import Advisor
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, POLICY, WARMSTART, threshold_name
from components.formats.toolchain import Toolchain


@dataclass(frozen=True)
class Variant:
    """One way to compile: variants of a module differ in this and in nothing else.

    Attributes:
        name: as in `Measurements.sizes`.
        clang: the compiler.
        advisor: who decides.
        extra_flags: cc1 flags behind the module's own.
    """

    name: str
    clang: Path
    advisor: Advisor
    extra_flags: tuple[str, ...] = ()

    def flags(self, problem: str) -> str:
        """What is added to a module's own command line, for people."""
        log = Path("LOG") if self.advisor.logs else None
        return " ".join([*self.advisor.flags(problem, log, None), *self.extra_flags]) or "none"


def threshold_flags(threshold: int) -> tuple[str, ...]:
    """cc1 flags that give the default heuristic another threshold.

    -inline-threshold does move the decisions at -Oz, where each caller is marked minsize: in LLVM 19
    (llvm/lib/Analysis/InlineCost.cpp, getInlineParams) the cap of 5 for minsize callers is set only where the flag is
    not given. With the flag, its value holds for every caller; 5 gives exactly the -Oz code.
    """
    return ("-mllvm", f"-inline-threshold={threshold}")


def plan(config: EvaluationConfig, training: Toolchain, release: Toolchain | None) -> tuple[Variant, ...]:
    """All variants of an evaluation of sizes, the baseline first.

    Without a release clang the training clang runs the policy greedily. Those two take the same decisions, but only
    the release clang's is the result that users get.
    """
    default = Advisor("default")
    clang = training.clang
    variants = [Variant(BASELINE, clang, default)]
    if config.warmstart is not None:
        variants.append(Variant(WARMSTART, clang, Advisor("policy", policy=config.warmstart)))
    if release is not None:
        variants.append(Variant(POLICY, release.clang, Advisor("release")))
    else:
        variants.append(Variant(POLICY, clang, Advisor("policy", policy=config.policy)))
    variants += [
        Variant(threshold_name(threshold), clang, default, threshold_flags(threshold))
        for threshold in config.thresholds
    ]
    return tuple(variants)


def plan_scores(config: EvaluationConfig, training: Toolchain) -> tuple[Variant, ...]:
    """All variants of an evaluation of scores, the baseline first.

    All by the training clang, for no other logs scores; it decides greedily, as a release clang of the policy does.
    """
    policies = {WARMSTART: config.warmstart, POLICY: config.policy}
    logged = {name: Advisor("policy", policy=policy, log=True) for name, policy in policies.items() if policy}
    advisors = {BASELINE: Advisor("log"), **logged}
    return tuple(Variant(name, training.clang, advisor) for name, advisor in advisors.items())
