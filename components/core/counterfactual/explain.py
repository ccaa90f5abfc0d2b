"""Explains the inlining decisions of a policy in one module: what it saw, how sure it was, what LLVM would have done,
and what the decision gained."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request, read_object
from components.core.compiler.development_mode.interactive import (
    INCLUDE_DEFAULT,
    Columns,
    compile_interactively,
    stack_columns,
)
from components.core.compiler.forced_decisions import ForcedDecisions, ordinals
from components.core.compiler.logs.inline_remarks import name_decisions, read_inline_remarks, remark_flags
from components.core.compiler.objects.elf import ElfError
from components.core.compiler.replay.command_line import replay_arguments
from components.core.compiler.sample import Sample
from components.core.counterfactual.flip_sets import estimate_uncertainty
from components.core.counterfactual.flips import Flip
from components.core.counterfactual.inlining import attribute_savings, pin_flips, plan_flips
from components.core.formats.corpus import Module
from components.core.formats.policy import POLICY_JSON, load_policy_info
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.optional_features import fix_features
from components.core.problems.inlining import INLINING
from components.platform.console import Progress, say
from components.platform.console.escape import csv_text
from components.platform.errors import UserError
from components.platform.storage.output_files import replace_text

TIMEOUT_S = 600.0
_CALLEE_SIZE = "callee_basic_block_count"
_FIRST_LLVM_WITH_DEFAULT = 22
"""LLVM 19 writes the heuristic's decision over another feature."""


@dataclass(frozen=True)
class Explanation:
    """The N decisions of a compile, in their order.

    Attributes:
        callers, callees: names of functions; empty if the compiler does not name them.
        ordinal: int [N], number of the call among those of the same caller and callee; empty without names.
        features: feature name -> int64 [N], those that the policy uses.
        logits: float32 [N, 2], of the policy: not to inline, to inline.
        action: int64 [N], the policy's decision, 1 to inline.
        heuristic: int64 [N], the decision of LLVM's heuristic, -1 if unknown.
        gain_bytes: float64 [N], bytes that the decision saves in comparison with the other one; NaN if not measured.
        size_bytes: text size of the module, 0 if unknown.
    """

    callers: tuple[str, ...]
    callees: tuple[str, ...]
    ordinal: npt.NDArray[np.int64]
    features: Mapping[str, npt.NDArray[np.int64]]
    logits: npt.NDArray[np.float32]
    action: npt.NDArray[np.int64]
    heuristic: npt.NDArray[np.int64]
    gain_bytes: npt.NDArray[np.float64]
    size_bytes: int

    def __len__(self) -> int:
        return len(self.action)

    @property
    def measured_gains(self) -> npt.NDArray[np.float64]:
        """The gains in bytes of the decisions that were measured."""
        return self.gain_bytes[~np.isnan(self.gain_bytes)]

    def worst_first(self) -> npt.NDArray[np.intp]:
        """Return the decisions by gain, the most harmful first; those that were not measured last, least sure first."""
        margin = np.abs(self.logits[:, 1] - self.logits[:, 0])
        by_gain: npt.NDArray[np.intp] = np.lexsort(
            (margin, np.where(np.isnan(self.gain_bytes), np.inf, self.gain_bytes))
        )
        return by_gain

    def write_csv(self, path: Path) -> None:
        """Write a row for each decision, in the order of the compile, atomically."""
        stream = io.StringIO(newline="")
        writer = csv.writer(stream)
        header = ["decision", "caller", "callee", "ordinal", "inline", "heuristic_inlines", "gain_bytes"]
        writer.writerow([*header, "logit_refuse", "logit_inline", *map(csv_text, self.features)])
        for i in range(len(self)):
            names = (
                (csv_text(self.callers[i]), csv_text(self.callees[i]), self.ordinal[i]) if self.callers else [""] * 3
            )
            heuristic = "" if self.heuristic[i] < 0 else self.heuristic[i]
            gain = "" if np.isnan(self.gain_bytes[i]) else f"{self.gain_bytes[i]:g}"
            logits = [f"{value:.6g}" for value in self.logits[i]]
            values = [column[i] for column in self.features.values()]
            writer.writerow([i, *names, self.action[i], heuristic, gain, *logits, *values])
        replace_text(path, stream.getvalue())


def explain_with_training_clang(
    policy: Path, module: Module, clang: Path, flip_compiles: int, seed: int
) -> Explanation:
    """Explain a compile of a training clang, which knows the names of functions and measures decisions.

    Args:
        flip_compiles: number of compiles that measure gains; each measures several decisions. 0 measures none.

    Raises:
        UserError: the module does not compile, or the policy wants features that this clang does not log.
    """
    base, explained = _compile_with_training_clang(policy, module, clang)
    if flip_compiles and len(explained):
        random = np.random.default_rng(seed)
        plan = plan_flips(base, explained.action, estimate_uncertainty(explained.logits), flip_compiles, random)
        if plan.forced:
            flipped = _compile(clang, module, Advisor("policy", policy=policy, samples=len(plan.forced)), plan.forced)
            savings = attribute_savings(base, plan, flipped)
            alone = savings.together == 1
            explained.gain_bytes[savings.decision[alone]] = -savings.saved[alone]
    return explained


