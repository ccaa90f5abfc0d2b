"""The types of metrics.json and of its parts, which msgspec checks when the file is read.

Fields are written in the order of their definition, base classes first; a field that is UNSET is not written. Fields
with a default are missing in files of earlier versions. Imports nothing heavy, because launchers read metrics.json. An
objective whose values add up has a subclass of `SizeMetrics`, every other one a subclass of `ScoreMetrics`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from components.core.compiler.source_language import Language
from components.core.objectives.estimate import Estimate
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.types import FlagsComparison, Kind, SectionSizes
from components.core.projects.speed.types import TimeChange

Verdict = Literal["better", "not better", "not shown"]
"""Whether a policy is better than LLVM's heuristic: "not shown" if it is on what was measured, but may not be on other
code (components/evaluation/claim.py)."""
Group = Literal["unseen_modules", "unseen_projects"]
CompiledBy = Literal["training", "release"]
PolicyRole = Literal["trained", "start", "pretrained"]
"""A policy of a run: the one that it trained, the one that training started from, or a pretrained one."""
NO_GAIN_OVER_START = "it is not shown to be better than the policy that training started from"
"""A reason in `refused_because`."""
G = TypeVar("G")


class SizeComparison(Struct, kw_only=True):
    """Text sizes of the same modules under the heuristic and under another variant.

    Attributes:
        baseline_bytes, policy_bytes: text in sum under the heuristic and under the variant.
        reduction_percent: positive is smaller; None without text under the heuristic.
        modules_smaller, modules_equal, modules_larger: number of modules by the direction of their change.
        other_modules: what they say of other modules of the same projects, or, of two policies that are compared, of
            other code of these projects; None if there is nothing to compare.
        other_projects: what those of unseen projects say of other projects; None without one.
        of_unseen_projects: whether all of them are of projects that are held out as a whole.
    """

    modules: int
    baseline_bytes: int
    policy_bytes: int
    reduction_percent: float | None
    modules_smaller: int
    modules_equal: int
    modules_larger: int
    other_modules: Estimate | None = None
    other_projects: Estimate | None = None
    of_unseen_projects: bool = False

    @property
    def cases(self) -> int:
        """Number of compared modules."""
        return self.modules


class ScoreComparison(Struct, kw_only=True):
    """Scores of the same functions under the heuristic and under another variant.

    Attributes:
        modules: number of modules that contain the functions.
        reduction_percent: reduction of the geometric mean, positive is lower; None without functions.
        functions_lower, functions_equal, functions_higher: number of functions by the direction of their change.
        other_modules, other_projects, of_unseen_projects: as in `SizeComparison`.
    """

    modules: int
    functions: int
    reduction_percent: float | None
    functions_lower: int
    functions_equal: int
    functions_higher: int
    other_modules: Estimate | None = None
    other_projects: Estimate | None = None
    of_unseen_projects: bool = False

    @property
    def cases(self) -> int:
        """Number of compared functions."""
        return self.functions


class SectionComparison(Struct, kw_only=True):
    """Bytes of one kind of section under the heuristic and under the policy; None without bytes under the heuristic."""

    baseline_bytes: int
    policy_bytes: int
    reduction_percent: float | None

    @classmethod
    def of(cls, baseline_bytes: int, policy_bytes: int) -> SectionComparison:
        """Return the comparison of two sums."""
        percent = reduction_percent(baseline_bytes, policy_bytes)
        return cls(baseline_bytes=baseline_bytes, policy_bytes=policy_bytes, reduction_percent=percent)


class OverlapFigures(Struct, kw_only=True):
    """How much of the held-out functions' bytes training compiled, too.

    Attributes:
        function_bytes: of all functions under the heuristic.
        known_bytes: of functions that a traced module has, too, by name and instructions.
        known_body_bytes: of functions whose instructions a traced module has, under any name; short ones do not count.
        new_functions: the functions that are not known.
    """

    function_bytes: int
    known_bytes: int
    known_body_bytes: int
    new_functions: SectionComparison


class SizeGroup(SizeComparison, kw_only=True):
    """Text sizes of a group of modules under the policy, and under its alternatives.

    Attributes:
        warmstart: the same modules under the warmstart policy, if there is one.
        reference: the same modules under the policy of --compare-with, if there is one.
        against_warmstart, against_reference: the policy compared with these two in place of the heuristic.
        sweep: -inline-threshold -> the same modules under the heuristic with that threshold.
        best_threshold: threshold with the smallest text, chosen on these modules; None without a sweep or modules.
        languages: language -> its modules under the policy.
        sections: section name -> bytes; empty if unknown.
        overlap: functions that training compiled, too; None if unknown.
        functions_once: the same modules with each function once in its project, as in a linked program; None if
            unknown.
    """

    warmstart: SizeComparison | None = None
    reference: SizeComparison | None = None
    against_warmstart: SizeComparison | None = None
    against_reference: SizeComparison | None = None
    sweep: dict[str, SizeComparison] = {}
    best_threshold: int | None = None
    languages: dict[str, SizeComparison] = {}
    sections: dict[str, SectionComparison] = {}
    overlap: OverlapFigures | None = None
    functions_once: SizeComparison | None = None


class ScoreGroup(ScoreComparison, kw_only=True):
    """Scores of a group of modules under the policy and, if they exist, under the other policies of `SizeGroup`."""

    warmstart: ScoreComparison | None = None
    reference: ScoreComparison | None = None
    against_warmstart: ScoreComparison | None = None
    against_reference: ScoreComparison | None = None


class Groups(Struct, Generic[G]):
    """Modules of projects that training saw in part, and of projects that it did not see."""

    unseen_modules: G
    unseen_projects: G


class SizeProject(SizeComparison, kw_only=True):
    """Text sizes of a project's modules under the policy."""

    group: Group


