"""Writes the decisions of a training log as text, as CSV or as Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Literal

import numpy as np

from components.core.compiler.logs.records import LogReader, Record, format_record
from components.core.formats.features import FeatureSpec
from components.platform.errors import UserError

Format = Literal["text", "csv", "parquet"]
Write = Callable[[str], object]
_ROWS = 4096
"""Rows of Parquet that are in memory at a time."""
_CONTEXT, _NUMBER, _OUTCOME = "context", "observation", "outcome"


def choose_features(log: LogReader, names: Collection[str]) -> list[FeatureSpec]:
    """Return the tensors of these names, all for none. UserError if the log does not have one."""
    known = {spec.name: spec for spec in log.features}
    if unknown := sorted({*names} - {*known}):
        raise UserError(f"the log has no feature {unknown[0]}", f"it has {', '.join(known)}")
    return [spec for spec in log.features if not names or spec.name in names]


def select(log: LogReader, context: str | None, limit: int | None) -> Iterator[Record]:
    """Yield the decisions of a context, at most `limit` of them. UserError if the log has no such context."""
    found = False
    chosen = (record for record in log.records() if context is None or record.context == context)
    for record in islice(chosen, limit):
        found = True
        yield record
    if context is not None and not found:
        raise UserError(f"the log has no decision of the context {context!r}", "leave --context out to see them")


def write_text(records: Iterator[Record], features: Sequence[FeatureSpec], write: Write) -> int:
    """Write each decision as a block, and return how many there are."""
    last, count = None, 0
    for record in records:
        write(format_record(record, features, with_context=record.context != last) + "\n")
        last, count = record.context, count + 1
    return count


def write_csv(
    records: Iterator[Record],
    features: Sequence[FeatureSpec],
    score: FeatureSpec | None,
    write: Callable[[str], object],
) -> int:
    """Write a row for each decision; a tensor of several elements has a column NAME.0, NAME.1, ... for each."""
    columns = [*features, *([score] if score else [])]
    names = [_OUTCOME if spec is score else spec.name for spec in columns]
    header = [_CONTEXT, _NUMBER]
    for name, spec in zip(names, columns, strict=True):
        size = int(np.prod(spec.shape))
        header += [name] if size == 1 else [f"{name}.{index}" for index in range(size)]
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(header)
    count = 0
    for record in records:
        row: list[Any] = [record.context, record.number]
        for spec in features:
            row += record.values[spec.name].ravel().tolist()
        if score is not None:
            row += [""] * int(np.prod(score.shape)) if record.outcome is None else record.outcome.ravel().tolist()
        rows.writerow(row)
        write(buffer.getvalue())
        buffer.seek(0)
        buffer.truncate()
        count += 1
    write(buffer.getvalue())  # the header of a log without decisions
    return count


def write_parquet(
    records: Iterator[Record], features: Sequence[FeatureSpec], score: FeatureSpec | None, stream: IO[bytes]
) -> int:
    """Write a row for each decision; a tensor of several elements is a list of fixed size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind(spec: FeatureSpec) -> pa.DataType:
        element = pa.from_numpy_dtype(np.dtype(spec.dtype))
        size = int(np.prod(spec.shape))
        return element if size == 1 else pa.list_(element, size)

    fields = [(_CONTEXT, pa.string()), (_NUMBER, pa.int64()), *((spec.name, kind(spec)) for spec in features)]
    if score is not None:
        fields.append((_OUTCOME, kind(score)))
    schema = pa.schema(fields)
    count = 0

    def cell(values: Any) -> Any:
        flat = np.asarray(values).ravel().tolist()
        return flat[0] if len(flat) == 1 else flat

    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        while block := list(islice(records, _ROWS)):
            columns: dict[str, list[Any]] = {
                _CONTEXT: [record.context for record in block],
                _NUMBER: [record.number for record in block],
            }
            columns |= {spec.name: [cell(record.values[spec.name]) for record in block] for spec in features}
            if score is not None:
                columns[_OUTCOME] = [None if r.outcome is None else cell(r.outcome) for r in block]
            writer.write_table(pa.table(columns, schema))
            count += len(block)
    return count
