"""Inline plans in the release clang."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PlannedModule, plan_flags, write_plan
from components.core.compiler.probe import without_outliner
from components.core.formats.corpus import Corpus, Module
from tests.components.toolchain.conftest import decisions_by_key

pytestmark = pytest.mark.toolchain

REMARKS = ["-Rpass-analysis=inline-plan"]


@dataclass(frozen=True)
class Flipped:
    """A module, decisions opposite to the policy's, and the training clang's text sizes with them and the policy."""

    module: Module
    source: str
    decisions: ForcedDecisions
    size: int
    policy_size: int


@pytest.fixture(scope="module")
def flipped(training_toolchain: Path, policy: Path, tiny_corpus: Corpus) -> Flipped:
    (module,) = (m for m in tiny_corpus.modules if m.name.startswith("app/tree"))
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    advisor = Advisor("policy", policy, log=True)
    (base,) = compiler(Request(module, advisor)).samples
    opposite = ForcedDecisions.of({key: 1 - action for key, action in decisions_by_key(base).items()})
    (forced,) = compiler(Request(module, advisor, forced=(opposite,))).samples
    assert forced.text_size_bytes != base.text_size_bytes and base.callsites is not None
    return Flipped(
        module,
        base.callsites.source,
        ForcedDecisions.of(decisions_by_key(forced)),
        forced.text_size_bytes,
        base.text_size_bytes,
    )


@pytest.fixture
def release(release_toolchain: Path) -> Compiler:
    return Compiler(release_toolchain / "bin" / "clang", "inlining")


@pytest.mark.parametrize("strategy", ["sdk", "plugin"])
def test_release_clang_takes_the_plans_decisions(
    flipped: Flipped, release: Compiler, release_plugin: Callable[[int], Path], strategy: str, tmp_path: Path
) -> None:
    if strategy == "plugin":
        release = Compiler(release_plugin(19) / "bin" / "clang", "inlining")
    assert flipped.source.endswith("app/tree.c")
    other = PlannedModule("elsewhere/tree.c", ForcedDecisions.of({("nobody", "nothing", 0): 1}))
    write_plan(tmp_path / "plan", [other, PlannedModule(flipped.source, flipped.decisions)], 19)
    # The training clang, whose sizes these are, neither outlines nor moves constants.
    off = without_outliner(release.clang)
    flags = (*plan_flags(tmp_path / "plan"), *off)
    (sample,) = release(Request(flipped.module, Advisor("release"), extra_flags=flags)).samples
    assert sample.text_size_bytes == flipped.size
    (alone,) = release(Request(flipped.module, Advisor("default"), extra_flags=flags)).samples
    assert alone.text_size_bytes == flipped.size, "a plan requests the advisor that knows it"
    (plain,) = release(Request(flipped.module, Advisor("release"), extra_flags=off)).samples
    assert plain.text_size_bytes == flipped.policy_size


def build(compiler: Compiler, source: Path, plan: Path) -> str:
    flags = [*Advisor("release").flags("inlining", None, None), *plan_flags(plan), *REMARKS]
    command: list[str | Path] = [compiler.clang, "-Oz", *flags, "-c", source, "-o", source.with_suffix(".o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_plan_applies_to_moved_and_changed_files(
    flipped: Flipped, release: Compiler, sources: dict[str, str], tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan", [PlannedModule(flipped.source, flipped.decisions)], 19)
    moved = tmp_path / "tree.c"
    moved.write_text(sources["app/tree.c"])
    count = len(flipped.decisions)
    assert f"{count} of the plan's {count}" in build(release, moved, tmp_path / "plan")
    moved.write_text(sources["app/tree.c"].replace("int other(", "int third("))
    remarks = build(release, moved, tmp_path / "plan")
    assert f" of the plan's {count} decisions were found" in remarks and f"{count} of the plan's" not in remarks
    other = tmp_path / "another.c"
    other.write_text(sources["app/tree.c"])
    assert "no decisions" in build(release, other, tmp_path / "plan")
    moved.write_text("int f(); int g() { return f(); }\n")
    assert "no decisions" in build(release, moved, tmp_path / "plan")


def truncate(data: bytes) -> bytes:
    return data[:-10]


def with_header_field(name: str, value: object) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        line, rest = data.split(b"\n", 1)
        return json.dumps(json.loads(line) | {name: value}).encode() + b"\n" + rest

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "it is cut off"),
        (lambda data: data[:150], "it ends inside its index"),
        (lambda data: data[:140] + b"?" + data[141:], "its index is damaged"),
        (lambda data: data[:-10] + b"?" + data[-9:], "a module's decisions are damaged"),
        (lambda _: b"", "it has no header"),
        (with_header_field("llvm_major", 22), "it was made with LLVM 22, and this is LLVM 19"),
        (with_header_field("problem", "regalloc"), "it is not for inlining"),
        (with_header_field("version", 2), "its version is not 1"),
    ],
)
def test_invalid_plan_fails_the_compile(
    flipped: Flipped, release: Compiler, tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    plan = tmp_path / "plan"
    write_plan(plan, [PlannedModule(flipped.source, flipped.decisions)], 19)
    plan.write_bytes(damage(plan.read_bytes()))
    with pytest.raises(CompileError) as caught:
        release(Request(flipped.module, Advisor("release"), extra_flags=tuple(plan_flags(plan))))
    (line,) = [line for line in caught.value.detail.splitlines() if "error:" in line]
    assert message in line


def test_missing_plan_fails_the_compile(flipped: Flipped, release: Compiler, tmp_path: Path) -> None:
    flags = tuple(plan_flags(tmp_path / "none"))
    with pytest.raises(CompileError, match="No such"):
        release(Request(flipped.module, Advisor("release"), extra_flags=flags))