class ScoreProject(ScoreComparison, kw_only=True):
    """Scores of a project's functions under the policy."""

    group: Group


@dataclass(frozen=True)
class Excluded:
    """A held-out module without values, because it failed to compile under one variant.

    Attributes:
        variant: the first variant that failed.
        reason: "failed", "timeout" or "log".
        detail: the end of the compiler's output.
    """

    module: str
    variant: str
    reason: str
    detail: str


class PlanSizes(Struct, kw_only=True):
    """Sizes of one or more linked files with the release clang and a plan; percentages as in `BinaryEntry`.

    Attributes:
        reduction_percent, text_reduction_percent: reduction against stock clang.
        against_policy_percent: reduction of the text as llvm-size counts it against the policy without the plan.
    """

    sizes: SectionSizes
    reduction_percent: float | None
    text_reduction_percent: float | None
    against_policy_percent: float | None


class BinaryEntry(Struct, kw_only=True):
    """Sizes of one library or program, built with stock clang and with the release clang.

    Attributes:
        project: the recipe's name.
        name: path relative to the build directory.
        kind: kind of file. Static libraries are not linked; their members are summed.
        language: c++ if it needs a C++ library at run time; None if it is not linked.
        link_variant: a name in LINK_VARIANTS, or `build_trees.VARIANT`.
        stock, policy: sizes in bytes with stock clang and with the release clang.
        reduction_percent: reduction of the text as llvm-size counts it; None without text.
        text_reduction_percent: reduction of .text alone.
        plan: sizes with a plan of `mlgo tune`; UNSET without a plan.
        heuristic: sizes with the release clang that decides by LLVM's heuristic; UNSET if it was not built so.
    """

    project: str
    name: str
    kind: Kind
    language: Language | None = None
    link_variant: str = "default"
    stock: SectionSizes
    policy: SectionSizes
    reduction_percent: float | None = None
    text_reduction_percent: float | None = None
    plan: PlanSizes | UnsetType = UNSET
    heuristic: SectionSizes | UnsetType = UNSET


class LinkedTotal(Struct, kw_only=True):
    """Sum of the programs and shared libraries of a link variant and language; percentages as in `BinaryEntry`.

    Attributes:
        stock, policy: sizes in bytes with stock clang and with the release clang.
        plan: sizes with a plan of `mlgo tune`; UNSET without a plan.
        heuristic: sizes with the release clang that decides by LLVM's heuristic; UNSET unless all files were built so.
        policy_part_percent: reduction against these: what the policy saves, all else being equal.
    """

    files: int
    stock: SectionSizes
    policy: SectionSizes
    reduction_percent: float | None
    text_reduction_percent: float | None
    plan: PlanSizes | UnsetType = UNSET
    heuristic: SectionSizes | UnsetType = UNSET
    policy_part_percent: float | UnsetType | None = UNSET


LinkedTotals = dict[str, dict[str, LinkedTotal]]
"""Link variant -> "all", "c" or "c++" -> sum."""