def explain_with_stock_clang(
    policy: Path, module: Module, clang: Path, llvm_major: int, flip_compiles: int = 0
) -> Explanation:
    """Explain a compile of any clang of LLVM 17 or later, which asks this process for each decision.

    Names of functions come from the clang's optimization record. Each flip is a compile with the other answer to one
    question; the policy makes all further decisions.

    Args:
        flip_compiles: number of decisions that are measured, those that the policy is least sure of.

    Raises:
        UserError: a compile fails, or the policy wants features that this clang does not have.
    """
    explained_compile = _StockCompile(policy, module, clang, llvm_major)
    columns, names, size_bytes = explained_compile.run()
    callers, callees = (tuple(column) for column in zip(*names, strict=True)) if names else ((), ())
    keys = [np.unique(np.array(names), return_inverse=True)[1].astype(np.int32) for names in (callers, callees)]
    ordinal = ordinals(*keys).astype(np.int64)
    explained = _explanation(explained_compile.dense, callers, callees, ordinal, columns, size_bytes)
    if len(explained) and not names:
        say(f"warning: the optimization record of {clang} does not name the functions of its decisions")
    chosen = np.argsort(-estimate_uncertainty(explained.logits), kind="stable")[:flip_compiles].tolist()
    with Progress("measuring decisions", len(chosen)) as progress:
        for i in chosen:
            explained.gain_bytes[i] = explained_compile.run(flip=i)[2] - size_bytes
            progress.advance()
    return explained


class _StockCompile:
    """Compiles a module with a clang without our advisors, under a policy.

    Attributes:
        dense: the policy, after the first decision without features that this clang lacks.
    """

    def __init__(self, policy: Path, module: Module, clang: Path, llvm_major: int) -> None:
        self.dense = read_dense(policy)
        self._optional = load_policy_info(policy).optional_features if (policy / POLICY_JSON).is_file() else {}
        self._is_fitted = False
        self._module = module
        self._clang = clang
        self._flags = ["-mllvm", INCLUDE_DEFAULT] if llvm_major >= _FIRST_LLVM_WITH_DEFAULT else []

    def run(self, flip: int | None = None) -> tuple[dict[str, npt.NDArray[Any]], list[tuple[str, str]], int]:
        """Compile; return features and decision by name, callers and callees, and the text size in bytes.

        Args:
            flip: index of the decision that is made the other way; callers and callees are then [].
        """
        index = 0

        def decide(_context: str, columns: Columns) -> int:
            nonlocal index
            self._fit(columns)
            action = int(self.dense.logits(columns).argmax())
            index += 1
            return 1 - action if index - 1 == flip else action

        module = self._module
        with TemporaryDirectory(prefix="mlgo-explain-") as directory:
            scratch = Path(directory)
            record = scratch / "remarks.yaml"
            flags = [*self._flags, *(remark_flags(record) if flip is None else ())]
            arguments = replay_arguments(
                module.arguments(),
                module.bitcode,
                scratch / "m.o",
                flags,
                module.thinlto_index,
                corpus=module.directory,
                clang=self._clang,
            )
            decisions = compile_interactively(self._clang, arguments, INLINING.name, decide, TIMEOUT_S, scratch)
            try:
                size_bytes, _functions = read_object(scratch / "m.o", want_functions=False)
            except (ElfError, OSError) as error:
                raise UserError(
                    f"{self._clang} made no object of {module.name}: {error}", "pass another --clang"
                ) from None
            remarks = read_inline_remarks(record) if flip is None else []
        columns = stack_columns(decisions)
        action = np.array([decision.action for decision in decisions], np.int64)
        names = name_decisions(remarks, columns, action) if decisions else []
        return columns | {INLINING.policy.decision: action} if decisions else {}, names, size_bytes

    def _fit(self, columns: Columns) -> None:
        """Fix the optional features that this clang lacks. UserError if it lacks others."""
        if self._is_fitted:
            return
        missing = [spec.name for spec in self.dense.features if spec.name not in columns]
        if required := [name for name in missing if name not in self._optional]:
            raise UserError(
                f"{self._clang} does not have all features of the policy; missing: {', '.join(required)}",
                "use a policy that was trained with --features llvm, such as pretrained-llvm, or a training clang: "
                "--toolchain",
            )
        if missing:
            self.dense = fix_features(self.dense, {name: self._optional[name] for name in missing})
        self._is_fitted = True


def _explanation(
    dense: DensePolicy,
    callers: tuple[str, ...],
    callees: tuple[str, ...],
    ordinal: npt.NDArray[np.int64],
    columns: Mapping[str, npt.NDArray[Any]],
    size_bytes: int,
) -> Explanation:
    decided = columns.get(INLINING.policy.decision, np.empty(0, np.int64)).reshape(-1).astype(np.int64)
    n = len(decided)
    default = columns.get(INLINING.policy.default_decision or "")
    return Explanation(
        callers,
        callees,
        ordinal,
        {spec.name: columns[spec.name].reshape(-1) for spec in dense.network_features} if n else {},
        dense.logits(columns) if n else np.empty((0, 2), np.float32),
        decided,
        np.full(n, -1, np.int64) if default is None else default.reshape(-1).astype(np.int64),
        np.full(n, np.nan),
        size_bytes,
    )


