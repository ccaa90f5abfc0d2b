"""Variants: the configurations in which every held-out module is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.advisor import TRAINED_RANGES, Advisor
from components.core.compiler.compile import Compiler
from components.core.compiler.development_mode.upstream import compiler_class
from components.core.compiler.probe import without_outliner
from components.core.formats.toolchain import Toolchain
from components.core.objectives import Objective
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, POLICY, REFERENCE, WARMSTART, threshold_name
from components.evaluation.metrics_types import CompiledBy


@dataclass(frozen=True)
class Variant:
    """One configuration of compiles; variants of a module differ in nothing else.

    Attributes:
        name: as in `Measurements.values`.
        extra_flags: cc1 flags after the module's own.
        compiler: the class that knows what this clang can do.
    """

    name: str
    clang: Path
    advisor: Advisor
    extra_flags: tuple[str, ...] = ()
    compiler: type[Compiler] = Compiler

    def flags(self, problem: str) -> str:
        """Return the flags that are added to a module's own command line, for reports."""
        log = Path("LOG") if self.advisor.logs else None
        return " ".join([*self.advisor.flags(problem, log, None), *self.extra_flags]) or "none"


def threshold_flags(threshold: int) -> tuple[str, ...]:
    """Return cc1 flags that give the default heuristic another threshold.

    -inline-threshold changes the decisions at -Oz, where each caller is marked minsize: LLVM 19
    (llvm/lib/Analysis/InlineCost.cpp, getInlineParams) sets the cap of 5 for minsize callers only without the flag.
    With the flag, its value holds for every caller; 5 gives exactly the -Oz code.
    """
    return ("-mllvm", f"-inline-threshold={threshold}")


def plan_variants(
    objective: Objective,
    config: EvaluationConfig,
    training: Toolchain,
    release: Toolchain | None,
    reference: Path | None = None,
) -> tuple[Variant, ...]:
    """Return all variants of an evaluation, the baseline first; `reference` is the policy of `config.compare_with`.

    The release clang, if given, compiles the policy's variant, because users get its code. Without it, or if values
    come from the training log, the training clang runs the policy greedily, with the same decisions.
    """
    log, kind = objective.needs_log, compiler_class(training)
    variants = [Variant(BASELINE, training.clang, Advisor("log") if log else Advisor("default"), compiler=kind)]

    ranges = TRAINED_RANGES if config.problem == "inlining" and "trained_ranges" in training.capabilities else ()

    def load(name: str, policy: Path) -> Variant:
        return Variant(name, training.clang, Advisor("policy", policy=policy, log=log), ranges, kind)

    if config.warmstart is not None:
        variants.append(load(WARMSTART, config.warmstart))
    if reference is not None:
        variants.append(load(REFERENCE, reference))
    if choose_clang(objective, release) == "release" and release is not None:
        # Without the outliner, the code of the release clang differs from the training clang's by decisions only.
        flags = without_outliner(release.clang) if config.problem == "inlining" else ()
        variants.append(Variant(POLICY, release.clang, Advisor("release"), flags))
    else:
        variants.append(load(POLICY, config.policy))
    return (
        *variants,
        *(
            Variant(threshold_name(threshold), training.clang, Advisor("default"), threshold_flags(threshold))
            for threshold in (config.thresholds if objective.sweeps_thresholds else ())
        ),
    )


def choose_clang(objective: Objective, release: Toolchain | None) -> CompiledBy:
    """Return which clang yields the policy's values: "training" or "release"."""
    return "release" if release is not None and not objective.needs_log else "training"