class FunctionDecision(Struct, kw_only=True):
    """One or more inlining decisions of the policy that LLVM's heuristic takes the other way.

    Attributes:
        caller, callee: names of the first call's functions, demangled.
        calls: number of calls that are decided in the same way.
        inlines: whether the policy inlines the calls; LLVM's heuristic does the opposite.
        saved_bytes: bytes of the module that the decisions save, in comparison with the opposite ones and all others as
            they are; negative if they make the module larger. None if they were not measured.
        function_bytes: bytes of the changed function with the opposite decisions; None if they were not measured.
    """

    caller: str
    callee: str
    calls: int = 1
    inlines: bool
    saved_bytes: int | None = None
    function_bytes: int | None = None


class FunctionChange(Struct, kw_only=True):
    """A function whose size differs between two builds.

    Attributes:
        binary: the program or library, or the module of a corpus.
        function: its name, demangled; "outlined pieces" for all functions of LLVM's outliner.
        old, new: bytes of code, in a module with those of its unwind entries; 0 where the build does not have it.
        symbol: its mangled name.
        decisions: decisions behind the change, those that change the function most first; [] if none were sought.
        more_decisions: number of further decisions in or about the function that LLVM's heuristic takes the other way.
    """

    binary: str
    function: str
    old: int
    new: int
    symbol: str = ""
    decisions: list[FunctionDecision] = []
    more_decisions: int = 0


class BinariesComparison(Struct):
    """Linked binaries of whole projects, and their sums: the content of binaries.json.

    Attributes:
        functions: functions with the largest changes in the binaries of one link variant, those that grew first.
    """

    binaries: list[BinaryEntry] = []
    linked: LinkedTotals = {}
    functions: list[FunctionChange] = []


@dataclass(frozen=True)
class RunMetrics:
    """Counts of one run. cycles: None if the machine does not count them. text_bytes: the program's machine code."""

    instructions: int
    cycles: int | None
    text_bytes: int


class BenchmarkEntry(Struct, kw_only=True):
    """One benchmark, run with both builds of its program.

    Attributes:
        project: the recipe's name.
        program: path relative to the build directory.
        stock, policy: counts of the program built with stock clang and with the release clang.
        change_percent: change of the executed instructions; negative is better.
        time: its processor time; UNSET if it was not taken.
    """

    project: str
    name: str
    program: str
    stock: RunMetrics
    policy: RunMetrics
    change_percent: float
    time: TimeChange | UnsetType = UNSET


class InstructionTotals(Struct):
    """Executed instructions of all benchmarks, built with stock clang and with the release clang."""

    stock: int
    policy: int


class BenchmarkSummary(Struct, kw_only=True):
    """All benchmarks: the content of programs.json. Positive percentages are better.

    Attributes:
        instructions: executed instructions in sum.
        reduction_percent: reduction of that sum, in which long runs weigh more.
        geometric_mean_reduction_percent: reduction of the geometric mean of the ratios: all runs weigh the same.
        counter: "perf" or "callgrind".
        time: processor time, as the geometric mean of the changes; UNSET if it was not taken.
    """

    instructions: InstructionTotals
    reduction_percent: float
    geometric_mean_reduction_percent: float
    counter: str
    programs: list[BenchmarkEntry]
    time: TimeChange | UnsetType = UNSET


FULL_LTO = "full LTO"
"""Link variant of files of the user's own build that are linked with full LTO. The release clang decides there by
LLVM's heuristic, so they do not count for the verdict on a policy."""


class KeptObjects(Struct):
    """Objects of the user's own build that stay as they are: their number, and the names of the first ones."""

    number: int
    names: list[str]


class OwnBuild(Struct, kw_only=True):
    """How the programs of the user's own build were linked again: `linked` and `binaries` are of them.

    Attributes:
        source: who said how the build links: "recorded", "ninja", "CMake" or "none".
        need: what is missing to link any program; "" if one was linked.
        modules: number of modules that were compiled again, for both builds.
        trained_modules: number of them that training compiled.
        kept_objects: number of the build's objects in linked files that stay as they are, the same in both builds.
        kept: why such objects stay as they are -> these objects.
        as_built: number of files linked without LTO that have by stock clang the section sizes of the user's own files.
        thin_lto, full_lto: number of files that are linked with LTO, as the build's own flags ask.
        two_linkers: number of them whose link names no linker: GNU ld by stock clang, lld by the release clang.
        left_out: linked file -> why it is not compared.
        stock_s, policy_s: seconds of compiling these modules from bitcode, which is optimization and code generation,
            in sum.
    """

    source: str
    need: str = ""
    modules: int = 0
    trained_modules: int = 0
    kept_objects: int = 0
    kept: dict[str, KeptObjects] = {}
    as_built: int = 0
    thin_lto: int = 0
    full_lto: int = 0
    two_linkers: int = 0
    left_out: dict[str, str] = {}
    stock_s: float = 0.0
    policy_s: float = 0.0


