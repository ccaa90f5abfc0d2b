"""Tests that commands replace nothing but artifacts of their own kind, and read no damaged artifact.

Each example puts something at the place of an output, or damages a member of an input. MLGO_FUZZ_EXAMPLES sets the
number of examples as in test_fuzzing.py.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.core.policy.dense import DensePolicy
from components.corpus.__main__ import main as corpus
from components.evaluation.__main__ import main as evaluation
from components.platform.command import _status_of
from components.platform.storage import publish, read_manifest, verify
from components.platform.storage.kinds import KINDS, Kind
from components.platform.storage.manifest import MANIFEST
from components.policy.__main__ import main as policy
from components.ppo.__main__ import main as ppo
from components.toolchain.__main__ import main as toolchain
from components.trace.__main__ import main as trace
from components.tune.__main__ import main as tune
from components.vocab.__main__ import main as vocab
from components.warmstart.__main__ import main as warmstart
from pipelines.cli.retrain import retrain_group as retrain
from tests.repository.test_fuzzing import CORPUS, ELF, EXAMPLES, no_hang
from tests.support.bitcode import bitcode

FEATURE = FeatureSpec("callee_users", "int64", (1,))
FEW = max(EXAMPLES // 2, 20)

MEMBERS: dict[Kind, dict[str, bytes]] = {
    "corpus": dict(CORPUS),
    "toolchain": {"toolchain.json": b"{}", "bin/clang": b"#!/bin/sh\n" * 20, "lib/a.so": bytes(range(256))},
    "policy": {"policy.json": b'{"version": 1}', "policy.so": b"\x7fELF" * 9},  # and weights
    "plan": {"tune.json": b"{}", "inline.plan": b"plan" * 30},
    "evaluation": {"metrics.json": b"{}", "report.csv": b"a,b\n1,2\n", "report.html": b"<p>"},
    "vocab": {"vocab.json": b'{"version": 1}', "a.buckets": b"1\n" * 1000},
    "checkpoint": {"state.json": b"{}", "variables.npz": b"PK" * 40},
}
"""Kind -> members of an artifact that is whole; its readers need not get beyond the comparison with the manifest."""


def make_artifact(output: Path, kind: Kind) -> None:
    with publish(output, kind) as directory:
        if kind == "trace":
            write_trace(directory)
        for name, content in MEMBERS.get(kind, {"file": b"content"}).items() if kind != "trace" else ():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        if kind == "policy":
            layers = ((np.ones((2, 2), np.float32), np.zeros(2, np.float32)),)
            DensePolicy("inlining", (FEATURE,), {FEATURE.name: np.arange(10.0)}, layers).save(directory)


def write_trace(directory: Path) -> None:
    writer = TraceWriter(directory, "inlining", "inlining_decision", (FEATURE,))
    rows = 20
    writer.add(
        ModuleTrace(
            module="a/m",
            text_size_bytes=100,
            compile_s=0.1,
            contexts=["c"],
            context=np.zeros(rows, np.int32),
            step=np.arange(rows, dtype=np.int32),
            names=["f", "g"],
            caller=np.zeros(rows, np.int32),
            callee=np.ones(rows, np.int32),
            columns={"callee_users": np.arange(rows).reshape(-1, 1)},
            action=np.arange(rows) % 2,
            reward=0.0,
        )
    )
    writer.close("corpus", "toolchain")


def content(directory: Path) -> dict[str, bytes | str]:
    """Return the content of each file below a directory, and the target of each link."""
    contents: dict[str, bytes | str] = {}
    for folder, folders, files in os.walk(directory):
        for name in (*files, *(one for one in folders if Path(folder, one).is_symlink())):
            path = Path(folder, name)
            key = path.relative_to(directory).as_posix()
            contents[key] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return contents


def status_of(command: click.Command, arguments: Sequence[str | Path]) -> tuple[int, str]:
    """Run a command as run_step does, where a traceback is an exception; return its status and standard error."""
    words = [str(argument) for argument in arguments]
    with no_hang(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        status = _status_of(lambda: command.main(words, standalone_mode=False))
    return status, err.getvalue()


WRITERS: dict[str, tuple[click.Command, tuple[str, ...], Kind]] = {
    "vocab": (vocab, ("--trace", "in/trace"), "vocab"),
    "export": (trace, ("export", "--trace", "in/trace"), "TFRecord trace"),
    "import": (corpus, ("import", "--input", "in/corpus"), "corpus"),
    "make": (corpus, ("make", "--input", "in/bitcode"), "corpus"),
    "obtain": (corpus, ("obtain", "--existing", "in/three"), "corpus"),
    "extract": (corpus, ("extract", "--compile-commands", "in/build"), "corpus"),
    "compilers": (corpus, ("compilers",), "set of compilers"),
    "compare-builds": (evaluation, ("compare-builds", "in/build", "in/build"), "comparison of binaries"),
}
"""Name -> command, options of its inputs, and the kind of its output."""


@functools.cache
def built_object() -> bytes:
    """Return an object with bitcode, whose functions need opt to be kept."""
    with tempfile.TemporaryDirectory() as scratch:
        text = "static __attribute__((used)) int hidden(int x) { return x; }\nint shown(int x) { return x + 1; }\n"
        Path(scratch, "a.c").write_text(text)
        command = ["clang-19", "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", "a.c"]
        subprocess.run(command, cwd=scratch, check=True)
        return Path(scratch, "a.o").read_bytes()


def put_inputs(work: Path) -> None:
    """Make the inputs of WRITERS below `work`."""
    make_artifact(work / "in" / "trace", "trace")
    make_artifact(work / "in" / "corpus", "corpus")
    (work / "in" / "bitcode").mkdir()
    shutil.copy(work / "in" / "corpus" / "a" / "m.bc", work / "in" / "bitcode" / "m.bc")
    names = [f"a/{number}" for number in range(3)]
    (work / "in" / "three" / "a").mkdir(parents=True)
    for name in names:
        (work / "in" / "three" / f"{name}.bc").write_bytes(bitcode(name.encode()))
        (work / "in" / "three" / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0")
    description = json.dumps({"modules": names, "has_thinlto": False})
    (work / "in" / "three" / "corpus_description.json").write_text(description)
    (work / "in" / "build" / "bin").mkdir(parents=True)
    (work / "in" / "build" / "bin" / "program").write_bytes(ELF)
    (work / "in" / "build" / "a.o").write_bytes(built_object())
    entry = {"directory": str(work / "in" / "build"), "file": "a.c", "output": "a.o", "command": "cc -c -o a.o a.c"}
    (work / "in" / "build" / "compile_commands.json").write_text(json.dumps([entry]))


def writer_arguments(writer: str, work: Path) -> list[str]:
    """Return the arguments of a command of WRITERS, without its output."""
    return [str(work / one) if one.startswith("in/") else one for one in WRITERS[writer][1]]


OUTPUTS = (
    "missing",
    "deep",
    "empty",
    "file",
    "link",
    "dangling",
    "folder",
    "foreign manifest",
    "artifact",
    "artifact with another file",
    "damaged artifact",
    "around an artifact",
    "inside an artifact",
    "input",
    "inside an input",
    "around the inputs",
)


def put_output(work: Path, what: str, kind: Kind, manifest: bytes, name: str) -> Path:
    """Put something at the place of an output; return the place."""
    output = work / name
    if what == "deep":
        return output / "er" / "output"
    if what == "empty":
        output.mkdir()
    elif what == "file":
        output.write_bytes(manifest)
    elif what == "link":
        make_artifact(work / "target", kind)
        output.symlink_to("target")
    elif what == "dangling":
        output.symlink_to("nowhere")
    elif what in ("folder", "foreign manifest"):
        output.mkdir()
        (output / "precious").write_text("years of work")
        if what == "foreign manifest":
            (output / MANIFEST).write_bytes(manifest)
    elif what == "around an artifact":
        make_artifact(output / "deep", kind)
    elif what == "inside an artifact":
        make_artifact(output, kind)
        return output / "deep" / "output"
    elif what == "input":
        return work / "in" / "trace"
    elif what == "inside an input":
        return work / "in" / "trace" / "deep"
    elif what == "around the inputs":
        return work / "in"
    elif what != "missing":
        make_artifact(output, kind)
        if what == "artifact with another file":
            (output / "precious").write_text("years of work")
        elif what == "damaged artifact":
            next(path for path in output.iterdir() if path.is_file() and path.name != MANIFEST).unlink()
    return output


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(
    writer=st.sampled_from(sorted(WRITERS)),
    what=st.sampled_from(OUTPUTS),
    kind=st.sampled_from(KINDS) | st.sampled_from(["vocab", "corpus", "TFRecord trace"]),
    manifest=st.binary(max_size=20)
    | st.sampled_from(
        [b"{}", b"[]", b'{"version": 1}', b'{"version": 1, "files": []}', b'{"version": 2, "files": []}']
    ),
    name=st.sampled_from(["out", "o ut", "-", "[a-z]*", "é", "a" * 200, ".hidden", "manifest.json"]),
)
def test_output_replaces_only_an_artifact_of_its_kind(
    writer: str, what: str, kind: Kind, manifest: bytes, name: str
) -> None:
    command, _inputs, made = WRITERS[writer]
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        put_inputs(work)
        output = put_output(work, what, kind, manifest, name)
        before = content(work)
        status, message = status_of(command, [*writer_arguments(writer, work), f"--output={output}"])
        after = content(work)
        if status:
            assert after == before and "remedy: " in message
            return
        may_change = what in ("missing", "deep", "empty")
        assert may_change or (what in ("artifact", "damaged artifact") and kind == made), message
        verify(output)
        assert read_manifest(output).kind == made
        below = f"{output.relative_to(work).as_posix()}/"
        outside = {key: value for key, value in before.items() if not key.startswith(below)}
        assert {key: value for key, value in after.items() if not key.startswith(below)} == outside


NOWHERE = "gs://b/x"
"""No valid place: a command that gets beyond the other artifact ends here, before it imports TensorFlow."""
READERS: tuple[tuple[Kind, click.Command, tuple[str, ...]], ...] = (
    ("trace", vocab, ("--trace", "IN", "--output", "OUT")),
    ("trace", trace, ("export", "--trace", "IN", "--output", "OUT")),
    ("corpus", corpus, ("split", "--corpus", "IN")),
    ("corpus", trace, ("--corpus", "IN", "--toolchain", "none", "--output", "OUT")),
    ("toolchain", trace, ("--corpus", "none", "--toolchain", "IN", "--output", "OUT")),
    ("policy", toolchain, ("--mode", "release", "--policy", "IN", "--output", "OUT")),
    ("plan", evaluation, ("compare-binaries", "--recipe=tiny", "--release-toolchain=x", "--plan=IN", "--output=OUT")),
    ("evaluation", evaluation, ("show", "--metrics", "IN")),
    ("evaluation", evaluation, ("select-policy", "--evaluation", "IN", "--policy", NOWHERE, "--output", "OUT")),
    ("policy", evaluation, ("select-policy", "--start", "IN", "--policy", NOWHERE, "--output", "OUT")),
    ("corpus", evaluation, ("run", "--corpus", "IN", "--policy", NOWHERE, "--output", "OUT")),
    ("toolchain", evaluation, ("run", "--toolchain", "IN", "--policy", NOWHERE, "--output", "OUT")),
    ("toolchain", evaluation, ("compare-binaries", "--release-toolchain", "IN", "--plan", NOWHERE, "--output", "OUT")),
    ("toolchain", evaluation, ("compare-programs", "--release-toolchain=IN", f"--recipe={NOWHERE}", "--output=OUT")),
    ("trace", warmstart, ("--trace", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("vocab", warmstart, ("--vocab", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("corpus", ppo, ("--corpus", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("trace", ppo, ("--trace", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("policy", ppo, ("--warmstart", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("corpus", tune, ("--corpus", "IN", "--toolchain", NOWHERE, "--output", "OUT")),
    ("toolchain", tune, ("--toolchain", "IN", "--corpus", NOWHERE, "--output", "OUT")),
    ("policy", tune, ("--policy", "IN", "--corpus", NOWHERE, "--output", "OUT")),
    ("policy", policy, ("compare", "--policy", "IN", "--trace", NOWHERE)),
    ("trace", policy, ("compare", "--trace", "IN", "--policy", NOWHERE)),
    ("toolchain", policy, ("export", "--toolchain", "IN", "--policy", NOWHERE)),
    ("corpus", policy, ("explain", "--corpus", "IN", "--policy", NOWHERE, "a/m")),
    ("toolchain", policy, ("import", "--toolchain", "IN", "--saved-model", NOWHERE, "--output", "OUT")),
    ("evaluation", retrain, ("check", "--evaluation", "IN", "--state", NOWHERE)),
)
"""Kind of an input, and a command that reads it."""


def damage(data: st.DataObject, directory: Path) -> set[str]:
    """Damage one member so that its content differs, or swap two; return their names."""
    names = sorted(entry.name for entry in read_manifest(directory).files)
    name = data.draw(st.sampled_from(names), label="member")
    path, other = directory / name, directory / data.draw(st.sampled_from(names), label="other")
    text = path.read_bytes()
    how = data.draw(st.sampled_from(["bit", "truncated", "longer", "missing", "folder", "pipe", "link", "swapped"]))
    if how == "bit":
        changed = bytearray(text)
        changed[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(changed)
    elif how == "truncated":
        path.write_bytes(text[: data.draw(st.integers(0, len(text) - 1))])
    elif how == "swapped" and other.read_bytes() != text:
        path.write_bytes(other.read_bytes())
        other.write_bytes(text)
        return {name, other.relative_to(directory).as_posix()}
    elif how in ("longer", "swapped"):
        path.write_bytes(text + b"\0")
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "pipe":
            os.mkfifo(path)
        elif how == "link":
            path.symlink_to(other)
    return {name}


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(data=st.data())
def test_damaged_member_is_named_before_the_step_works(data: st.DataObject) -> None:
    kind, command, arguments = data.draw(st.sampled_from(READERS), label="reader")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        make_artifact(work / "in", kind)
        names = damage(data, work / "in")
        words = [one.replace("IN", str(work / "in")).replace("OUT", str(work / "out")) for one in arguments]
        status, message = status_of(command, words)
        assert status == 1 and any(name in message for name in names) and "remedy: " in message
        assert sorted(os.listdir(work)) == ["in"]


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(position=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.booleans())
def test_damaged_manifest_is_reported_or_means_the_same(position: int, bit: int, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        make_artifact(work / "in", "trace")
        path = work / "in" / MANIFEST
        text, before = bytearray(path.read_bytes()), read_manifest(work / "in").files
        if cut:
            del text[position % len(text) :]
        else:
            text[position % len(text)] ^= 1 << bit
        path.write_bytes(text)
        status, message = status_of(vocab, ("--trace", work / "in", "--output", work / "out"))
        if status:
            assert "remedy: " in message and sorted(os.listdir(work)) == ["in"]
        else:
            assert read_manifest(work / "in").files == before and (work / "out" / "vocab.json").is_file()


@pytest.mark.parametrize(("kind", "command", "arguments"), READERS)
def test_whole_artifact_is_not_called_damaged(
    kind: Kind, command: click.Command, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Otherwise the examples above might fail for another reason."""
    make_artifact(tmp_path / "in", kind)
    texts = [one.replace("IN", str(tmp_path / "in")).replace("OUT", str(tmp_path / "out")) for one in arguments]
    assert "damaged" not in status_of(command, texts)[1]


@pytest.mark.parametrize("writer", sorted(WRITERS))
def test_commands_write_to_a_new_place(writer: str, tmp_path: Path) -> None:
    command, _inputs, made = WRITERS[writer]
    put_inputs(tmp_path)
    for _again in range(2):
        assert status_of(command, [*writer_arguments(writer, tmp_path), "--output", tmp_path / "out"]) == (0, "")
    assert read_manifest(tmp_path / "out").kind == made
