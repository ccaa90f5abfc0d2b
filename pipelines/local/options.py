"""Options of `mlgo run`, and their conversion to the pipeline's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core.formats.strategy import EXTERNAL
from components.platform.errors import UserError
from pipelines.validation import as_option, check_values


@dataclass(frozen=True)
class RunOptions:
    """Options of one run.

    Invariants: exactly one of compile_commands, corpus and recipe is set; paths are absolute; preset is one of PRESETS.

    Attributes:
        clang: absolute path of the training clang of strategy "external", else "".
        features: a FeatureSet; None for "extended", or "llvm" with strategy "external", whose clang has no others.
        ir2vec_vocab: vocabulary of features "ir2vec": a file's path or URI, or "random"; else "".
        train_minutes: minutes of training, if set, instead of the preset's.
        flag_rows: rows of flags under which the programs of the recipe are also linked.
        extra_policy: a policy for a problem other than `problem`.
        start_from: "heuristic", one of PRETRAINED_NAMES, or a policy's path or URI.
        tune_minutes: minutes of search for a plan; None for no search.
    """

    output: Path
    compile_commands: Path | None = None
    corpus: Path | None = None
    recipe: Path | None = None
    preset: str = "demo"
    problem: str = "inlining"
    workers: str = "local"
    strategy: str = "sdk"
    targets: str = "native"
    llvm_major: int = 19
    llvm_source: str = "deb"
    sdk: str = ""
    clang: str = ""
    features: str | None = None
    ir2vec_vocab: str = ""
    train_minutes: float | None = None
    seed: int = 1
    min_reduction_percent: float | None = None
    max_slowdown_percent: float | None = None
    flag_rows: tuple[str, ...] = ()
    extra_policy: Path | None = None
    start_from: str = "heuristic"
    tune_minutes: float | None = None

    def __post_init__(self) -> None:
        check_values(self.parameters(), as_option)
        for source in (self.compile_commands, self.corpus, self.recipe):
            if source is not None and not source.exists():
                raise UserError(f"{source} does not exist", "check the path")

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the pipeline (pipelines/training.py), as text.

        A release clang is built whatever the verdict, because a user who starts a run by hand wants to see it; what it
        embeds: components/evaluation/release_policy.py.
        """
        return {
            "recipe": str(self.recipe or ""),
            "corpus": str(self.corpus or ""),
            "compile_commands": str(self.compile_commands or ""),
            "problem": self.problem,
            "preset": self.preset,
            "train_minutes": "" if self.train_minutes is None else f"{self.train_minutes:g}",
            "strategy": self.strategy,
            "targets": self.targets,
            "llvm_major": str(self.llvm_major),
            "llvm_source": self.llvm_source,
            "sdk": self.sdk,
            "clang": self.clang,
            "features": self.features or ("llvm" if self.strategy == EXTERNAL else "extended"),
            "ir2vec_vocab": self.ir2vec_vocab,
            "workers": self.workers,
            "seed": str(self.seed),
            "min_reduction_percent": "" if self.min_reduction_percent is None else f"{self.min_reduction_percent:g}",
            "max_slowdown_percent": "" if self.max_slowdown_percent is None else f"{self.max_slowdown_percent:g}",
            "flag_rows": ",".join(self.flag_rows),
            "release_if": "always",
            "extra_policy": str(self.extra_policy or ""),
            "start_from": self.start_from,
            "tune_minutes": "" if self.tune_minutes is None else f"{self.tune_minutes:g}",
        }
