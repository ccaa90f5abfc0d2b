"""Tests that commands report any damaged input in one message, without a traceback or a hang.

Each example damages one input of one command: a document that is valid except for one value, other bytes, a named pipe,
a server's answer. A run has 200 examples; MLGO_FUZZ_EXAMPLES=10000 sets another number.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click
import gin
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.compiler.objects.elf import Elf
from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.formats.trace import load_trace, read_columns, read_modules
from components.core.formats.training_curve import read_curve
from components.core.formats.vocab import load_vocab
from components.core.policy.dense import read_dense
from components.core.projects.recipe import load_recipes
from components.corpus.__main__ import main as corpus
from components.corpus.write_split_and_report import split_config
from components.evaluation.__main__ import main as evaluation
from components.evaluation.measurements import read_measurements
from components.evaluation.projects.build_trees import compare_trees
from components.platform.command import _status_of
from components.platform.errors import UserError
from components.platform.launcher.executor import parse_executor_input, write_executor_output
from components.platform.launcher.notify import OUTCOME_VARIABLE
from components.platform.storage.manifest import write_manifest
from components.platform.storage.uri import parse_location
from components.ppo.module_sampler import read_oversampling
from pipelines.cli.retrain import retrain_group as retrain
from pipelines.finish.__main__ import main as finish
from pipelines.images import read_images
from pipelines.local.cache_inputs import identify_build
from pipelines.local.runners.mounts import mounted_paths
from pipelines.parameters.check import checked_values
from pipelines.spec import load_spec, with_images
from tests.support.bitcode import bitcode

EXAMPLES = int(os.environ.get("MLGO_FUZZ_EXAMPLES", "200"))
HANG_S = 60
"""Time limit of one example, which takes milliseconds; even a busy machine needs less."""

BITCODE = bitcode(b"content of a module")
FEATURE = {"name": "callee_users", "type": "int64_t", "shape": [1]}
DEPLOYED = {
    "policy": "p",
    "policy_digest": "d",
    "problem": "inlining",
    "llvm_version": "19.1.7",
    "features": ["a"],
    "modules": {"m": "c"},
    "reduction_percent": 1.0,
    "ci95": [0.5, 1.5],
    "promoted_at": 1.7e9,
    "regressed": ["m"],
}
RECIPE = {
    "name": "a",
    "source": {"url": "https://h/a.tar.gz", "sha256": "0" * 64},
    "requires": {"b": {"deb": "libb"}},
    "cmake": {"directory": ".", "options": {"A": "ON", "B": 1}, "targets": ["all"]},
    "exclude": ["*"],
    "cflags": ["-g"],
    "binaries": ["a"],
    "benchmarks": [{"name": "n", "program": "p", "arguments": ["{input}"], "input": {"files": ["*"], "bytes": 10}}],
}
SIZES = {
    "measure": "size",
    "modules": ["a/m"],
    "projects": ["a"],
    "unseen_project": [False],
    "excluded": [],
    "compile_s": {"baseline": 1.0},
    "sizes": {"baseline": [10], "policy": [9]},
    "languages": ["c"],
    "sections": {},
}


@dataclass(frozen=True)
class Target:
    """One input of one command.

    Attributes:
        location: path of the input, relative to the example's directory.
        valid: the undamaged input: a document, or bytes.
        read: reads the input, given the example's directory, as the command does.
        around: paths and contents of other, valid files.
        as_yaml: whether a document is written as YAML instead of JSON.
    """

    location: str
    valid: Any
    read: Callable[[Path], Any]
    around: tuple[tuple[str, bytes], ...] = ()
    as_yaml: bool = False

    def encode(self, document: Any) -> bytes:
        if isinstance(document, bytes):
            return document
        if self.as_yaml:
            return yaml.safe_dump(document, allow_unicode=False).encode("utf-8", "surrogatepass")
        return json.dumps(document).encode()


def run(command: click.Command, *arguments: str) -> Callable[[Path], Any]:
    """Return a function that runs the command; {} in its arguments stands for the example's directory."""
    return lambda directory: command.main(
        [argument.replace("{}", str(directory)) for argument in arguments], standalone_mode=False
    )


