"""Explains the inlining decisions of a policy in one module: what it saw, how sure it was, what LLVM would have done,
and what the decision gained."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request, read_object
from components.core.compiler.development_mode.interactive import (
    INCLUDE_DEFAULT,
    Columns,
    compile_interactively,
    stack_columns,
)
from components.core.compiler.forced_decisions import ordinals
from components.core.compiler.logs.inline_remarks import name_decisions, read_inline_remarks, remark_flags
from components.core.compiler.objects.elf import ElfError
from components.core.compiler.replay.command_line import replay_arguments
from components.core.counterfactual.flip_sets import estimate_uncertainty
from components.core.counterfactual.inlining import attribute_savings, plan_flips
from components.core.formats.corpus import Module
from components.core.formats.policy import POLICY_JSON, load_policy_info
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.optional_features import fix_features
from components.core.problems.inlining import INLINING
from components.platform.console import Progress, say
from components.platform.console.escape import csv_text
from components.platform.console.tables import table_console
from components.platform.errors import UserError
from components.platform.storage.output_files import replace_text

TIMEOUT_S = 600.0
_DECISIONS = {1: "inline", 0: "refuse", -1: "?"}
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
        policy: directory of an inlining policy.
        flip_compiles: number of compiles that measure gains; each measures several decisions. 0 measures none.
        seed: selects decisions that are measured.

    Raises:
        UserError: the module does not compile, or the policy wants features that this clang does not log.
    """
    dense = read_dense(policy)
    compiler = Compiler(clang, INLINING.name, TIMEOUT_S)
    try:
        (base,) = compiler(Request(module, Advisor("policy", policy=policy, log=True), want_functions=True)).samples
        assert base.log is not None and base.callsites is not None
        if not base.log.decisions:
            return _explanation(dense, (), (), np.empty(0, np.int64), {}, base.text_size_bytes)
        (columns,) = [context.columns for context in base.log.contexts if len(context)]
        calls = base.callsites
        callers, callees = (tuple(calls.names[i] for i in which.tolist()) for which in (calls.caller, calls.callee))
        ordinal = ordinals(calls.caller, calls.callee).astype(np.int64)
        explained = _explanation(dense, callers, callees, ordinal, columns, base.text_size_bytes)
        if flip_compiles:
            random = np.random.default_rng(seed)
            plan = plan_flips(base, explained.action, estimate_uncertainty(explained.logits), flip_compiles, random)
            if plan.forced:
                advisor = Advisor("policy", policy=policy, samples=len(plan.forced))
                flipped = compiler(Request(module, advisor, want_functions=True, forced=plan.forced)).samples
                savings = attribute_savings(base, plan, flipped)
                alone = savings.together == 1
                explained.gain_bytes[savings.decision[alone]] = -savings.saved[alone]
    except CompileError as error:
        raise UserError(str(error), "check that the corpus and the training clang are of one LLVM version") from None
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
    explained = _explanation(
        explained_compile.dense, callers, callees, _ordinals(callers, callees), columns, size_bytes
    )
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
                module.arguments(), module.bitcode, scratch / "m.o", flags, module.thinlto_index, (), module.directory
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


def _ordinals(callers: Sequence[str], callees: Sequence[str]) -> npt.NDArray[np.int64]:
    columns = [np.unique(np.array(names), return_inverse=True)[1].astype(np.int32) for names in (callers, callees)]
    return ordinals(*columns).astype(np.int64)


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


def print_explanation(explanation: Explanation, limit: int) -> None:
    """Print a table of at most `limit` decisions, the most harmful first, and a summary.

    Columns that the compiler's output gives no values for are left out.
    """
    console = table_console(160)
    is_measured, has_names = bool(explanation.measured_gains.size), bool(explanation.callers)
    order = "most harmful first" if is_measured else "not measured, least sure first"
    table = Table(title=f"Inlining decisions of the policy, {order}")
    for title in ("decision", *(("caller", "callee") if has_names else ())):
        table.add_column(title, overflow="fold")
    for title in ("policy", "heuristic", "margin", *(("saves bytes",) if is_measured else ())):
        table.add_column(title, justify="right")
    for i in explanation.worst_first()[:limit].tolist():
        gain = explanation.gain_bytes[i]
        table.add_row(
            str(i),
            *((explanation.callers[i], explanation.callees[i]) if has_names else ()),
            _DECISIONS[int(explanation.action[i])],
            _DECISIONS[int(explanation.heuristic[i])],
            f"{abs(explanation.logits[i, 1] - explanation.logits[i, 0]):.2f}",
            *(() if not is_measured else ("",) if np.isnan(gain) else (f"{gain:,.0f}",)),
        )
    console.print(table)
    console.print(_summary(explanation), highlight=False, soft_wrap=True)


def _summary(explanation: Explanation) -> str:
    has_heuristic = explanation.heuristic >= 0
    parts = [f"{len(explanation)} decisions, {int(explanation.action.sum())} to inline"]
    if has_heuristic.any():
        differs = (explanation.action != explanation.heuristic)[has_heuristic]
        parts.append(f"{int(differs.sum())} unlike LLVM's heuristic")
    measured = explanation.measured_gains
    if len(measured):
        harmful = measured[measured < 0]
        parts.append(
            f"{len(measured)} measured: {len(harmful)} make the module larger, by {abs(harmful.sum()):,.0f} bytes"
        )
    if explanation.size_bytes:
        parts.append(f"text {explanation.size_bytes:,} bytes")
    return "; ".join(parts)