@dataclass(frozen=True)
class WholeProjects:
    """Results of whole held-out projects, or of the user's own build.

    Attributes:
        binaries: linked binaries, for sizes only.
        programs: executed instructions; None if no program was run.
        flags: programs under rows of flags, for sizes only; None if they were not measured.
        own_build: how the user's own build was linked again; None for recipes.
    """

    binaries: BinariesComparison
    programs: BenchmarkSummary | None = None
    flags: FlagsComparison | None = None
    own_build: OwnBuild | None = None


class Inputs(Struct, kw_only=True):
    """Paths, digests and versions of what was evaluated.

    Attributes:
        corpus, policy, warmstart: absolute paths; warmstart is None if no warmstart policy was compared.
        policy_digest, warmstart_digest: digests of the artifacts.
        warmstart_trained_by: the step that made the warmstart policy.
        reference, reference_digest: absolute path or one of PRETRAINED_NAMES, and digest; None without --compare-with.
        reference_trained_on: for a pretrained policy, the projects with held-out modules that it was trained on: on
            other modules of them, or with another split even on these.
        pretrained_trained_on: such projects by the name of the pretrained policy that was evaluated, that training
            started from, or that is the reference.
        policy_pretrained: name of the pretrained policy that the evaluated policy is, "" if it is none.
        reference_knows_corpus: whether the reference was trained on this corpus.
        warmstart_pretrained: name of the pretrained policy that the warmstart policy is, "" if it is none.
        policy_role: which policy of the run was evaluated. If it is not the trained one, the reference is the trained
            one, and `trained_verdict` the text of its verdict.
        training_clang, release_clang: paths of the compilers; release_clang is None if there was none.
        llvm_version: version of both.
    """

    corpus: str = ""
    policy: str = ""
    policy_digest: str | None = None
    warmstart: str | None = None
    warmstart_digest: str | UnsetType | None = UNSET
    warmstart_trained_by: str | None = None
    reference: str | None = None
    reference_digest: str | None = None
    reference_trained_on: list[str] = []
    pretrained_trained_on: dict[str, list[str]] = {}
    policy_pretrained: str = ""
    reference_knows_corpus: bool = False
    warmstart_pretrained: str = ""
    policy_role: PolicyRole = "trained"
    trained_verdict: str = ""
    training_clang: str = ""
    release_clang: str | None = None
    llvm_version: str = ""

    @property
    def starts_from_trained(self) -> bool:
        """Whether training started from a trained policy, and not from one that imitates the heuristic."""
        return self.warmstart_trained_by not in (None, "", "warmstart")


class VariantDescription(Struct):
    """A variant: its name in measurements.json, its compiler, and the flags added to a module's command line."""

    name: str
    clang: str
    flags: str


def _require_same_policies(all_modules: SizeGroup | ScoreGroup, group: SizeGroup | ScoreGroup) -> None:
    for name in ("warmstart", "reference"):
        if getattr(all_modules, name) is not None and getattr(group, name) is None:
            raise ValueError(f"a group lacks the {name} policy")