def sealed(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return `read` for an artifact with a manifest that is written for its damaged files."""

    def seal_and_read(directory: Path) -> Any:
        if all(path.is_file() and not path.is_symlink() for path in directory.rglob("*") if not path.is_dir()):
            write_manifest(directory)
        return read(directory)

    return seal_and_read


def _weights() -> bytes:
    stream = io.BytesIO()
    header = {"version": 2, "problem": "inlining", "features": [FEATURE], "layers": 1}
    arrays: dict[str, Any] = {
        "header": np.array(json.dumps(header)),
        "buckets/callee_users": np.zeros(3),
        "layers/0/weights": np.zeros((2, 2), np.float32),
        "layers/0/bias": np.zeros(2, np.float32),
    }
    np.savez(stream, **arrays)
    return stream.getvalue()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    columns = {"module": ["m"], "text_size_bytes": [1], "decisions": [1], "compile_s": [0.1]}
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _read_recipes(path: Path) -> None:
    recipes = load_recipes(path)
    split_config({}, recipes.split, str(path))


def _pipeline(directory: Path) -> None:
    spec = load_spec(directory / "p.yaml")
    with_images(spec, {"a": "b"})
    checked_values(spec, {})


def _gin(directory: Path) -> None:
    from components.core.policy.tf import networks

    gin.clear_config()  # a test that trained in this process has left a locked configuration
    try:
        networks.configure("inlining", files=[directory / "a.gin"])
    finally:
        gin.clear_config()


def _text(path: Path) -> str:
    """Return the text of a file, for options that take the text itself."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _executor(directory: Path) -> None:
    text = _text(directory / "e.json")
    document = parse_executor_input(text.replace("OUT", str(directory)))
    if document.get("outputs", {}).get("outputFile", "").startswith(str(directory)):
        write_executor_output(document, {})


def _finish(directory: Path) -> None:
    text = _text(directory / "s.json").replace("\0", "0")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(OUTCOME_VARIABLE, text)
        finish.main([], standalone_mode=False)


TRACE = {
    "version": 1,
    "problem": "inlining",
    "decision": "inlining_decision",
    "features": [FEATURE],
    "decisions": 0,
    "modules": 1,
    "corpus": "c",
    "toolchain": "t",
}
CORPUS = (
    ("corpus_description.json", b'{"modules": ["a/m"], "has_thinlto": false}'),
    ("a/m.bc", BITCODE),
    ("a/m.cmd", b"-cc1\0-Oz\0"),
)
SPLITS = {"version": 1, "seed": 0, "train": ["a/m"], "validation": [], "heldout": [], "heldout_projects": []}
IMPORT = run(corpus, "import", "--input", "{}", "--output", "{}-out")
COMPARED = {
    "modules": 1,
    "baseline_bytes": 10,
    "policy_bytes": 9,
    "reduction_percent": 1.0,
    "modules_smaller": 1,
    "modules_equal": 0,
    "modules_larger": 0,
    "other_modules": {
        "target": "other modules of these projects",
        "units": 4,
        "reduction_percent": 1.0,
        "standard_error": 0.1,
        "degrees_of_freedom": 3.0,
        "interval95": [0.5, 1.5],
    },
}
METRICS = {
    "measure": "size",
    **COMPARED,
    "sweep": {},
    "verdict": "better",
    "min_reduction_percent": 0.5,
    "groups": {"unseen_modules": COMPARED, "unseen_projects": COMPARED},
    "per_project": {"p": {**COMPARED, "group": "unseen_modules"}},
    "inputs": {"policy": "/p"},
    "refused_because": None,
}
SPEC = {
    "schemaVersion": "2.1.0",
    "pipelineInfo": {"name": "p"},
    "root": {
        "dag": {"tasks": {"t": {}}},
        "inputDefinitions": {"parameters": {"seed": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1}}},
    },
    "deploymentSpec": {"executors": {"e": {"container": {"image": "a", "env": [{"name": "N", "value": "v"}]}}}},
}

