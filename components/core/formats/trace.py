"""A trace on disk: every decision of the default heuristic with its features, in columns.

    trace.json             {"version", "problem", "decision", "features": [{"name", "dtype", "shape"}],
                            "decisions", "modules", "corpus", "toolchain"}; the last two are digests of artifacts
    trace-00000.parquet    one row per decision: module, context, caller, callee (strings, dictionary-encoded), step
                           (int32), a column per feature (a fixed-size list if it has more than one element), action
                           (int64), reward (float32)
    modules.parquet        one row per module: module, text_size_bytes (int64), decisions (int32), compile_s (float64)
    functions.parquet      one row per weak function that several objects of a project define: project, function
                           (strings), objects (int32, the number of the project's traced objects that define it)
    functions.npy          which functions the traced modules define, see core/compiler/objects/function_digests.py
    report.json            report of the trace step: quarantined modules with their reasons

All rows of a module are in one shard, in the order of the decisions: of its contexts one after the other, `step` counts
from 0 in each.

For problems judged by size, `reward` is 1 - text_size_bytes / baseline size, so 0 in a trace of the baseline itself.
For problems judged by scores, `reward` is the score of the context (lower is better), the same in all of its rows, and
there is no text_size_bytes and no table of functions. Traces of compilers that do not report caller and callee lack
these two columns.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import asdict as fields_of

from components.core.formats.corpus import project_of
from components.core.formats.features import FeatureSpec, TensorSpec
from components.core.formats.names import replace_invalid_utf8
from components.platform.errors import UserError
from components.platform.storage.input_files import MACHINE_ERRORS, MissingFile, read_document
from components.platform.storage.manifest import require_artifact

Array = npt.NDArray[Any]

DESCRIPTION = "trace.json"
MODULES = "modules.parquet"
FUNCTIONS = "functions.parquet"
REPORT = "report.json"
_VERSION = 1
_MODULE_COLUMNS = {
    "module": pa.string(),
    "text_size_bytes": pa.int64(),
    "decisions": pa.int32(),
    "compile_s": pa.float64(),
}
_ROWS_PER_SHARD = 1 << 18
_SHARD_BYTES = 96 << 20
"""Features per shard, in memory: a decision has 300 bytes of features for inlining, 3500 for register allocation."""
_STRINGS = ("module", "context", "caller", "callee")
_DTYPES = {"step": "int32", "reward": "float32", "action": "int64"}
_REMEDY = "make it again with: mlgo trace --corpus DIR --toolchain DIR --output DIR"


@dataclass(frozen=True)
class ModuleTrace:
    """The decisions of one module; all arrays have the same length N.

    A field that is None in one module of a trace is None in all of them.

    Attributes:
        text_size_bytes: None if no object was made.
        context: int32 [N], index into `contexts`.
        step: int32 [N], index of the decision in its context.
        caller, callee: int32 [N], index into `names`; None for problems without call sites.
        columns: feature name -> [N, *shape].
        action: [N].
        reward: of the module as a whole, or [N].
        weak_functions: names of the weak functions that its object defines; None if no object was made.
    """

    module: str
    text_size_bytes: int | None
    compile_s: float
    contexts: Sequence[str]
    context: Array
    step: Array
    names: Sequence[str]
    caller: Array | None
    callee: Array | None
    columns: dict[str, Array]
    action: Array
    reward: float | Array = 0.0
    weak_functions: Sequence[str] | None = None


@dataclass(frozen=True)
class Trace:
    """Content of trace.json. features: those of the compiler, in its order, without the decision."""

    directory: Path
    problem: str
    decision: str
    features: tuple[FeatureSpec, ...]
    decisions: int
    modules: int
    corpus: str
    toolchain: str

    @property
    def shards(self) -> list[Path]:
        """The Parquet files, in the order of their rows."""
        return sorted(self.directory.glob("trace-*.parquet"))


@dataclass
class _Strings:
    """A growing dictionary of strings, and each column chunk's indices into it."""

    index: dict[str, int] = field(default_factory=dict)
    codes: list[Array] = field(default_factory=list)

    def add(self, values: Sequence[str], codes: Array) -> None:
        """Add a chunk of a column: the strings at `codes` in `values`."""
        indices = [self.index.setdefault(value, len(self.index)) for value in values]
        self.codes.append(np.asarray(indices, np.int32)[codes])

    def column(self) -> pa.DictionaryArray:
        """Return all chunks as one Arrow column."""
        values = [replace_invalid_utf8(value) for value in self.index]
        codes = np.concatenate(self.codes).astype(np.int32, copy=False)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values, pa.string()))


