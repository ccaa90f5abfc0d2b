"""Kinds of artifacts. A step replaces and reads only artifacts of the kind that it means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Kind = Literal[
    "corpus",
    "trace",
    "vocab",
    "policy",
    "toolchain",
    "SDK",
    "plan",
    "evaluation",
    "comparison of binaries",
    "comparison of programs",
    "comparison of flags",
    "TFRecord trace",
    "export for LLVM",
    "LLVM source tree",
    "checkpoint",
    "state of a search",
    "promotion decision",
    "smaller build",
    "set of compilers",
    "test of a bucket",
    "smoke test",
]
"""A manifest names the kind of its artifact. Training and release toolchains are one kind, and so are the policies of
warmstart and ppo, because each takes the other's place in other steps."""
KINDS: tuple[str, ...] = get_args(Kind)

_BY_FILE: dict[str, Kind] = {
    "toolchain.json": "toolchain",
    "sdk.json": "SDK",
    "corpus_description.json": "corpus",
    "trace.json": "trace",
    "vocab.json": "vocab",
    "policy.json": "policy",
    "tune.json": "plan",
    "metrics.json": "evaluation",
    "binaries.json": "comparison of binaries",
    "programs.json": "comparison of programs",
    "trace.tfrecord": "TFRecord trace",
    "mlgo.cmake": "export for LLVM",
    "cmake/Modules/LLVMVersion.cmake": "LLVM source tree",
    "state.json": "checkpoint",
    "search.json": "state of a search",
    "promotion.json": "promotion decision",
}
"""File -> kind of an artifact of an earlier version, whose manifest does not name its kind."""


def kind_by_files(names: Iterable[str]) -> str:
    """Return the kind of an artifact with these files; "" if they are of no known kind."""
    present = set(names)
    return next((kind for name, kind in _BY_FILE.items() if name in present), "")


def describe_kind(kind: str) -> str:
    """Return a kind with its article, for messages."""
    if not kind:
        return "an artifact of an unknown kind"
    return f"{'an' if kind.startswith(('e', 'SDK', 'LLVM')) else 'a'} {kind}"