ELF = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2, 1) + struct.pack(
    "<64xIIQQQQIIQQ11s", 1, 3, 0, 0, 192, 11, 0, 0, 1, 0, b"\0.shstrtab\0"
)
"""An x86-64 program whose only section is the section name table."""

TARGETS = {
    "extract --compile-commands": Target(
        "c.json",
        [{"directory": "/tmp", "file": "a.c", "output": "a.o", "command": "cc -o a.o a.c"}],
        run(corpus, "extract", "--compile-commands", "{}/c.json", "--output", "{}-out"),
    ),
    "extract of an object": Target(
        "a.o",
        b"\x7fELF\x02\x01\x01" + bytes(57),
        run(corpus, "extract", "--input", "{}", "--input-type", "directory", "--output", "{}-out"),
    ),
    "extract of params": Target(
        "p.params",
        b"-o\nout\na.o\n",
        run(corpus, "extract", "--input", "{}/p.params", "--input-type", "params", "--output", "{}-out"),
    ),
    "extract of aquery": Target(
        "a.json",
        {"actions": [{"mnemonic": "CppLink", "arguments": ["ld", "-o", "x", "a.o"]}]},
        run(corpus, "extract", "--input", "{}/a.json", "--input-type", "bazel_aquery", "--output", "{}-out"),
    ),
    "import of a description": Target(
        "corpus_description.json",
        {"modules": ["a/m"], "has_thinlto": False, "global_command_override": None},
        IMPORT,
        CORPUS[1:],
    ),
    "import of bitcode": Target("a/m.bc", BITCODE, IMPORT, CORPUS),
    "import of a command line": Target(
        "a/m.cmd", b"-cc1\0-Oz\0", lambda d: [m.arguments() for m in load_corpus(d)], CORPUS
    ),
    "import of a split": Target("splits.json", SPLITS, IMPORT, CORPUS),
    "import without what is damaged": Target(
        "a/m.bc", BITCODE, run(corpus, "import", "--input", "{}", "--output", "{}-out", "--skip-damaged"), CORPUS
    ),
    "make": Target("m.bc", BITCODE, run(corpus, "make", "--input", "{}", "--output", "{}-out")),
    "split": Target("splits.json", SPLITS, run(corpus, "split", "--corpus", "{}"), CORPUS),
    "recipe": Target("r.yaml", RECIPE, lambda d: _read_recipes(d / "r.yaml"), as_yaml=True),
    "set of recipes": Target(
        "r.yaml",
        {"projects": [RECIPE], "split": {"seed": 1, "heldout_fraction": 0.1, "heldout_projects": ["a"]}},
        lambda d: _read_recipes(d / "r.yaml"),
        as_yaml=True,
    ),
    "toolchain": Target(
        "toolchain.json",
        {
            "version": 1,
            "mode": "training",
            "llvm_version": "19",
            "triple": "x",
            "features": {"inlining": [FEATURE]},
            "upstream_features": {},
            "built": {},
        },
        load_toolchain,
        (("bin/clang", b""),),
    ),
    "policy": Target(
        "policy.json",
        {
            "version": 1,
            "problem": "inlining",
            "features": [FEATURE],
            "num_actions": 2,
            "trained_by": "ppo",
            "metrics": {},
        },
        load_policy_info,
    ),
    "weights": Target("weights.npz", _weights(), read_dense),
    "trace": Target("trace.json", TRACE, sealed(lambda d: (load_trace(d), read_columns(d, ["action"])))),
    "table of a trace": Target(
        "modules.parquet", _parquet(), sealed(read_modules), (("trace.json", json.dumps(TRACE).encode()),)
    ),
    "vocab": Target(
        "vocab.json", {"version": 1, "features": ["a"]}, sealed(load_vocab), (("a.buckets", b"1\n" * 1000),)
    ),
    "buckets": Target(
        "a.buckets", b"1\n" * 1000, sealed(load_vocab), (("vocab.json", b'{"version": 1, "features": ["a"]}'),)
    ),
    "manifest": Target(
        "manifest.json",
        {"version": 1, "files": [{"name": "a.buckets", "bytes": 2000, "crc32c": "AAAAAA==", "executable": False}]},
        load_vocab,
        (("a.buckets", b"1\n" * 1000), ("vocab.json", b'{"version": 1, "features": ["a"]}')),
    ),
    "measurements": Target("measurements.json", SIZES, read_measurements),
    "evaluation show": Target("metrics.json", METRICS, run(evaluation, "show", "--metrics", "{}/metrics.json")),
    "oversampling": Target("e.json", {"regressed": ["a/m"]}, lambda d: read_oversampling(d / "e.json")),
    "images": Target(
        "i.json",
        {"training": {"tag": "t", "reference": "r", "bytes": 1, "local_base": False}},
        lambda d: read_images(d / "i.json"),
    ),
    "pipeline": Target("p.yaml", SPEC, _pipeline, as_yaml=True),
    "retrain show": Target(
        "s.json",
        {"version": 2, "deployed": DEPLOYED, "history": [DEPLOYED], "regressed": []},
        run(retrain, "show", "--state", "{}/s.json"),
    ),
    "retrain check": Target(
        "s.json",
        {"version": 2, "deployed": DEPLOYED, "history": [], "regressed": []},
        run(retrain, "check", "--state", "{}/s.json"),
    ),
    "executor input": Target(
        "e.json", {"outputs": {"outputFile": "OUT/x", "artifacts": {"a": {"artifacts": [{"name": "n"}]}}}}, _executor
    ),
    "outcome": Target("s.json", {"state": "FAILED", "error": "m"}, _finish),
    "facts of a build": Target(
        "c.json",
        [{"directory": "/tmp", "file": "a.c", "output": "a.o"}],
        lambda d: (identify_build(d / "c.json"), mounted_paths(["--compile-commands", str(d / "c.json")])),
    ),
    "training curve": Target(
        "training.csv",
        b"minutes,reward_mean,reward_percentile_25,reward_percentile_75,validation_reduction_percent\n1,2,3,4,5\n",
        read_curve,
    ),
    "elf": Target(
        "a.o",
        b"\x7fELF\x02\x01\x01" + bytes(57),
        lambda d: Elf((d / "a.o").read_bytes() if (d / "a.o").is_file() else b"").section(".text"),
    ),
    "build tree": Target(
        "new/bin/a",
        ELF,
        lambda d: compare_trees(d / "old", d / "new"),
        (("old/bin/a", ELF), ("new/bin/b", ELF)),
    ),
    "profile of a module": Target(
        "a/m.cmd",
        b"-cc1\0-fprofile-sample-use=../p\0",
        IMPORT,
        (*CORPUS[:2], ("p", b"f:1:1\n")),
    ),
    "gin": Target("a.gin", b"actor_network.fc_layer_params = (4, 4)\n", _gin),
}

TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["", "\0", "\ud800", "../x", "/", "-o", "é" * 300, "nan", "http://", "file:///x", "-" * 40, "{output}", "gs://b/a"]
)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True, allow_infinity=True)
    | TEXT
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400])
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
NESTED = st.sampled_from([10, 70, 1000, 100_000]).flatmap(
    lambda depth: st.sampled_from([b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth, b"- " * depth])
)
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(ord("b"), ord("k"))
)
MERGE_BOMB = b"a: &a {x: 1, y: 2, z: 3}\n" + b"".join(
    b"%c: &%c {<<: [%s]}\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(ord("b"), ord("k"))
)
YAML = st.sampled_from(
    [
        BOMB,
        MERGE_BOMB,
        b"a: 1" + b":1" * 100_000,
        b"a: &a [*a]",
        b"!!int x",
        b"!!timestamp x",
        b"!!bool x",
        b"!!float [",
        b"? [a]\n: b",
        b"1: 2",
        b"--- a\n--- b",
        b"a: .nan",
        b"name: 2020-13-45",
        b"!!python/object:os.system {}",
        b"\xff\xfe",
        b"a: \x01",
    ]
)
KINDS = ("missing", "directory", "pipe", "loop")


@st.composite
def damaged(draw: st.DrawFn, target: Target) -> bytes | str:
    """Draw an input for the target: its bytes, or the kind of file that replaces it."""
    how = draw(st.integers(0, 9))
    if how == 0:
        return draw(st.sampled_from(KINDS))
    if how == 1:
        return draw(st.binary(max_size=100) | NESTED | YAML)
    if how == 2:
        return target.encode(draw(VALUE))
    if how <= 4 or isinstance(target.valid, bytes):
        content = bytearray(target.encode(target.valid))
        for _ in range(draw(st.integers(0, 3))):
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
        return bytes(content[: draw(st.integers(0, len(content)))] if how % 2 else content)
    document = copy.deepcopy(target.valid)
    container, key = draw(st.sampled_from(list(nodes(document))))
    if draw(st.integers(0, 4)) == 0 and isinstance(container, dict):
        del container[key]
    else:
        container[key] = draw(VALUE)
    return target.encode(document)