class SizeMetrics(SizeGroup, kw_only=True, tag_field="measure", tag="size"):
    """The metrics.json of a size problem. The inherited figures are those of all held-out modules.

    Attributes:
        min_reduction_percent: minimum reduction for the verdict "better".
        groups: the two kinds of unseen code.
        per_project: project -> its modules.
        compile_s: variant -> seconds of compiling; UNSET if they were not measured.
        refused_because: why the verdict is "not better" regardless of reduction_percent, or "not shown".
        binaries: linked binaries of whole projects.
        programs: executed instructions of whole projects; None if no program was run.
        flags: programs under rows of flags; UNSET if they were not measured.
        own_build: how the user's own build was linked again; UNSET for recipes.
        judged_by: whose reduction decides the verdict.
        max_slowdown_percent: maximum increase of the executed instructions, in sum and of each program; None for no
            limit.
        release_policy: the policy that the release clang embeds; "none" if none is built.
        as_under_the_training_clang: number of cases with the same value under both clangs; UNSET unless an earlier
            evaluation was completed.
        policy_compiled_by: the clang that yields the policy's values.
        module_functions: functions with the largest changes in the modules that changed most, those that grew first.
        binary_functions: functions with the largest changes in linked binaries, those that grew first.
    """

    measure: ClassVar[str] = "size"

    verdict: Verdict
    min_reduction_percent: float
    groups: Groups[SizeGroup]
    per_project: dict[str, SizeProject]
    excluded: list[Excluded] = []
    compile_s: dict[str, float] | UnsetType = UNSET
    refused_because: str | None = None
    binaries: list[BinaryEntry] = []
    programs: BenchmarkSummary | None = None
    linked: LinkedTotals = {}
    flags: FlagsComparison | UnsetType = UNSET
    own_build: OwnBuild | UnsetType = UNSET
    judged_by: Literal["modules", "linked"] = "modules"
    max_slowdown_percent: float | None = None
    inputs: Inputs = msgspec.field(default_factory=Inputs)
    release_policy: PolicyRole | Literal["none"] = "none"
    as_under_the_training_clang: int | UnsetType = UNSET
    policy_compiled_by: CompiledBy = "release"
    problem: str = "inlining"
    variants: list[VariantDescription] = []
    module_functions: list[FunctionChange] = []
    binary_functions: list[FunctionChange] = []

    def __post_init__(self) -> None:
        for group in self.columns:
            _require_same_policies(self, group)
            for part in ("sweep", "languages", "sections"):
                if getattr(self, part).keys() - getattr(group, part).keys():
                    raise ValueError(f"a group lacks {part}")
        if self.best_threshold is not None and str(self.best_threshold) not in self.sweep:
            raise ValueError("best_threshold is not in the sweep")
        if not all("all" in languages for languages in self.linked.values()):
            raise ValueError("linked files have no sum")

    @property
    def columns(self) -> Sequence[SizeGroup]:
        """All held-out modules, then the groups."""
        return self, self.groups.unseen_modules, self.groups.unseen_projects


class ScoreMetrics(ScoreGroup, kw_only=True, tag_field="measure", tag="score"):
    """The metrics.json of a score problem; attributes as in `SizeMetrics`.

    The two cannot share a base with the attributes of an evaluation: a Struct has one base with fields, which is the
    group, and the fields of a base are written first.
    """

    measure: ClassVar[str] = "score"

    verdict: Verdict
    min_reduction_percent: float
    groups: Groups[ScoreGroup]
    per_project: dict[str, ScoreProject]
    excluded: list[Excluded] = []
    compile_s: dict[str, float] | UnsetType = UNSET
    refused_because: str | None = None
    binaries: list[BinaryEntry] = []
    programs: BenchmarkSummary | None = None
    inputs: Inputs = msgspec.field(default_factory=Inputs)
    release_policy: PolicyRole | Literal["none"] = "none"
    as_under_the_training_clang: int | UnsetType = UNSET
    policy_compiled_by: CompiledBy = "release"
    problem: str = "inlining"
    variants: list[VariantDescription] = []

    def __post_init__(self) -> None:
        for group in self.columns:
            _require_same_policies(self, group)

    @property
    def columns(self) -> Sequence[ScoreGroup]:
        """All held-out functions, then the groups."""
        return self, self.groups.unseen_modules, self.groups.unseen_projects


Metrics = SizeMetrics | ScoreMetrics


METRICS: dict[str, type[Metrics]] = {SizeMetrics.measure: SizeMetrics, ScoreMetrics.measure: ScoreMetrics}
"""Name of an objective -> type of its metrics.json."""


class _Measure(Struct):
    """The key that tells which type metrics.json has; the first version had only sizes."""

    measure: str = SizeMetrics.measure


@cache
def _decoder(kind: type[Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


# At import: msgspec crashes where several threads decode a type for the first time.
for _kind in (_Measure, *METRICS.values()):
    _decoder(_kind)


def decode_metrics(content: bytes) -> Metrics:
    """Return the content of metrics.json. msgspec.DecodeError, ValueError or RecursionError if it is damaged."""
    measure = _decoder(_Measure).decode(content).measure
    if measure not in METRICS:
        raise msgspec.ValidationError(f"Invalid value {measure!r} - at `$.measure`")
    metrics: Metrics = _decoder(METRICS[measure]).decode(content)
    return metrics


def encode_json(document: object) -> str:
    """Return the text of metrics.json, binaries.json or programs.json. ValueError for NaN or infinity."""
    return json.dumps(msgspec.to_builtins(document), indent=1, allow_nan=False) + "\n"