class Effect(NamedTuple):
    """One or more decisions unlike LLVM's, all to inline or all to refuse, and the module with the opposite ones.

    Attributes:
        decisions: indices in the explanation: one, or all unlike LLVM's about the calls of one function.
        saved_bytes: bytes of the module that the decisions save; None if they were not measured.
        function_growth: whole bytes that the function has more with the opposite decisions; None if they were not
            measured.
    """

    decisions: tuple[int, ...]
    saved_bytes: int | None
    function_growth: int | None


def explain_functions(
    policy: Path,
    module: Module,
    clang: Path,
    functions: Collection[str],
    measured: int,
    extra_flags: Sequence[str] = (),
) -> tuple[Explanation, dict[str, list[Effect]]]:
    """Measure the decisions behind the changes of functions: those in or about a function that LLVM takes otherwise.

    Those about the calls of the function are taken together, because a definition is dropped only with its last call.
    Each measurement is a compile with the opposite decisions, which repeats all others.

    Args:
        policy: directory of an inlining policy with its shared object.
        clang: of a training clang that takes forced decisions.
        functions: mangled names.
        measured: maximum number of measurements for each function; of the decisions in it, those about the
            largest callees.
        extra_flags: cc1 flags of all compiles.

    Returns:
        The explanation of the compile, and for each function all decisions, those with the largest effect first.

    Raises:
        UserError: the module does not compile.
    """
    base, explained = _compile_with_training_clang(policy, module, clang, extra_flags)
    unlike = np.flatnonzero((explained.heuristic >= 0) & (explained.action != explained.heuristic)).tolist()
    blocks = explained.features.get(_CALLEE_SIZE, np.zeros(len(explained), np.int64))
    groups: dict[str, list[tuple[int, ...]]] = {}
    for function in functions:
        about = [i for i in unlike if explained.callees[i] == function]
        same = [tuple(i for i in about if explained.action[i] == action) for action in (0, 1)]
        inside = sorted(
            (i for i in unlike if explained.callers[i] == function and i not in about), key=lambda i: -blocks[i]
        )
        groups[function] = [group for group in (*same, *((i,) for i in inside)) if group]
    flipped = list(dict.fromkeys(group for own in groups.values() for group in own[:measured]))
    samples: dict[tuple[int, ...], Sample] = {}
    if flipped:
        flips = [[Flip(np.array(group), 1 - int(explained.action[group[0]]), frozenset())] for group in flipped]
        advisor = Advisor("policy", policy=policy, samples=len(flips))
        forced = pin_flips(base, explained.action, flips)
        samples = dict(zip(flipped, _compile(clang, module, advisor, forced, extra_flags), strict=True))
    effects = {
        function: [_effect(group, function, base, samples.get(group)) for group in own]
        for function, own in groups.items()
    }
    for own in effects.values():
        own.sort(key=lambda effect: -abs(effect.saved_bytes or 0))  # stable
    return explained, effects


def _effect(decisions: tuple[int, ...], function: str, base: Sample, sample: Sample | None) -> Effect:
    if sample is None or sample.function_sizes is None:
        return Effect(decisions, None, None)
    assert base.function_sizes is not None
    now, otherwise = (sizes.by_name().get(function, 0) for sizes in (base.function_sizes, sample.function_sizes))
    return Effect(decisions, sample.text_size_bytes - base.text_size_bytes, otherwise - now)


def _compile(
    clang: Path,
    module: Module,
    advisor: Advisor,
    forced: tuple[ForcedDecisions, ...] = (),
    extra_flags: Sequence[str] = (),
) -> tuple[Sample, ...]:
    """Compile with the sizes of functions. UserError if the module does not compile."""
    try:
        request = Request(module, advisor, True, tuple(extra_flags), forced)
        return tuple(Compiler(clang, INLINING.name, TIMEOUT_S)(request).samples)
    except CompileError as error:
        raise UserError(str(error), "check that the corpus and the training clang are of one LLVM version") from None


def _compile_with_training_clang(
    policy: Path, module: Module, clang: Path, extra_flags: Sequence[str] = ()
) -> tuple[Sample, Explanation]:
    """Compile under the policy; return the sample and its explanation without gains."""
    dense = read_dense(policy)
    (base,) = _compile(clang, module, Advisor("policy", policy=policy, log=True), (), extra_flags)
    assert base.log is not None and base.callsites is not None
    if not base.log.decisions:
        return base, _explanation(dense, (), (), np.empty(0, np.int64), {}, base.text_size_bytes)
    (columns,) = [context.columns for context in base.log.contexts if len(context)]
    calls = base.callsites
    callers, callees = (tuple(calls.names[i] for i in which.tolist()) for which in (calls.caller, calls.callee))
    ordinal = ordinals(calls.caller, calls.callee).astype(np.int64)
    return base, _explanation(dense, callers, callees, ordinal, columns, base.text_size_bytes)