def nodes(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each (container, key) of a document."""
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield document, key
            yield from nodes(value)


def put(path: Path, content: bytes | str) -> None:
    """Write bytes to `path`, or create a file of one of KINDS there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "directory":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "loop":
        path.symlink_to(path.name)


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Raise AssertionError if the block takes longer than HANG_S."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_valid_inputs_are_read(tmp_path: Path) -> None:
    """Otherwise all examples below might fail at the first check."""
    refused = []
    for number, (name, target) in enumerate(TARGETS.items()):
        directory = tmp_path / str(number)
        for location, content in target.around:
            put(directory / location, content)
        put(directory / target.location, target.encode(target.valid))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                target.read(directory)
        except (UserError, click.ClickException) as error:
            refused.append((name, str(error)))
    incomplete = {
        "extract --compile-commands",
        "extract of an object",
        "extract of params",
        "extract of aquery",
        "manifest",
        "evaluation show",
        "elf",
    }
    assert [(name, message) for name, message in refused if name not in incomplete] == []


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(data=st.data())
def test_damaged_input_is_reported_in_one_message(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TARGETS)), label="target")
    target = TARGETS[name]
    content = data.draw(damaged(target), label="input")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "in"
        directory.mkdir()
        for location, other in target.around:
            put(directory / location, other)
        put(directory / target.location, content)
        with no_hang(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            # As in run_step: what is a traceback there is an exception here.
            status = _status_of(lambda: target.read(directory))
        if status:
            paths = [*Path(scratch).iterdir(), *directory.iterdir()]
            left = [path.name for path in paths if ".partial" in path.name or path.name == "in-out"]
            assert left == [], "partial output is left"


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(text=TEXT | st.builds("{}{}".format, st.sampled_from(["gs://", "file://", "s3://", "gs://bucket/"]), TEXT))
def test_location_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(UserError):
        parse_location(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TARGETS)
def test_special_files_as_input_do_not_hang(name: str, kind: str, tmp_path: Path) -> None:
    target, directory = TARGETS[name], tmp_path / "in"
    for location, content in target.around:
        put(directory / location, content)
    put(directory / target.location, kind)
    with no_hang(), contextlib.redirect_stderr(io.StringIO()):
        _status_of(lambda: target.read(directory))
