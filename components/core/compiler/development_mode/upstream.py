"""Compiles modules with a training clang that others built in LLVM's own development mode, with LLVM_HAVE_TFLITE.

Such a clang logs the decisions of the heuristic, and takes the most probable action of a policy's model.tflite. It does
not know the options of our advisors (-mlgo-*): it neither samples, nor forks, nor names callsites, nor takes given
decisions. Samples therefore come from LLVM's interactive mode, in which this process decides (interactive.py): the
policy's native form computes the logits, and each sample is a compile of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from components.core import problems
from components.core.compiler.compile import CompileError, Compiler, Request, Result, read_object
from components.core.compiler.development_mode.interactive import (
    Columns,
    InteractiveDecision,
    InteractiveError,
    compile_interactively,
    stack_columns,
)
from components.core.compiler.logs.training_log import Context, TrainingLog, read_log
from components.core.compiler.objects.elf import ElfError
from components.core.compiler.replay.command_line import replay_arguments
from components.core.compiler.sample import Sample
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import OUTPUT_SPEC_JSON, TFLITE_MODEL
from components.core.formats.toolchain import Toolchain
from components.core.policy.generated.native_policy import NativePolicy
from components.platform.errors import UserError
from components.platform.processes.reaper import REAPER

MODEL_FILES = (TFLITE_MODEL, OUTPUT_SPEC_JSON)
"""The files of a policy directory that LLVM's development mode reads."""


def compiler_for(
    toolchain: Toolchain, problem: str, timeout_s: float, allowed_options: tuple[str, ...] = ()
) -> Compiler:
    """Return the Compiler of a training or release toolchain; arguments as those of Compiler."""
    return compiler_class(toolchain)(toolchain.clang, problem, timeout_s, allowed_options)


def compiler_class(toolchain: Toolchain) -> type[Compiler]:
    """Return the class of the compilers of a toolchain."""
    return Compiler if "samples" in toolchain.capabilities else UpstreamCompiler


class UpstreamCompiler(Compiler):
    """A Compiler for a clang of LLVM's own development mode.

    It takes the requests of Compiler except those with forced decisions or flips, with samples of a problem whose
    outcome is a score, which LLVM computes in development mode only, or with samples of the heuristic.
    """

    names_callsites: ClassVar[bool] = False

    def __call__(self, request: Request) -> Result:
        """Compile a module and return its samples. ValueError for a request that this clang cannot fulfil."""
        advisor = request.advisor
        if request.forced or request.flips is not None:
            raise ValueError("this clang takes no given decisions")
        if advisor.samples:
            return self._sample(request)
        if advisor.policy is not None:
            require_model(advisor.policy)
        return super().__call__(request)

    def _read_log(self, path: Path) -> TrainingLog:
        """Read a log without the functions that have no decision, which LLVM's own allocator also lists."""
        log = read_log(path)
        return TrainingLog(log.features, tuple(context for context in log.contexts if len(context)))

    def _sample(self, request: Request) -> Result:
        advisor, module = request.advisor, request.module
        if advisor.policy is None or advisor.seed is None or self._logs_scores:
            raise ValueError(f"this clang takes no samples of {advisor.mode} for {self.problem}")
        policy = NativePolicy(advisor.policy)
        samples = []
        started_s = time.perf_counter()
        for seed in range(advisor.seed, advisor.seed + advisor.samples):
            with TemporaryDirectory(prefix="compile-", dir=REAPER.scratch(), ignore_cleanup_errors=True) as directory:
                scratch = Path(directory)
                arguments = replay_arguments(
                    module.arguments(),
                    module.bitcode,
                    scratch / "m.o",
                    request.extra_flags,
                    module.thinlto_index,
                    self.allowed_options,
                    module.directory,
                    clang=self.clang,
                )
                sampler = _Sampler(policy, seed)
                try:
                    decisions = compile_interactively(
                        self.clang, arguments, self.problem, sampler, self.timeout_s, scratch
                    )
                    size_bytes, functions = read_object(scratch / "m.o", request.want_functions, request.want_bodies)
                except InteractiveError as error:
                    raise CompileError(module.name, error.reason, error.problem) from error
                except (ElfError, FileNotFoundError) as error:
                    raise CompileError(module.name, "log", str(error)) from error
            log = self._log(decisions, sampler.logits) if advisor.log else None
            samples.append(Sample(size_bytes, log, None, functions))
        return Result(module.name, tuple(samples), time.perf_counter() - started_s)

    def _log(self, decisions: list[InteractiveDecision], logits: list[np.ndarray[Any, Any]]) -> TrainingLog:
        """Return what a training log of this compile has: features, logits and the action of each decision."""
        if not decisions:
            return TrainingLog((), ())
        policy = problems.get(self.problem).policy
        added = (
            FeatureSpec(policy.logits, "float32", (1, policy.num_actions)),
            FeatureSpec(policy.decision, "int64", (1,)),
        )
        actions = np.array([decision.action for decision in decisions], np.int64)[:, None]
        columns = stack_columns(decisions) | {policy.logits: np.stack(logits)[:, None], policy.decision: actions}
        return TrainingLog((*decisions[0].columns.features, *added), (Context("", columns, None),))


class _Sampler:
    """Decides by sampling from the policy, reproducibly for a seed; keeps the logits float32 [A] of each decision."""

    def __init__(self, policy: NativePolicy, seed: int) -> None:
        self._policy = policy
        self._random = np.random.default_rng(seed)
        self._bound: Callable[[Any], Any] | None = None
        self.logits: list[np.ndarray[Any, Any]] = []

    def __call__(self, _context: str, columns: Columns) -> int:
        if self._bound is None:
            self._bound = self._policy.bind(columns.features)
        logits = self._bound(columns.record).copy()
        self.logits.append(logits)
        # The maximum of logits with Gumbel noise is a sample of their softmax.
        return int((logits + self._random.gumbel(size=len(logits))).argmax())


def require_model(policy: Path) -> None:
    """Raise UserError unless a policy directory has what LLVM's development mode loads."""
    for name in MODEL_FILES:
        if not (policy / name).is_file():
            raise UserError(
                f"{policy} has no {name}, which a training clang of LLVM's own development mode loads",
                "export the policy again: mlgo policy export --output",
            )