class TraceWriter:
    """Writes a trace into `directory`: call `add` for each module, then `close` once.

    Holds at most one shard and the names of all weak functions in memory.
    """

    def __init__(
        self, directory: Path, problem: str, decision: str, features: Sequence[FeatureSpec], rows_per_shard: int = 0
    ) -> None:
        self.directory = directory
        self.problem = problem
        self.decision = decision
        self.features = tuple(features)
        row_bytes = sum(spec.size_bytes for spec in self.features)
        self.rows_per_shard = rows_per_shard or min(_ROWS_PER_SHARD, _SHARD_BYTES // max(1, row_bytes))
        self.decisions = 0
        self._shards = 0
        self._modules: list[tuple[str, int | None, int, float]] = []
        self._objects: dict[str, Counter[str]] | None = {}
        self._buffer: list[ModuleTrace] = []
        self._buffered = 0

    def add(self, module: ModuleTrace) -> None:
        """Add the decisions of a module; write a shard when it is full."""
        rows = len(module.action)
        self._modules.append((module.module, module.text_size_bytes, rows, module.compile_s))
        self.decisions += rows
        if module.weak_functions is None:
            self._objects = None
        elif self._objects is not None:
            self._objects.setdefault(project_of(module.module), Counter()).update(module.weak_functions)
        if rows:
            self._buffer.append(module)
            self._buffered += rows
        if self._buffered >= self.rows_per_shard:
            self._flush()

    def close(self, corpus: str, toolchain: str) -> None:
        """Write the remaining rows, the tables of modules and functions, and trace.json.

        Args:
            corpus, toolchain: digests of these artifacts.
        """
        self._flush()
        columns = list(zip(*self._modules, strict=True)) or [()] * 4
        described = zip(_MODULE_COLUMNS.items(), columns, strict=True)
        arrays = {name: pa.array(values, kind) for (name, kind), values in described if None not in values}
        pq.write_table(pa.table(arrays), self.directory / MODULES, compression="zstd")
        if self._objects is not None:
            pq.write_table(_functions(self._objects), self.directory / FUNCTIONS, compression="zstd")
        description = {
            "version": _VERSION,
            "problem": self.problem,
            "decision": self.decision,
            "features": [spec.to_json() for spec in self.features],
            "decisions": self.decisions,
            "modules": len(self._modules),
            "corpus": corpus,
            "toolchain": toolchain,
        }
        (self.directory / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")

    def _flush(self) -> None:
        if not self._buffer:
            return
        path = self.directory / f"trace-{self._shards:05d}.parquet"
        table = _table(self._buffer, self.features)
        # Dictionaries and zstd compress features well, which repeat the values of their function; delta encoding
        # compresses steps, which count up. Level 3 takes no more time than level 1 and saves 5%.
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=3,
            row_group_size=self.rows_per_shard,
            use_dictionary=[name for name in table.column_names if name != "step"],
            column_encoding={"step": "DELTA_BINARY_PACKED"},
        )
        self._shards += 1
        self._buffer, self._buffered = [], 0


def _table(modules: list[ModuleTrace], features: Sequence[FeatureSpec]) -> pa.Table:
    strings = {name: _Strings() for name in _STRINGS}
    for part in modules:
        strings["module"].add([part.module], np.zeros(len(part.action), np.int32))
        strings["context"].add(part.contexts, part.context)
        for name, codes in (("caller", part.caller), ("callee", part.callee)):
            if codes is not None:
                strings[name].add(part.names, codes)
    columns: dict[str, pa.Array] = {"module": strings["module"].column(), "context": strings["context"].column()}
    columns["step"] = pa.array(np.concatenate([part.step for part in modules]).astype(np.int32, copy=False))
    columns |= {name: strings[name].column() for name in ("caller", "callee") if strings[name].codes}
    for spec in features:
        values = pa.array(np.concatenate([part.columns[spec.name] for part in modules]).reshape(-1))
        elements = int(np.prod(spec.shape))
        columns[spec.name] = values if elements == 1 else pa.FixedSizeListArray.from_arrays(values, elements)
    columns["action"] = pa.array(np.concatenate([part.action for part in modules]).astype(np.int64, copy=False))
    rewards = [np.broadcast_to(np.asarray(part.reward, np.float32), part.action.shape) for part in modules]
    columns["reward"] = pa.array(np.concatenate(rewards))
    return pa.table(columns)


def _functions(counts: dict[str, Counter[str]]) -> pa.Table:
    rows = [
        (project, replace_invalid_utf8(function), objects)
        for project, functions in counts.items()
        for function, objects in functions.items()
        if objects > 1
    ]
    projects, functions, objects = list(zip(*rows, strict=True)) or [()] * 3
    columns = {"project": pa.array(projects, pa.string()), "function": pa.array(functions, pa.string())}
    return pa.table(columns | {"objects": pa.array(objects, pa.int32())})


class _Description(Struct):
    """trace.json."""

    problem: str
    decision: str
    features: tuple[TensorSpec, ...]
    decisions: int
    modules: int
    corpus: str
    toolchain: str


def load_trace(directory: Path) -> Trace:
    """Read trace.json. UserError if `directory` is not a complete trace artifact."""
    require_artifact(directory, "trace")
    path = directory / DESCRIPTION
    try:
        read = read_document(path, _Description, "a trace description", _REMEDY, _VERSION)
    except MissingFile:
        raise UserError(f"{directory} is not a trace: there is no {DESCRIPTION}", _REMEDY) from None
    return Trace(directory, **fields_of(read) | {"features": tuple(spec.feature for spec in read.features)})


def read_columns(directory: Path, names: Sequence[str]) -> dict[str, Array]:
    """Read the named columns of all decisions, in the order of the shards.

    Returns:
        Column name -> [N], or [N, *shape] for a feature of more than one element. Strings are object arrays that share
        one str per distinct value; other dtypes are as written.

    Raises:
        UserError: the trace is incomplete, has no such column, or has an invalid Parquet file.
    """
    trace = load_trace(directory)
    specs = _require_columns(trace, names)
    tables = [_read(path, list(names)) for path in trace.shards]
    return {name: _column([table[name] for table in tables], name, specs.get(name)) for name in names}


def iterate_columns(trace: Trace, names: Sequence[str]) -> Iterator[dict[str, Array]]:
    """Yield the named columns of the decisions of one shard after the other, as read_columns has them of all.

    A shard has _SHARD_BYTES of features, so a trace of any size can be read.
    """
    specs = _require_columns(trace, names)
    for path in trace.shards:
        table = _read(path, list(names))
        yield {name: _column([table[name]], name, specs.get(name)) for name in names}


def _require_columns(trace: Trace, names: Sequence[str]) -> dict[str, FeatureSpec]:
    """Return the features by name, if the trace has these columns."""
    specs = {spec.name: spec for spec in trace.features}
    columns = {*_STRINGS, *_DTYPES, *specs}
    if trace.shards:  # otherwise nothing shows whether there are caller and callee columns
        with _parquet_errors(trace.shards[0]):
            columns = set(pq.read_schema(trace.shards[0]).names)
    if missing := [name for name in names if name not in columns]:
        raise UserError(
            f"the trace in {trace.directory} has no column {', '.join(missing)}; it has {', '.join(sorted(columns))}",
            "make the trace with a toolchain that logs these features",
        )
    return specs


def read_modules(directory: Path) -> dict[str, Array]:
    """Read modules.parquet as columns: module (object), text_size_bytes if there are sizes, decisions, compile_s."""
    load_trace(directory)
    table = _read(directory / MODULES, None)
    return {name: table[name].to_numpy() for name in table.column_names}


def read_object_counts(directory: Path) -> dict[str, dict[str, int]]:
    """Read how many of a project's traced objects define each weak function.

    Returns:
        project -> function -> objects, only functions of at least two objects. A linker keeps one of the definitions.

    Raises:
        UserError: as read_columns; or the trace lacks this table: an old trace, or a problem judged by scores.
    """
    load_trace(directory)
    if not (directory / FUNCTIONS).exists():
        raise UserError(f"the trace in {directory} does not record which functions several objects define", _REMEDY)
    table = _read(directory / FUNCTIONS, None)
    objects: dict[str, dict[str, int]] = {}
    for project, function, count in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        objects.setdefault(project, {})[function] = count
    return objects


def _read(path: Path, names: list[str] | None) -> pa.Table:
    """Read columns of a file, without threads: Arrow aborts the process if it cannot start one (ulimit -v)."""
    with _parquet_errors(path), pq.ParquetFile(path) as file:
        table = file.read(names, use_threads=False)
        if missing := sorted({*(names or ())} - {*table.column_names}):
            raise ValueError(f"no column {', '.join(missing)}")
        return table


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn errors about the content of a file into UserErrors; those of the machine stay what they are."""
    try:
        yield
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise UserError(f"{path} is not a valid Parquet file: {error}", _REMEDY) from None


def _column(parts: list[pa.ChunkedArray], name: str, spec: FeatureSpec | None) -> Array:
    if not parts:
        shape = spec.shape if spec and np.prod(spec.shape) > 1 else ()
        return np.empty((0, *shape), spec.dtype if spec else _DTYPES.get(name, "object"))
    whole = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
    if pa.types.is_dictionary(whole.type):
        whole = whole.unify_dictionaries()
        values = np.asarray(whole.chunk(0).dictionary.to_pylist(), dtype=object)
        return np.concatenate([values[chunk.indices.to_numpy()] for chunk in whole.chunks])
    if pa.types.is_fixed_size_list(whole.type):
        assert spec is not None
        values = np.concatenate([chunk.flatten().to_numpy() for chunk in whole.chunks])
        return values.reshape(-1, *spec.shape)
    return np.asarray(whole.to_numpy())
